r"""Sampling the posterior of a mixture of experts.

``"hmc"``
    Hamiltonian Monte Carlo in whitened coordinates (see ``mixture_of_experts/coordinates.py``),
    the default.
``"geodesic"``
    Hamiltonian Monte Carlo along great circles for directions, log-lengths beside them.
``"metropolis"``
    The paper's random walk: von Mises-Fisher steps for directions, truncated normal steps for
    lengths, one component at a time, with the correction the truncation needs.

In all of them the choice of expert is summed out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_limits

from wideangle.infer.geodesic_hmc import geodesic_hmc
from wideangle.infer.kernel import Update, sweep, within
from wideangle.infer.metropolis import each_row
from wideangle.infer.proposals import positive_walk, vmf_walk
from wideangle.infer.run import Run, run
from wideangle.mixture_of_experts.coordinates import (
    Point,
    Priors,
    Problem,
    Whitening,
    fisher_whitening,
    from_vectors,
    log_joint,
    weights_of,
)
from wideangle.mixture_of_experts.likelihood import Batch, Weights, log_lik
from wideangle.mixture_of_experts.modes import climb
from wideangle.mixture_of_experts.shards import shard
from wideangle.mixture_of_experts.sparse import SparseBatch
from wideangle.posterior import Draws
from wideangle.priors.learning import update_prior
from wideangle.sharding import current_mesh
from wideangle.storage import Checkpoint
from wideangle.types import Array, Components, Key, Scalar

FISHER_ROWS = 4096
"""Rows the information is summed over; a random part of them stands for the rest."""
N_TYPICAL = 8
"""Points of a chain over which the information is averaged: at one alone it is far too small
where rows change hands between experts."""
TRIES = 4
"""Starts climbed for each chain: a chain that begins in a poor local mode may stay there."""
TRAJECTORY = 2.5
"""Length of a trajectory of the Hamiltonian sampler. Were the whitening perfect, 1.6 would do."""
FEWEST, MOST = 8, 64
"""Range of its number of gradients."""
GEODESIC_STEPS = 16
"""The same along great circles."""


class Whitened(NamedTuple):
    """State of the Hamiltonian sampler: coordinates u, and the map to x (held fixed)."""

    u: Point
    whitening: Whitening


class Polar(NamedTuple):
    """State of the samplers on spheres: log-lengths beside directions."""

    gate: Array
    gate_log_length: Array
    experts: Array
    experts_log_length: Array


class Walk(NamedTuple):
    """State of the random walk."""

    gate: Components
    experts: Components


@dataclass(frozen=True)
class McmcFit:
    """Draws of the weights, with the priors they were drawn under."""

    draws: Draws
    """Values: ``weights`` (gate and experts) and ``log_lik``."""
    priors: Priors
    run: Run


class Sampler(NamedTuple):
    """What one sampler needs: how to start, move, and read off the weights."""

    enter: Callable[[Point, Point, Problem], Any]
    """Where to begin, typical points (leading axis), and some of the rows only, dense ones."""
    recipe: Callable[[dict[str, Scalar], Problem], Update]
    collect: Callable[[Any, Problem], dict[str, Any]]
    steps: dict[str, float]
    targets: dict[str, float]


def fit_mcmc(
    key: Key,
    problem: Problem,
    *,
    sampler: str = "hmc",
    n_warmup: int = 500,
    n_draws: int = 500,
    n_chains: int = 4,
    thin: int = 1,
    learn: tuple[bool, bool] = (False, False),
    start: Point | None = None,
    progress: bool | None = None,
    checkpoint: Checkpoint | None = None,
) -> McmcFit:
    """Run the chains: starts by maximisation, two stages of warm-up, draws.

    The first stage goes from the mode to typical points; there the coordinates are whitened anew
    and the priors to ``learn`` (gate, experts) are updated (the paper's EM, one M step).
    The second stage tunes the step for the draws, each the last of ``thin`` steps. Only the second
    is saved to ``checkpoint``: the first depends on the key alone and is done again, to the same
    bits.
    """
    key_start, key_first, key_second = jax.random.split(key, 3)
    method = SAMPLERS[sampler]
    if start is None:
        modes = climb(
            key_start,
            problem.priors,
            problem.expert,
            problem.batch,
            n_starts=TRIES * n_chains,
            progress=progress,
        )
        _stop_if(modes.interrupted)
        start = jax.tree.map(lambda leaf: leaf[:n_chains], modes.points)
    mesh = current_mesh()
    spread = None if mesh is None else shard(problem.batch, mesh)
    stage = partial(_stage, method, n_chains=n_chains, progress=progress, spread=spread)
    n_first = n_warmup // 2
    typical = jax.tree.map(lambda leaf: leaf[:, None], start)
    if n_first:
        first = stage(
            key_first, start, typical, problem, n_warmup=n_first, n_draws=max(n_first // 2, 1)
        )
        _stop_if(first.interrupted)
        weights = first.draws.values["weights"]
        if any(learn):
            problem = problem._replace(priors=learn_priors(problem.priors, weights, learn))
        typical = _points_of(problem.priors, jax.tree.map(_spread_out, weights))
        start = jax.tree.map(lambda leaf: leaf[:, -1], typical)
    counts = {"n_warmup": n_warmup - n_first, "n_draws": n_draws, "thin": thin}
    if checkpoint is None:
        second = stage(key_second, start, typical, problem, **counts)
        _stop_if(second.draws.n_draws == 0)
        return McmcFit(second.draws, problem.priors, second)
    nothing = stage(key_second, start, typical, problem, n_warmup=0, n_draws=0)
    state, earlier = checkpoint.load((nothing.state, nothing.draws)) or (None, nothing.draws)
    with checkpoint:
        second = stage(
            key_second, start, typical, problem, **counts, on_chunk=checkpoint, resume=state
        )
    if not second.interrupted:
        checkpoint.remove(may_fail=True)
    draws = earlier.followed_by(second.draws)
    _stop_if(draws.n_draws == 0)
    return McmcFit(draws, problem.priors, second)


def _stop_if(interrupted: bool) -> None:
    """Pass Ctrl-C on as long as there is no draw that could be kept."""
    if interrupted:
        raise KeyboardInterrupt("stopped before the first draw")


def _stage(
    method: Sampler,
    key: Key,
    start: Point,
    typical: Point,
    problem: Problem,
    *,
    spread: Any = None,
    **options: Any,
) -> Run:
    some = subsample(jax.random.key(0), problem, FISHER_ROWS)
    with threadpool_limits(1, "blas"):  # or the draws depend on the number of threads
        begin = jax.block_until_ready(_enter(method.enter, start, typical, some))
    return run(
        key,
        method.recipe,
        begin,
        steps=method.steps,
        targets=method.targets,
        collect=method.collect,
        data=problem if spread is None else problem._replace(batch=spread),
        **options,
    )


@partial(jax.jit, static_argnums=0)
def _enter(enter: Callable[..., Any], start: Point, typical: Point, problem: Problem) -> Any:
    # One chain at a time: the information matrices of all of them need not fit at once.
    return jax.lax.map(lambda both: enter(*both, problem), (start, typical))


def _spread_out(draws: np.ndarray) -> Array:
    """A few draws of each chain, the last one among them."""
    chosen = np.linspace(0, draws.shape[1] - 1, min(N_TYPICAL, draws.shape[1])).round().astype(int)
    return jnp.asarray(draws[:, chosen])


def subsample(key: Key, problem: Problem, n_rows: int) -> Problem:
    """A problem with at most ``n_rows`` of the rows, each counting for more; dense in any case."""
    batch = problem.batch
    total: int = batch.rows.shape[0]
    if total <= n_rows and not isinstance(batch, SparseBatch):
        return problem
    chosen: Any = np.arange(total)
    if total > n_rows:
        chosen = jax.random.choice(key, total, (n_rows,), replace=False)
    if isinstance(batch, SparseBatch):
        part = Batch(*(jnp.asarray(leaf) for leaf in batch.dense(np.asarray(chosen))))
    else:
        part = Batch(*(leaf[chosen] for leaf in batch))
    scale = jnp.sum(batch.weights) / jnp.sum(part.weights)
    return problem._replace(batch=part._replace(weights=part.weights * scale))


def learn_priors(priors: Priors, weights: Weights, learn: tuple[bool, bool]) -> Priors:
    """The M step from draws of the weights, for the priors to learn, which are polar."""
    gate = jnp.asarray(weights.gate)
    experts = jnp.asarray(weights.experts).reshape(*weights.experts.shape[:-2], -1)
    updated = [
        update_prior(prior, Components.from_vectors(draws)) if wanted else prior
        for prior, draws, wanted in zip(priors, (gate, experts), learn, strict=True)
    ]
    return Priors(*updated)


@jax.jit
def _points_of(priors: Priors, weights: Weights) -> Point:
    return jax.vmap(jax.vmap(partial(point_of, priors)))(weights)


def point_of(priors: Priors, weights: Weights) -> Point:
    """Free coordinates of weights."""
    experts = weights.experts.reshape(weights.experts.shape[0], -1)
    return Point(from_vectors(priors.gate, weights.gate), from_vectors(priors.experts, experts))


def trajectory_steps(step: Scalar) -> Array:
    """Gradients of a trajectory of the right length.

    >>> [int(trajectory_steps(step)) for step in (0.1, 1.0, 0.001)]
    [25, 8, 64]
    """
    return jnp.clip(jnp.round(TRAJECTORY / step), FEWEST, MOST).astype(jnp.int32)


def _whitened() -> Sampler:
    def position(latents: Whitened) -> Point:
        return latents.whitening.apply(latents.u)

    def enter(x: Point, typical: Point, problem: Problem) -> Whitened:
        whitening = fisher_whitening(problem.priors, typical, problem.expert, problem.batch)
        return Whitened(whitening.solve(x), whitening)

    def recipe(steps: dict[str, Scalar], problem: Problem) -> Update:
        def density(latents: Whitened) -> Scalar:
            return log_joint(position(latents), problem)

        step = steps["weights"]
        kernel = geodesic_hmc(step, trajectory_steps(step), sphere=False)
        return sweep(weights=within(kernel, "u", density))

    def collect(latents: Whitened, problem: Problem) -> dict[str, Any]:
        x = position(latents)
        return _draw(weights_of(problem.priors, x, problem.expert), problem)

    return Sampler(enter, recipe, collect, {"weights": 0.1}, {"weights": 0.8})


def _polar_weights(gate: Components, experts: Components, problem: Problem) -> Weights:
    vectors = experts.vectors
    return Weights(gate.vectors, vectors.reshape(len(vectors), problem.expert.n_outputs, -1))


def _log_polar(gate: Components, experts: Components, problem: Problem) -> Scalar:
    priors = problem.priors
    prior = priors.gate.log_prob_polar(gate) + priors.experts.log_prob_polar(experts)
    return prior + log_lik(problem.expert, _polar_weights(gate, experts, problem), problem.batch)


def _components_of(x: Point, problem: Problem) -> tuple[Components, Components]:
    weights = weights_of(problem.priors, x, problem.expert)
    experts = weights.experts.reshape(weights.experts.shape[0], -1)
    return Components.from_vectors(weights.gate), Components.from_vectors(experts)


def _geodesic() -> Sampler:
    names = Polar._fields
    on_sphere = {name: not name.endswith("length") for name in names}

    def parts(latents: Polar) -> tuple[Components, Components]:
        gate = Components(latents.gate, jnp.exp(latents.gate_log_length))
        return gate, Components(latents.experts, jnp.exp(latents.experts_log_length))

    def enter(x: Point, typical: Point, problem: Problem) -> Polar:
        gate, experts = _components_of(x, problem)
        lengths = (jnp.log(gate.magnitudes), jnp.log(experts.magnitudes))
        return Polar(gate.directions, lengths[0], experts.directions, lengths[1])

    def recipe(steps: dict[str, Scalar], problem: Problem) -> Update:
        def density(latents: Polar) -> Scalar:
            jacobian = jnp.sum(latents.gate_log_length) + jnp.sum(latents.experts_log_length)
            return _log_polar(*parts(latents), problem) + jacobian

        kernel = geodesic_hmc(steps["weights"], GEODESIC_STEPS, sphere=on_sphere)
        return sweep(weights=within(kernel, names, density))

    def collect(latents: Polar, problem: Problem) -> dict[str, Any]:
        return _draw(_polar_weights(*parts(latents), problem), problem)

    return Sampler(enter, recipe, collect, {"weights": 0.02}, {"weights": 0.8})


def _metropolis() -> Sampler:
    walks = {
        "gate_directions": ("gate.directions", vmf_walk),
        "gate_lengths": ("gate.magnitudes", positive_walk),
        "experts_directions": ("experts.directions", vmf_walk),
        "experts_lengths": ("experts.magnitudes", positive_walk),
    }

    def enter(x: Point, typical: Point, problem: Problem) -> Walk:
        return Walk(*_components_of(x, problem))

    def recipe(steps: dict[str, Scalar], problem: Problem) -> Update:
        def density(latents: Walk) -> Scalar:
            return _log_polar(*latents, problem)

        moves = {
            name: within(each_row(walk(steps[name])), block, density)
            for name, (block, walk) in walks.items()
        }
        return sweep(**moves)

    def collect(latents: Walk, problem: Problem) -> dict[str, Any]:
        return _draw(_polar_weights(*latents, problem), problem)

    # 0.234 for many coordinates, 0.44 for one: the classical optima of random walks
    targets = {name: 0.234 if "directions" in name else 0.44 for name in walks}
    return Sampler(enter, recipe, collect, dict.fromkeys(walks, 0.1), targets)


def _draw(weights: Weights, problem: Problem) -> dict[str, Any]:
    return {"weights": weights, "log_lik": log_lik(problem.expert, weights, problem.batch)}


SAMPLERS = {"hmc": _whitened(), "geodesic": _geodesic(), "metropolis": _metropolis()}
