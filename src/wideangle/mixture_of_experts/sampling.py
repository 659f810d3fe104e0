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
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
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
    flat_experts,
    from_vectors,
    log_joint,
    weights_of,
)
from wideangle.mixture_of_experts.data import Data, for_sampling, shard
from wideangle.mixture_of_experts.likelihood import Pair, Weights, log_lik
from wideangle.mixture_of_experts.modes import climb
from wideangle.mixture_of_experts.sparse import on_host
from wideangle.mixture_of_experts.task import Fitted, Task, checkpoint_of
from wideangle.posterior import Draws
from wideangle.priors.learning import update_prior
from wideangle.sharding import current_mesh
from wideangle.storage import Checkpoint
from wideangle.types import Array, Components, Key, Scalar

STEPS = 400
"""Steps before and after the first draw, where nothing else is asked for."""
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


Walk: TypeAlias = Pair[Components]
"""State of the random walk."""


class Sampler(NamedTuple):
    """What one sampler needs: how to start, move, and read off the weights."""

    enter: Callable[[Point, Point, Problem], Any]
    """Where to begin, typical points (leading axis), and some of the rows only, dense ones."""
    recipe: Callable[[dict[str, Scalar], Problem], Update]
    collect: Callable[[Any, Problem], dict[str, Any]]
    steps: dict[str, float]
    targets: dict[str, float]


def fit(key: Key, task: Task, data: Data) -> Fitted:
    """Draws of chains in the posterior."""
    rows = for_sampling(data, task.priors.gate.n_components)
    return fit_mcmc(key, task, rows, checkpoint=checkpoint_of(key, task, data))


def fit_mcmc(
    key: Key,
    task: Task,
    data: Data,
    *,
    start: Point | None = None,
    checkpoint: Checkpoint | None = None,
) -> Fitted:
    """Run the chains: starts by maximisation, two stages of warm-up, draws.

    The first stage goes from the mode to typical points; there the coordinates are whitened anew
    and the priors to learn are updated (the paper's EM, one M step). The second stage tunes the
    step for the draws, each the last of ``thin`` steps. Only the second is saved to ``checkpoint``:
    the first depends on the key alone and is done again, to the same bits.
    """
    chosen, problem = task.inference, Problem(task.priors, task.expert, data)
    n_warmup = STEPS if chosen.n_warmup is None else chosen.n_warmup
    key_start, key_first, key_second = jax.random.split(key, 3)
    if start is None:
        modes = climb(key_start, problem, n_starts=TRIES * chosen.n_chains, progress=task.progress)
        _stop_if(modes.interrupted)
        start = jax.tree.map(lambda leaf: leaf[: chosen.n_chains], modes.points)
    stage = partial(
        _stage,
        SAMPLERS[chosen.kernel or "hmc"],
        placed=_placed(data),
        n_chains=chosen.n_chains,
        progress=task.progress,
    )
    n_first = n_warmup // 2
    typical = jax.tree.map(lambda leaf: leaf[:, None], start)
    if n_first:
        first = stage(
            key_first, start, typical, problem, n_warmup=n_first, n_draws=max(n_first // 2, 1)
        )
        _stop_if(first.interrupted)
        weights = first.draws.values["weights"]
        if any(task.learn):
            problem = problem._replace(priors=learn_priors(problem.priors, weights, task.learn))
        typical = _points_of(problem.priors, jax.tree.map(_spread_out, weights))
        start = jax.tree.map(lambda leaf: leaf[:, -1], typical)
    stage = partial(stage, key_second, start, typical, problem)
    counts = {"n_warmup": n_warmup - n_first, "n_draws": chosen.n_draws or STEPS}
    counts["thin"] = chosen.thin or 1
    if checkpoint is None:
        run = stage(**counts)
        draws = run.draws
    else:
        run, draws = _saved(stage, checkpoint, counts)
    _stop_if(draws.n_draws == 0)
    notes = {"acceptance": run.acceptance, "interrupted": run.interrupted}
    return Fitted(draws, problem.priors, notes)


def _saved(
    stage: Callable[..., Run], checkpoint: Checkpoint, counts: dict[str, int]
) -> tuple[Run, Draws]:
    """A stage that is saved while it lasts, or taken up; a finished one needs no checkpoint."""
    nothing = stage(n_warmup=0, n_draws=0)
    state, earlier = checkpoint.load((nothing.state, nothing.draws)) or (None, nothing.draws)
    with checkpoint:
        run = stage(**counts, on_chunk=checkpoint, resume=state)
    if not run.interrupted:
        checkpoint.remove(may_fail=True)
    return run, earlier.followed_by(run.draws)


def _placed(data: Data) -> Data:
    """Data as compiled programs are given them: sparse rows stay on the host."""
    if sp.issparse(data.rows):
        return on_host(data)
    mesh = current_mesh()
    return data if mesh is None else shard(data, mesh)


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
    placed: Data,
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
        data=problem._replace(data=placed),
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
    data = problem.data
    total: int = data.rows.shape[0]
    sparse = sp.issparse(data.rows)
    if total <= n_rows and not sparse:
        return problem
    chosen: Any = np.arange(total)
    if total > n_rows:
        chosen = jax.random.choice(key, total, (n_rows,), replace=False)
    if sparse:
        data = Data(*(leaf[np.asarray(chosen)] for leaf in data))
        part = Data(*map(jnp.asarray, data._replace(rows=data.rows.toarray())))
    else:
        part = Data(*(leaf[chosen] for leaf in data))
    scale = jnp.sum(problem.data.weights) / jnp.sum(part.weights)
    return problem._replace(data=part._replace(weights=part.weights * scale))


def learn_priors(priors: Priors, weights: Weights, learn: Pair[bool]) -> Priors:
    """The M step from draws of the weights, for the priors to learn, which are polar."""
    vectors = jnp.asarray(weights.gate), flat_experts(jnp.asarray(weights.experts))
    return Pair(
        *(
            update_prior(prior, Components.from_vectors(draws)) if wanted else prior
            for prior, draws, wanted in zip(priors, vectors, learn, strict=True)
        )
    )


@jax.jit
def _points_of(priors: Priors, weights: Weights) -> Point:
    return jax.vmap(jax.vmap(partial(point_of, priors)))(weights)


def point_of(priors: Priors, weights: Weights) -> Point:
    """Free coordinates of weights."""
    vectors = weights.gate, flat_experts(weights.experts)
    return Pair(*map(from_vectors, priors, vectors))


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
        whitening = fisher_whitening(problem.priors, typical, problem.expert, problem.data)
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


def _polar_weights(components: Pair[Components], problem: Problem) -> Weights:
    gate, experts = (one.vectors for one in components)
    return Pair(gate, experts.reshape(len(experts), problem.expert.n_outputs, -1))


def _log_polar(components: Pair[Components], problem: Problem) -> Scalar:
    gate, experts = map(lambda prior, one: prior.log_prob_polar(one), problem.priors, components)
    weights = _polar_weights(components, problem)
    return gate + experts + log_lik(problem.expert, weights, problem.data)


def _components_of(x: Point, problem: Problem) -> Pair[Components]:
    weights = weights_of(problem.priors, x, problem.expert)
    vectors = weights.gate, flat_experts(weights.experts)
    return Pair(*map(Components.from_vectors, vectors))


def _geodesic() -> Sampler:
    names = Polar._fields
    on_sphere = {name: not name.endswith("length") for name in names}

    def parts(latents: Polar) -> Pair[Components]:
        gate = Components(latents.gate, jnp.exp(latents.gate_log_length))
        return Pair(gate, Components(latents.experts, jnp.exp(latents.experts_log_length)))

    def enter(x: Point, typical: Point, problem: Problem) -> Polar:
        gate, experts = _components_of(x, problem)
        lengths = (jnp.log(gate.magnitudes), jnp.log(experts.magnitudes))
        return Polar(gate.directions, lengths[0], experts.directions, lengths[1])

    def recipe(steps: dict[str, Scalar], problem: Problem) -> Update:
        def density(latents: Polar) -> Scalar:
            jacobian = jnp.sum(latents.gate_log_length) + jnp.sum(latents.experts_log_length)
            return _log_polar(parts(latents), problem) + jacobian

        kernel = geodesic_hmc(steps["weights"], GEODESIC_STEPS, sphere=on_sphere)
        return sweep(weights=within(kernel, names, density))

    def collect(latents: Polar, problem: Problem) -> dict[str, Any]:
        return _draw(_polar_weights(parts(latents), problem), problem)

    return Sampler(enter, recipe, collect, {"weights": 0.02}, {"weights": 0.8})


def _metropolis() -> Sampler:
    walks = {
        "gate_directions": ("gate.directions", vmf_walk),
        "gate_lengths": ("gate.magnitudes", positive_walk),
        "experts_directions": ("experts.directions", vmf_walk),
        "experts_lengths": ("experts.magnitudes", positive_walk),
    }

    def enter(x: Point, typical: Point, problem: Problem) -> Walk:
        return _components_of(x, problem)

    def recipe(steps: dict[str, Scalar], problem: Problem) -> Update:
        def density(latents: Walk) -> Scalar:
            return _log_polar(latents, problem)

        moves = {
            name: within(each_row(walk(steps[name])), block, density)
            for name, (block, walk) in walks.items()
        }
        return sweep(**moves)

    def collect(latents: Walk, problem: Problem) -> dict[str, Any]:
        return _draw(_polar_weights(latents, problem), problem)

    # 0.234 for many coordinates, 0.44 for one: the classical optima of random walks
    targets = {name: 0.234 if "directions" in name else 0.44 for name in walks}
    return Sampler(enter, recipe, collect, dict.fromkeys(walks, 0.1), targets)


def _draw(weights: Weights, problem: Problem) -> dict[str, Any]:
    return {"weights": weights, "log_lik": log_lik(problem.expert, weights, problem.data)}


SAMPLERS = {"hmc": _whitened(), "geodesic": _geodesic(), "metropolis": _metropolis()}
