"""Modes of the posterior of a mixture of experts: point estimates, and starts for samplers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from scipy.special import xlogy

from wideangle.checks import warn
from wideangle.infer.ascent import Minibatches, ascend, begin
from wideangle.infer.program import jit_quickly
from wideangle.mixture_of_experts.coordinates import (
    Point,
    Priors,
    Problem,
    draw_point,
    log_joint,
    log_volume,
    to_vectors,
    weights_of,
)
from wideangle.mixture_of_experts.data import Data, sample, seed_of
from wideangle.mixture_of_experts.likelihood import ExpertLikelihood, Pair, Weights, log_lik
from wideangle.mixture_of_experts.task import Fitted, Regulariser, Task
from wideangle.mixture_of_experts.variational import approximations
from wideangle.posterior import Draws
from wideangle.priors.components import HierarchicalComponents
from wideangle.settings import Variational
from wideangle.types import Array, Key, Scalar

BATCH_ROWS, N_STEPS, RATE = 256, 4000, 0.1
"""Small minibatches are cheap, and their noise leads out of poor local modes."""
SCALE_STARTS, SCALE_TEMPERATURE = 4, 0.3
"""Variational fits that set the scales, and their temperature: at 1, independent factors drop
experts that few rows support (two moons end with one expert)."""
JUDGE_ROWS = 4096
"""Rows on which modes are compared."""
SHRINKAGE = (1.0, 0.5, 0.25, 0.02)
"""Factors of the scales of gate and deviations that cross-validation chooses from; the last leaves
a single common expert."""
FOLDS, FOLD_STARTS, FOLD_STEPS, FOLD_ROWS = 3, 2, 2000, 5000
"""Folds, starts and steps of a fit, and most rows for cross-validation; more rows are rarely
overfitted."""
USELESS = 0.01
"""Largest loss in nats per held-out row, relative to a constant guess, without a warning."""


class Runs(NamedTuple):
    """Ascents that share minibatches and one program; leading axis of all leaves: run."""

    points: Point
    priors: Priors
    held_out: Any
    """The fold (row number modulo ``FOLDS``) whose rows do not count; -1 if all do."""


class Modes(NamedTuple):
    """Points reached, best first (leading axis), and the log posterior there."""

    points: Point
    values: np.ndarray
    interrupted: bool


def fit(key: Key, task: Task, data: Data) -> Fitted:
    """The most probable weights, from the best of several starts.

    Scales of a hierarchical prior are not maximised with them: the joint maximum is at scales so
    large that the prior has no effect. They come from a variational fit, and are reduced if that
    predicts held-out rows better.
    """
    priors, held_out = task.priors, None
    if any(isinstance(p, HierarchicalComponents) and p.n_scales for p in priors):
        inference = Variational(temperature=SCALE_TEMPERATURE, n_starts=SCALE_STARTS)
        fits = approximations(key, task._replace(inference=inference), data, rough=True)
        best = max(fits, key=lambda fit: fit.elbo)
        priors = with_scales(priors, best.scales)
        if best.interrupted:
            return _fitted(best.mean, priors, {"interrupted": True})
        if _free(task.priors) and FOLDS <= data.rows.shape[0] <= FOLD_ROWS:
            priors, held_out = _shrunk(key, task, data, best.scales)
            _warn_if_useless(held_out, data)
    modes = climb(
        key,
        Problem(priors, task.expert, data),
        n_starts=task.inference.n_starts,
        n_passes=task.inference.n_passes,
        regulariser=task.regulariser,
        verbose=task.verbose,
    )
    best = jax.tree.map(lambda leaf: leaf[0], modes.points)
    weights = jax.jit(weights_of, static_argnums=2)(priors, best, task.expert)
    notes = {"log_posterior": modes.values, "interrupted": modes.interrupted}
    if held_out is not None:
        notes["held_out_log_lik"] = held_out
    return _fitted(weights, priors, notes)


def _fitted(weights: Weights, priors: Priors, notes: dict[str, Any]) -> Fitted:
    """One draw, the weights themselves."""
    draws = jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], weights)
    return Fitted(Draws({"weights": draws}), priors, notes)


def with_scales(priors: Priors, scales: Mapping[str, float]) -> Priors:
    """Priors with these scales of the gate, the experts and the common expert, unless fixed."""
    found = []
    for side, prior in zip(Pair._fields, priors, strict=True):
        one = prior
        if isinstance(prior, HierarchicalComponents):
            one = prior.fixed(np.float32(scales[side]), np.float32(scales.get("common", 1.0)))
        found.append(one)
    return Pair(*found)


def _free(priors: Priors) -> list[str]:
    """Which of gate and experts have a scale that is not fixed."""
    pairs = zip(Pair._fields, priors, strict=True)
    return [s for s, p in pairs if isinstance(p, HierarchicalComponents) and p.scale is None]


def _shrunk(key: Key, task: Task, data: Data, scales: Mapping[str, float]) -> tuple[Priors, float]:
    """The prior that predicts best in cross-validation, and its log-likelihood per held-out row.

    As many fits at once as there will be starts of the last one: all share one program.
    """
    n_starts = task.inference.n_starts
    candidates = []
    for factor in SHRINKAGE:
        smaller = {side: scales[side] * factor for side in _free(task.priors)}
        candidates.append(with_scales(task.priors, {**scales, **smaller}))
    key_draw, key_climb = jax.random.split(key)
    points = _draw_points(key_draw, candidates[0], n_starts)
    # Rows are distinct and in hash order (``data.merged``), so folds are random.
    shape = len(candidates), FOLDS, min(FOLD_STARTS, n_starts)
    places = np.stack([axis.ravel() for axis in np.indices(shape)])
    values, others = np.empty((2, *shape))
    for chosen in np.split(places, range(n_starts, places.shape[1], n_starts), axis=1):
        which, held_out, start = np.pad(chosen, [(0, 0), (0, n_starts - chosen.shape[1])], "edge")
        runs = Runs(_picked(points, start), _stacked([candidates[i] for i in which]), held_out)
        problem = Problem(None, task.expert, data)  # pyright: ignore[reportArgumentType]
        reached = _climbed(key_climb, runs, problem, task.regulariser, n_steps=FOLD_STEPS)
        for found, value in zip((values, others), reached[1:3], strict=True):
            found[tuple(chosen)] = value[: chosen.shape[1]]
    best = np.nan_to_num(values, nan=-np.inf).argmax(axis=2)[..., None]
    totals = np.take_along_axis(others, best, axis=2).sum(axis=(1, 2)) / np.sum(data.weights)
    chosen = int(np.argmax(totals))
    return candidates[chosen], float(totals[chosen])


def _stacked(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def _picked(tree: Any, places: np.ndarray) -> Any:
    return jax.tree.map(lambda leaf: np.asarray(leaf)[places], tree)


def _warn_if_useless(held_out: float, data: Data) -> None:
    """Warn if held-out rows are predicted worse than by a guess that ignores the columns."""
    targets, share = np.asarray(data.targets), np.asarray(data.weights, np.float64)
    if np.all(targets == targets[0]):
        return  # a guess would be certain, which no fit to finitely many rows should be
    share = share / share.sum()
    if targets.dtype.kind in "iu":
        guess, counts = "class frequencies", np.bincount(targets, share)
        known = float(np.sum(xlogy(counts, counts)))
    else:
        guess, mean = "the mean and spread of y", share @ targets
        variance = max(share @ (targets - mean) ** 2, 1e-12)
        known = -0.5 * float(np.log(2.0 * np.pi * variance) + 1.0)
    if held_out < known - USELESS:
        warn(
            f"In cross-validation the most probable weights predict worse than {guess} alone "
            f"({held_out:.2f} against {known:.2f} nats a row): use inference 'mcmc', which "
            "averages over weights, or fewer experts or columns."
        )


def climb(
    key: Key,
    problem: Problem,
    *,
    n_starts: int,
    n_passes: int | None = None,
    regulariser: Regulariser | None = None,
    verbose: bool | None = None,
) -> Modes:
    """Maximise the log posterior from standard normal coordinates, all starts at once.

    These nearly follow the prior (see ``mixture_of_experts/coordinates.py``) without compiling a
    sampler.
    """
    key_draw, key_climb = jax.random.split(key)
    points = _draw_points(key_draw, problem.priors, n_starts)
    runs = Runs(points, _stacked([problem.priors] * n_starts), np.full(n_starts, -1))
    points, values, _, interrupted = _climbed(
        key_climb, runs, problem, regulariser, n_passes=n_passes, verbose=verbose
    )
    order = np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable")
    return Modes(_picked(points, order), values[order], interrupted)


def _climbed(
    key: Key,
    runs: Runs,
    problem: Problem,
    regulariser: Regulariser | None,
    *,
    n_steps: int = N_STEPS,
    n_passes: int | None = None,
    verbose: bool | None = False,
) -> tuple[Point, np.ndarray, np.ndarray, bool]:
    """Points reached, the log posterior there, the log-likelihood of the fold that was held out."""
    key_climb, key_judge = jax.random.split(key)
    data = _with_folds(problem.data)
    some = sample(seed_of(key_judge), data, max(JUDGE_ROWS, FOLD_ROWS))
    if data.rows.shape[0] <= BATCH_ROWS:
        data = some  # all rows, padded: many sizes share one program
    batches = Minibatches(seed_of(key_climb), *data, BATCH_ROWS)
    n_steps = n_passes * batches.per_pass if n_passes else n_steps
    constants = (runs.priors, runs.held_out, regulariser, np.float32(max(data.weights.sum(), 1.0)))
    objective = _ModeObjective(problem.expert)
    ascent = ascend(
        key_climb,
        objective,
        begin(runs.points),
        batches,
        constants,
        rates=jax.tree.map(lambda _: RATE, runs.points),
        n_steps=n_steps,
        verbose=verbose,
    )
    points = ascent.state.position
    values, others = map(np.asarray, _judge(objective, points, some, constants))
    return points, values, others, ascent.interrupted


def _with_folds(data: Data) -> Data:
    """The fold of each row as a last column."""
    folds = (np.arange(data.rows.shape[0]) % FOLDS).astype(np.float32)[:, None]
    if sp.issparse(data.rows):
        rows = sp.hstack([data.rows, folds], format="csr")
    else:
        rows = np.concatenate([np.asarray(data.rows), folds], axis=1)
    return Data(rows, np.asarray(data.targets), np.asarray(data.weights))


@dataclass(frozen=True)
class _ModeObjective:
    """Log posterior (with Omega) per unit of row weight, for several points at once."""

    expert: ExpertLikelihood

    def __call__(self, key: Any, points: Point, batch: Any, constants: Any) -> Array:
        """Values of all points on one minibatch."""
        priors, held_out, regulariser, total = constants
        training, _ = self._split(Data(*batch), held_out)

        def one(x: Point, priors: Priors, weights: Array) -> Scalar:
            problem = Problem(priors, self.expert, training._replace(weights=weights))
            return log_mode(x, problem) + _omega(priors, x, regulariser)

        return jax.vmap(one)(points, priors, training.weights) / total

    def held_out(self, points: Point, data: Data, constants: Any) -> Array:
        """Log-likelihood of the rows that do not count for each run."""
        priors, held_out, *_ = constants
        _, others = self._split(data, held_out)

        def one(x: Point, priors: Priors, weights: Array) -> Scalar:
            found = weights_of(priors, x, self.expert)
            return log_lik(self.expert, found, others._replace(weights=weights))

        return jax.vmap(one)(points, priors, others.weights)

    def _split(self, data: Data, held_out: Array) -> tuple[Data, Data]:
        """Rows without their folds; weights (run, row) of those that count, and of the others."""
        out = data.rows[:, -1] == held_out[:, None]
        rows = data._replace(rows=data.rows[:, :-1])
        inside, outside = jnp.where(out, 0.0, data.weights), jnp.where(out, data.weights, 0.0)
        return rows._replace(weights=inside), rows._replace(weights=outside)


@partial(jit_quickly, static_argnums=0)
def _judge(
    objective: _ModeObjective, points: Point, data: Data, constants: Any
) -> tuple[Array, Array]:
    values = objective(None, points, data, constants) * constants[-1]
    return values, objective.held_out(points, data, constants)


def log_mode(x: Point, problem: Problem) -> Scalar:
    """What to maximise: the log posterior in the coordinates of direction and length."""
    priors = problem.priors
    volume = log_volume(priors.gate, x.gate) + log_volume(priors.experts, x.experts)
    return log_joint(x, problem) + volume


def _omega(priors: Priors, x: Point, regulariser: Regulariser | None) -> Scalar:
    """Posterior regularisation at a point."""
    if regulariser is None:
        return jnp.zeros(())
    return regulariser.value(Pair(*map(to_vectors, priors, x)))


def _draw_points(key: Key, priors: Priors, n_starts: int) -> Point:
    shapes = jax.eval_shape(draw_point, key, priors)
    # NumPy's generator: for so few numbers, compiling would take longer than the rest.
    generator = np.random.default_rng(seed_of(key))

    def draw(leaf: Any) -> np.ndarray:
        return generator.standard_normal((n_starts, *leaf.shape)).astype(leaf.dtype)

    return jax.tree.map(draw, shapes)
