r"""Calibration of the samplers of a mixture of experts.

Every simulated data set is one chain: the targets travel with the state of the sampler, so that
one compiled program runs all of them side by side, with the warm-up, the tuning and the whitening
of :func:`wideangle.mixture_of_experts.sampling.fit_mcmc`. Chains start at draws of the prior that
know nothing of the truth. (``fit_mcmc`` starts at modes; where a chain starts is no part of the
claim.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.infer.run import run
from wideangle.mixture_of_experts.coordinates import (
    Point,
    Priors,
    Problem,
    draw_point,
    fisher_whitening,
    weights_of,
)
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import (
    ExpertLikelihood,
    LogisticExperts,
    SoftmaxExperts,
    Weights,
    log_lik,
    predict,
)
from wideangle.mixture_of_experts.sampling import SAMPLERS, Sampler, Whitened, point_of
from wideangle.priors.components import ComponentPrior, GaussianComponents, PolarComponents
from wideangle.priors.dpp import DeterminantalComponents
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.types import Array, Key, Scalar
from wideangle_lab.calibration.verdicts import Ranked, Restarted, judge_changes, judge_ranks

N_EXPERTS, N_COLUMNS, N_ROWS = 3, 3, 24
KINDS = {"mutual-angular I": "I", "mutual-angular II": "II", "vmf": "independent"}
PRIORS = ("gaussian", "dpp", *KINDS)
N_DRAWS = 31
"""Draws per data set after thinning: 32 ranks in 16 bins."""


class Effort(NamedTuple):
    """How long the chains are."""

    n_warmup: int
    thin: int
    """Iterations per draw: enough that draws are nearly independent."""
    step: float
    """Of the restarts, which do not tune."""


EFFORTS = {
    "hmc": Effort(400, 24, 0.15),
    "geodesic": Effort(400, 32, 0.1),
    "metropolis": Effort(1500, 200, 0.7),
}


class Trial(NamedTuple):
    """State of the chain of one simulated data set."""

    state: Any
    targets: Array


class Case(NamedTuple):
    """A prior, a sampler, and the kind of expert."""

    prior: str
    sampler: str
    n_classes: int = 2

    @property
    def name(self) -> str:
        """Folder-like name."""
        classes = "" if self.n_classes == 2 else f", {self.n_classes} classes"  # noqa: PLR2004
        return f"experts/{self.prior}{classes}/{self.sampler}"

    @property
    def expert(self) -> ExpertLikelihood:
        """Two classes are logistic, more softmax."""
        two = self.n_classes == 2  # noqa: PLR2004
        return LogisticExperts() if two else SoftmaxExperts(self.n_classes)

    @property
    def priors(self) -> Priors:
        """Of gate and experts."""
        sizes = N_COLUMNS, N_COLUMNS * self.expert.n_outputs
        return Priors(*(make_prior(self.prior, size) for size in sizes))


CASES = [Case(prior, sampler) for prior in PRIORS for sampler in SAMPLERS]
CASES.append(Case("mutual-angular I", "hmc", 3))


def make_prior(name: str, size: int) -> ComponentPrior:
    """A prior that matters beside 24 rows."""
    if name == "gaussian":
        return GaussianComponents(N_EXPERTS, size, jnp.float32(1.5))
    if name == "dpp":
        return DeterminantalComponents(N_EXPERTS, size, jnp.float32(1.5))
    directions = MutualAngular(N_EXPERTS, size, jnp.float32(4.0), KINDS[name])
    return PolarComponents(directions, jnp.float32(3.0), jnp.float32(1.0))


def make_rows(n_rows: int = N_ROWS) -> Array:
    """Columns of every data set, the last one constant; targets alone are simulated."""
    rows = np.random.default_rng(0).normal(size=(n_rows, N_COLUMNS)).astype(np.float32)
    rows[:, -1] = 1.0
    return jnp.asarray(rows)


def problem_of(case: Case, targets: Array) -> Problem:
    """The posterior given one simulated data set."""
    rows = make_rows()
    return Problem(case.priors, case.expert, Data(rows, targets, jnp.ones(len(rows), rows.dtype)))


def simulate(key: Key, case: Case) -> tuple[Point, Array]:
    """Weights (in free coordinates) of the prior, and targets of the model."""
    key_point, key_length, key_targets = jax.random.split(key, 3)
    priors = case.priors
    x = draw_point(key_point, priors)
    keys = jax.random.split(key_length)
    x = Point(*map(_draw_free_length, keys, priors, x))
    chances = predict(case.expert, weights_of(priors, x, case.expert), make_rows())
    return x, jax.random.categorical(key_targets, jnp.log(chances)).astype(jnp.int32)


def _draw_free_length(key: Key, prior: ComponentPrior, x: Array) -> Array:
    """The length that carries a direction in free coordinates means nothing; it is drawn as chi."""
    if not isinstance(prior, PolarComponents):
        return x
    gauss = jax.random.normal(key, (N_EXPERTS, prior.dim))
    factor = jnp.linalg.norm(gauss, axis=-1, keepdims=True) / jnp.sqrt(1.0 * prior.dim)
    return x.at[:, :-1].multiply(factor)


def quantities(weights: Weights, problem: Problem) -> dict[str, Scalar]:
    """Numbers that do not depend on how the experts are numbered."""
    flat = Weights(weights.gate, weights.experts.reshape(len(weights.experts), -1))
    chances = predict(problem.expert, weights, problem.data.rows[:2])
    found = {
        "log-likelihood": log_lik(problem.expert, weights, problem.data),
        "log prior": sum(p.log_prob(w) for p, w in zip(problem.priors, flat, strict=True)),
        "probability, row 1": chances[0, 1],
        "probability, row 2": chances[1, 1],
    }
    for name, vectors in zip(("gate", "experts"), flat, strict=True):
        lengths = jnp.linalg.norm(vectors, axis=-1)
        # A length of a variational draw may underflow to 0: it has no direction.
        units = vectors / jnp.where(lengths > 0, lengths, 1.0)[:, None]
        cosines = (units @ units.T)[jnp.triu_indices(N_EXPERTS, 1)]
        found[f"mean length, {name}"] = jnp.mean(lengths)
        found[f"shortest, {name}"] = jnp.min(lengths)
        found[f"mean cosine, {name}"] = jnp.mean(cosines)
        found[f"largest cosine, {name}"] = jnp.max(cosines)
    return found


def calibrate(
    case: Case, *, n_sets: int, seed: int, samplers: dict[str, Sampler] = SAMPLERS
) -> Ranked:
    """Ranks of the truth among draws of the sampler, for many simulated data sets."""
    method, effort = samplers[case.sampler], EFFORTS[case.sampler]
    keys = jax.random.split(jax.random.key(seed), 4)
    points, targets = jax.jit(jax.vmap(partial(simulate, case=case)))(
        jax.random.split(keys[0], n_sets)
    )
    start = jax.jit(jax.vmap(partial(draw_point, priors=case.priors)))(
        jax.random.split(keys[1], n_sets)
    )
    stage = partial(_stage, case, method, targets)
    first = stage(keys[2], start, n_warmup=effort.n_warmup // 2, n_draws=1)
    last = first.draws.values["weights"]
    reached = jax.tree.map(lambda leaf: jnp.asarray(leaf[:, -1]), last)
    start = jax.jit(jax.vmap(partial(point_of, case.priors)))(reached)
    second = stage(keys[3], start, n_warmup=effort.n_warmup // 2, n_draws=N_DRAWS, thin=effort.thin)

    def of_truth(x: Point, observed: Array) -> dict[str, Scalar]:
        weights = weights_of(case.priors, x, case.expert)
        return quantities(weights, problem_of(case, observed))

    truth = jax.jit(jax.vmap(of_truth))(points, targets)
    draws = second.draws.values["quantities"]
    return judge_ranks(truth, draws, seed=seed, acceptance=second.acceptance)


def _stage(
    case: Case, method: Sampler, targets: Array, key: Key, start: Point, **options: Any
) -> Any:
    def enter(x: Point, observed: Array) -> Trial:
        typical = jax.tree.map(lambda leaf: leaf[None], x)
        return Trial(method.enter(x, typical, problem_of(case, observed)), observed)

    def recipe(steps: dict[str, Scalar]) -> Callable[..., Any]:
        def update(key: Key, trial: Trial) -> tuple[Trial, Any]:
            state, info = method.recipe(steps, problem_of(case, trial.targets))(key, trial.state)
            return trial._replace(state=state), info

        return update

    def collect(trial: Trial) -> dict[str, Any]:
        problem = problem_of(case, trial.targets)
        weights = method.collect(trial.state, problem)["weights"]
        return {"weights": weights, "quantities": quantities(weights, problem)}

    return run(
        key,
        recipe,
        jax.jit(jax.vmap(enter))(start, targets),
        n_chains=len(targets),
        steps=method.steps,
        targets=method.targets,
        collect=collect,
        progress=False,
        **options,
    )


def restart(
    case: Case,
    *,
    n_starts: int,
    seed: int,
    n_sweeps: int = 4,
    samplers: dict[str, Sampler] = SAMPLERS,
) -> Restarted:
    """Exact restarts: exact draws in, sweeps and fresh targets, the same distribution out."""
    method = samplers[case.sampler]
    priors, expert = case.priors, case.expert
    reference = draw_point(jax.random.key(9), priors)  # a map that does not depend on the start
    some = problem_of(case, jnp.arange(N_ROWS, dtype=jnp.int32) % 2)
    typical = jax.tree.map(lambda leaf: leaf[None], reference)
    whitening = fisher_whitening(priors, typical, expert, some.data)
    steps = {name: jnp.float32(EFFORTS[case.sampler].step) for name in method.steps}

    def sweep(carry: tuple[Any, Array], key: Key) -> tuple[tuple[Any, Array], Scalar]:
        state, targets = carry
        key_move, key_targets = jax.random.split(key)
        problem = problem_of(case, targets)
        state, infos = method.recipe(steps, problem)(key_move, state)
        weights = method.collect(state, problem)["weights"]
        chances = predict(expert, weights, problem.data.rows)
        fresh = jax.random.categorical(key_targets, jnp.log(chances)).astype(jnp.int32)
        accepted = jnp.mean(jnp.stack([info.acceptance for info in infos.values()]))
        return (state, fresh), accepted

    def one(key: Key) -> tuple[dict[str, Scalar], dict[str, Scalar], Scalar]:
        key_truth, key_sweeps = jax.random.split(key)
        x, targets = simulate(key_truth, case)
        problem = problem_of(case, targets)
        if case.sampler == "hmc":
            state = Whitened(whitening.solve(x), whitening)
        else:
            state = method.enter(x, reference, problem)  # these need no typical points
        before = quantities(weights_of(priors, x, expert), problem)
        keys = jax.random.split(key_sweeps, n_sweeps)
        (state, targets), accepted = jax.lax.scan(sweep, (state, targets), keys)
        problem = problem_of(case, targets)
        after = quantities(method.collect(state, problem)["weights"], problem)
        return before, after, jnp.mean(accepted)

    keys = jax.random.split(jax.random.key(seed), n_starts)
    before, after, accepted = jax.jit(jax.vmap(one))(keys)
    return judge_changes(before, after, {"acceptance": float(np.mean(accepted))})
