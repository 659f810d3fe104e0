r"""Calibration of the samplers of a mixture of experts.

Every simulated data set is one chain: the targets are part of the state of the sampler, so that one
compiled program runs all chains in parallel, with the warm-up, the tuning and the whitening of
:func:`wideangle.mixture_of_experts.sampling.fit_mcmc`. Chains start at draws of the prior that are
independent of the truth. (``fit_mcmc`` starts around a regression; calibration does not depend on
the start.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.infer.run import run
from wideangle.mixture_of_experts.classes import experts_for
from wideangle.mixture_of_experts.coordinates import (
    Point,
    Priors,
    Problem,
    Sampler,
    Setting,
    draw_point,
    scales_of,
    weights_of,
)
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import (
    ExpertLikelihood,
    Pair,
    Weights,
    log_lik,
    predict,
    score,
)
from wideangle.mixture_of_experts.quantities import GaussianExperts
from wideangle.mixture_of_experts.sampling import SAMPLERS, fit_many
from wideangle.mixture_of_experts.task import GATE_SCALE, Task
from wideangle.mixture_of_experts.whitened import Typical, Whitening, fisher_whitening
from wideangle.posterior import Draws, evenly
from wideangle.priors.components import (
    MEAN_SCALE,
    ComponentPrior,
    GaussianComponents,
    HierarchicalComponents,
    PolarComponents,
)
from wideangle.priors.dpp import DeterminantalComponents
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.settings import Sampling
from wideangle.types import Array, Key, Scalar
from wideangle_lab.calibration.verdicts import Ranked, Restarted, judge_changes, judge_ranks

N_EXPERTS, N_COLUMNS, N_ROWS = 3, 3, 24
KINDS = {"mutual-angular I": "I", "mutual-angular II": "II", "vmf": "independent"}
PRIORS = ("gaussian", "dpp", *KINDS)
COMMON = "common expert"
"""Prior of deviations from a common expert, with scales in the posterior: the default."""
SHARE = 0.5
"""How far coordinates follow the scales in these runs; a fit tunes this."""
NOISE = 0.5
"""Smallest noise of a quantity if all data sets share one step size: their scales must then be of
the same order. Whole fits, which tune their step sizes separately, use the default."""
N_DRAWS = 31
"""Draws per data set after thinning: 32 ranks in 16 bins."""
LARGE = (500, 11)
"""Rows, and columns with the constant one, of the larger size of whole fits."""
PATIENCE = 1800.0
"""Time limit of a small whole fit, in seconds: longer than the default of two minutes, so that a
record does not depend on the machine. Larger ones have the default, and the record counts how they
ended."""


class Effort(NamedTuple):
    """Lengths of the chains."""

    n_warmup: int
    thin: int
    """Iterations per draw: enough that draws are nearly independent."""
    step: float
    """Step size of the restarts, which do not tune it."""


EFFORTS = {
    "hmc": Effort(300, 16, 0.3),
    "geodesic": Effort(400, 32, 0.1),
    "metropolis": Effort(1500, 200, 0.7),
}
OF_A_QUANTITY = Effort(1200, 64, 0.3)
"""Sharp gates and small noise leave draws alike for longer, and all data sets share one step."""


class Trial(NamedTuple):
    """State of the chain of one simulated data set."""

    state: Any
    targets: Array


class Case(NamedTuple):
    """A prior, a sampler, and the kind of expert."""

    prior: str
    sampler: str
    n_classes: int = 2
    """Number of classes; 0 for experts that predict a quantity."""
    automatic: bool = False
    """Whether ranks are from whole fits, with automatic length."""
    n_rows: int = N_ROWS
    n_columns: int = N_COLUMNS

    @property
    def name(self) -> str:
        """Name with slashes, like a path."""
        classes = {0: ", a quantity", 2: ""}.get(self.n_classes, f", {self.n_classes} classes")
        length = ", automatic length" if self.automatic else ""
        size = "" if self.n_rows == N_ROWS else f", {self.n_rows} rows of {self.n_columns - 1}"
        return f"experts/{self.prior}{classes}/{self.sampler}{length}{size}"

    @property
    def expert(self) -> ExpertLikelihood:
        """Two classes are logistic, more softmax, a quantity is Gaussian."""
        if self.n_classes == 0:
            return GaussianExperts() if self.automatic else GaussianExperts(NOISE)
        return experts_for(self.n_classes)

    @property
    def effort(self) -> Effort:
        """Lengths of its chains."""
        return EFFORTS[self.sampler] if self.n_classes else OF_A_QUANTITY

    @property
    def priors(self) -> Priors:
        """Priors of gate and experts."""
        sizes = self.n_columns, self.n_columns * self.expert.n_outputs
        if self.prior == COMMON:
            means = MEAN_SCALE if self.n_classes else GATE_SCALE, MEAN_SCALE
            return Priors(*map(make_hierarchy, sizes, (False, True), means))
        return Priors(*(make_prior(self.prior, size) for size in sizes))


CASES = [Case(prior, sampler) for prior in PRIORS for sampler in SAMPLERS]
CASES += [Case(COMMON, "hmc"), Case(COMMON, "hmc", 3), Case("mutual-angular I", "hmc", 3)]
CASES += [Case(COMMON, "hmc", 0), Case(COMMON, "hmc", automatic=True)]
CASES += [Case(COMMON, "hmc", 2, True, *LARGE)]


def make_hierarchy(size: int, common: bool, mean_scale: float) -> HierarchicalComponents:
    """The default prior, with a repulsion that matters."""
    directions = MutualAngular(N_EXPERTS, size, jnp.float32(4.0), "I")
    return HierarchicalComponents(N_EXPERTS, size, common, directions, mean_scale=mean_scale)


def make_prior(name: str, size: int) -> ComponentPrior:
    """A prior that matters with 24 rows."""
    if name == "gaussian":
        return GaussianComponents(N_EXPERTS, size, jnp.float32(1.5))
    if name == "dpp":
        return DeterminantalComponents(N_EXPERTS, size, jnp.float32(1.5))
    directions = MutualAngular(N_EXPERTS, size, jnp.float32(4.0), KINDS[name])
    return PolarComponents(directions, jnp.float32(3.0), jnp.float32(1.0))


def make_rows(n_rows: int = N_ROWS, n_columns: int = N_COLUMNS) -> Array:
    """Columns of every data set, the last one constant; only targets are simulated."""
    rows = np.random.default_rng(0).normal(size=(n_rows, n_columns)).astype(np.float32)
    rows[:, -1] = 1.0
    return jnp.asarray(rows)


def problem_of(case: Case, targets: Array) -> Problem:
    """The posterior given one simulated data set."""
    rows = make_rows(case.n_rows, case.n_columns)
    return Problem(case.priors, case.expert, Data(rows, targets, jnp.ones(len(rows), rows.dtype)))


def simulate(key: Key, case: Case) -> tuple[Point, Array]:
    """Weights (in free coordinates) of the prior, and targets of the model."""
    key_point, key_targets = jax.random.split(key)
    x = draw_point(key_point, case.priors)
    weights = weights_of(case.priors, x, case.expert)
    rows = make_rows(case.n_rows, case.n_columns)
    return x, draw_targets(key_targets, case.expert, weights, rows)


def draw_targets(key: Key, expert: ExpertLikelihood, weights: Weights, rows: Array) -> Array:
    """A target of each row from the model."""
    if not isinstance(expert, GaussianExperts):
        chances = predict(expert, weights, rows)
        return jax.random.categorical(key, jnp.log(chances)).astype(jnp.int32)
    key_choice, key_noise = jax.random.split(key)
    gate, scores = score(weights, rows)
    chosen = jax.random.categorical(key_choice, gate.T)[None]
    mean, variance = (
        jnp.take_along_axis(part, chosen, axis=0)[0]
        for part in (scores[:, 0], expert.noise(scores[:, 1]).variance)
    )
    return mean + jnp.sqrt(variance) * jax.random.normal(key_noise, mean.shape, mean.dtype)


def whitening_of(case: Case) -> Whitening:
    """Coordinates of the Hamiltonian sampler; they must not depend on the start of a chain."""
    keys = jax.random.split(jax.random.key(9), 8)
    priors, expert = case.priors, case.expert

    def typical(key: Key) -> Typical:
        x = draw_point(key, priors)
        return Typical(weights_of(priors, x, expert), scales_of(priors, x))

    kind = jnp.int32 if case.n_classes else jnp.float32
    some = problem_of(case, jnp.arange(case.n_rows, dtype=kind) % 2)
    found = fisher_whitening(priors, jax.vmap(typical)(keys), expert, some.data)

    def follow(path: Any, leaf: Array) -> Array:
        return jnp.full_like(leaf, SHARE) if path[-1].name == "share" else leaf

    return jax.tree_util.tree_map_with_path(follow, found)


def quantities(draw: dict[str, Any], problem: Problem) -> dict[str, Scalar]:
    """Quantities that do not depend on the order of the experts."""
    weights: Weights = draw["weights"]
    flat = Weights(weights.gate, weights.experts.reshape(len(weights.experts), -1))
    said = predict(problem.expert, weights, problem.data.rows[:2])[:, -1]
    name = "mean" if isinstance(problem.expert, GaussianExperts) else "probability"
    found = {
        "log-likelihood": log_lik(problem.expert, weights, problem.data),
        **{f"{name}, row {i + 1}": said[i] for i in range(2)},
    }
    if isinstance(problem.expert, GaussianExperts):
        scores = score(weights, problem.data.rows[:2])[1]
        noise = problem.expert.noise(scores[:, 1]).variance
        found["mean log noise, row 1"] = 0.5 * jnp.mean(jnp.log(noise[:, 0]))
        found["least log noise, row 2"] = 0.5 * jnp.min(jnp.log(noise[:, 1]))
    if isinstance(problem.priors.gate, ComponentPrior):
        found["log prior"] = sum(p.log_prob(w) for p, w in zip(problem.priors, flat, strict=True))
    found |= {f"scale, {name}": value for name, value in draw.get("scales", {}).items()}
    for name, vectors in zip(("gate", "experts"), flat, strict=True):
        lengths = jnp.linalg.norm(vectors, axis=-1)
        # A length of a variational draw may underflow to 0, and then has no direction.
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
    if case.automatic:
        share = 4 if case.n_rows == N_ROWS else 16
        return _whole_fits(case, n_sets=max(n_sets // share, 1), seed=seed)
    method, effort = samplers[case.sampler], case.effort
    keys = jax.random.split(jax.random.key(seed), 4)
    points, targets = jax.jit(jax.vmap(partial(simulate, case=case)))(
        jax.random.split(keys[0], n_sets)
    )
    start = jax.jit(jax.vmap(partial(draw_point, priors=case.priors)))(
        jax.random.split(keys[1], n_sets)
    )
    chains = _chains(case, method, targets, keys[2], start)
    found = chains(n_warmup=effort.n_warmup, n_draws=N_DRAWS, thin=effort.thin)

    def of_truth(x: Point, observed: Array) -> dict[str, Scalar]:
        return quantities(_as_draw(case, x), problem_of(case, observed))

    truth = jax.jit(jax.vmap(of_truth))(points, targets)
    return judge_ranks(truth, found.draws.values, seed=seed, acceptance=found.acceptance)


def _whole_fits(case: Case, *, n_sets: int, seed: int) -> Ranked:
    """Ranks among draws of whole fits: starts, both stages of warm-up, automatic length.

    Data sets with one class are omitted, since a classifier cannot be fitted to them. This depends
    only on the observed data, so ranks stay uniform. Quantities are not standardised, since they
    are drawn from a prior with unit scale.
    """
    chains = Sampling(max_time=PATIENCE) if case.n_rows == N_ROWS else Sampling()
    task = Task(case.priors, Pair(False, False), case.expert, chains, verbose=False)
    draw_set = jax.jit(partial(simulate, case=case))

    @jax.jit
    def describe(draw: dict[str, Any], targets: Array) -> dict[str, Scalar]:
        return quantities(draw, problem_of(case, targets))

    points, keys, data = [], [], []
    for key in jax.random.split(jax.random.key(seed), 4 * n_sets):
        key_set, key_fit = jax.random.split(key)
        x, targets = draw_set(key_set)
        if len(points) == n_sets or len(np.unique(targets)) == 1:
            continue
        points.append(x)
        keys.append(key_fit)
        data.append(problem_of(case, targets).data)
    truths, found, lengths, endings = [], [], [], []
    fits = fit_many(keys, [task] * len(keys), data)
    for x, one, fitted in zip(points, data, fits, strict=True):
        draws = fitted.draws
        flat = Draws({name: draws.values[name] for name in ("weights", "scales")}).flat
        chosen = evenly(draws.n_chains * draws.n_draws, N_DRAWS)
        some = [jax.tree.map(lambda leaf, i=i: leaf[i], flat) for i in chosen]
        truths.append(describe(_as_draw(case, x), one.targets))
        found.append(_stacked([describe(draw, one.targets) for draw in some]))
        lengths.append(draws.n_draws)
        endings.append(fitted.notes["ending"]["reason"])
    notes = {"mean_length": float(np.mean(lengths)), "endings": dict(Counter(endings))}
    return judge_ranks(_stacked(truths), _stacked(found), seed=seed, **notes)


def _stacked(parts: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *parts)


def _as_draw(case: Case, x: Point) -> dict[str, Any]:
    priors = case.priors
    return {"weights": weights_of(priors, x, case.expert), "scales": scales_of(priors, x)}


def _chains(
    case: Case, method: Sampler, targets: Array, key: Key, start: Point
) -> Callable[..., Any]:
    whitening = whitening_of(case)

    def setting(observed: Array) -> Setting:
        return Setting(problem_of(case, observed), whitening)

    def recipe(steps: dict[str, Scalar]) -> Callable[..., Any]:
        def update(key: Key, trial: Trial) -> tuple[Trial, Any]:
            state, info = method.recipe(steps, setting(trial.targets))(key, trial.state)
            return trial._replace(state=state), info

        return update

    def collect(trial: Trial) -> dict[str, Any]:
        draw = method.collect(trial.state, setting(trial.targets))
        return quantities(draw, problem_of(case, trial.targets))

    begin = jax.jit(jax.vmap(lambda x, seen: Trial(method.enter(x, setting(seen)), seen)))
    return partial(
        run,
        key,
        recipe,
        begin(start, targets),
        n_chains=len(targets),
        steps=method.steps,
        targets=method.targets,
        collect=collect,
        verbose=False,
    )


def restart(
    case: Case,
    *,
    n_starts: int,
    seed: int,
    n_sweeps: int = 4,
    samplers: dict[str, Sampler] = SAMPLERS,
) -> Restarted:
    """Exact restarts: sweeps and new targets must preserve the distribution of exact draws."""
    method = samplers[case.sampler]
    expert, whitening = case.expert, whitening_of(case)
    steps = {name: jnp.float32(case.effort.step) for name in method.steps}

    def sweep(carry: tuple[Any, Array], turn: Any) -> tuple[tuple[Any, Array], Scalar]:
        (state, targets), (count, key) = carry, turn
        key_move, key_targets = jax.random.split(key)
        setting = Setting(problem_of(case, targets), whitening)
        state, infos = method.recipe(steps | {"iteration": count}, setting)(key_move, state)
        weights = method.collect(state, setting)["weights"]
        fresh = draw_targets(key_targets, expert, weights, setting.problem.data.rows)
        accepted = jnp.mean(jnp.stack([info.acceptance for info in infos.values()]))
        return (state, fresh), accepted

    def one(key: Key) -> tuple[dict[str, Scalar], dict[str, Scalar], Scalar]:
        key_truth, key_sweeps = jax.random.split(key)
        x, targets = simulate(key_truth, case)
        problem = problem_of(case, targets)
        state = method.enter(x, Setting(problem, whitening))
        before = quantities(_as_draw(case, x), problem)
        turns = jnp.arange(1, n_sweeps + 1), jax.random.split(key_sweeps, n_sweeps)
        (state, targets), accepted = jax.lax.scan(sweep, (state, targets), turns)
        problem = problem_of(case, targets)
        after = quantities(method.collect(state, Setting(problem, whitening)), problem)
        return before, after, jnp.mean(accepted)

    keys = jax.random.split(jax.random.key(seed), n_starts)
    before, after, accepted = jax.jit(jax.vmap(one))(keys)
    return judge_changes(before, after, {"acceptance": float(np.mean(accepted))})
