"""Modes of the posterior of a mixture of experts: point estimates, and starts for samplers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import xlogy

from wideangle.infer.ascent import Minibatches, ascend, begin
from wideangle.messages import warn
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
from wideangle.mixture_of_experts.variational import fit_starts
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
FOLDS, FOLD_STEPS, FOLD_ROWS = 3, 2000, 5000
"""Folds, steps of a fit, and most rows for cross-validation; more rows are rarely overfitted."""
USELESS = 0.01
"""Largest loss in nats per held-out row, relative to a constant guess, without a warning."""


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
        fits = fit_starts(key, task._replace(inference=inference), data)
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

    Rows held out have weight 0, so that all fits share one program.
    """
    # Rows are distinct and in hash order (``data.merged``), so folds are random.
    fold, weights = np.arange(data.rows.shape[0]) % FOLDS, np.asarray(data.weights)
    candidates, totals = [], []
    for factor in SHRINKAGE:
        smaller = {side: scales[side] * factor for side in _free(task.priors)}
        priors = with_scales(task.priors, {**scales, **smaller})
        total = 0.0
        for held_out in range(FOLDS):
            fitted = data._replace(weights=np.where(fold == held_out, 0.0, weights))
            modes = climb(
                key, Problem(priors, task.expert, fitted), n_starts=task.inference.n_starts,
                n_steps=FOLD_STEPS, regulariser=task.regulariser, verbose=False,
            )  # fmt: skip
            best = jax.tree.map(lambda leaf: leaf[0], modes.points)
            others = data._replace(weights=np.where(fold == held_out, weights, 0.0))
            total += float(_log_lik_at(task.expert, priors, best, sample(0, others, FOLD_ROWS)))
        candidates.append(priors)
        totals.append(total / weights.sum())
    chosen = int(np.argmax(totals))
    return candidates[chosen], totals[chosen]


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
            f"({held_out:.2f} against {known:.2f} nats a row): use inference='mcmc', which "
            "averages over weights, or fewer experts or columns."
        )


@partial(jax.jit, static_argnums=0)
def _log_lik_at(expert: ExpertLikelihood, priors: Priors, point: Point, data: Data) -> Scalar:
    return log_lik(expert, weights_of(priors, point, expert), data)


def climb(
    key: Key,
    problem: Problem,
    *,
    n_starts: int,
    n_passes: int | None = None,
    n_steps: int = N_STEPS,
    regulariser: Regulariser | None = None,
    verbose: bool | None = None,
) -> Modes:
    """Maximise the log posterior from standard normal coordinates, all starts at once.

    These nearly follow the prior (see ``mixture_of_experts/coordinates.py``) without compiling a
    sampler.
    """
    priors, expert, data = problem
    key_draw, key_climb, key_judge = jax.random.split(key, 3)
    some = sample(seed_of(key_judge), data, JUDGE_ROWS)
    if data.rows.shape[0] <= BATCH_ROWS:
        data = some  # all rows, padded: many sizes share one program
    batches = Minibatches(seed_of(key_climb), *data, BATCH_ROWS)
    n_steps = n_passes * batches.per_pass if n_passes else n_steps
    constants = (priors, regulariser, jnp.float32(max(np.sum(data.weights), 1.0)))
    points = _draw_points(key_draw, priors, n_starts)
    ascent = ascend(
        key_climb,
        _ModeObjective(expert),
        begin(points),
        batches,
        constants,
        rates=jax.tree.map(lambda _: RATE, points),
        n_steps=n_steps,
        verbose=verbose,
    )
    points = ascent.state.position
    values = np.asarray(_judge(_ModeObjective(expert), points, some, constants))
    order = np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable")
    return Modes(jax.tree.map(lambda leaf: leaf[order], points), values[order], ascent.interrupted)


@dataclass(frozen=True)
class _ModeObjective:
    """Log posterior (with Omega) per unit of row weight, for several points at once."""

    expert: ExpertLikelihood

    def __call__(self, key: Any, points: Point, batch: Any, constants: Any) -> Array:
        """Values of all points on one minibatch."""
        priors, regulariser, total = constants
        problem = Problem(priors, self.expert, Data(*batch))

        def one(x: Point) -> Scalar:
            return log_mode(x, problem) + _omega(priors, x, regulariser)

        return jax.vmap(one)(points) / total


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


@partial(jax.jit, static_argnums=2)
def _draw_points(key: Key, priors: Priors, n_starts: int) -> Point:
    shapes, structure = jax.tree.flatten(jax.eval_shape(draw_point, key, priors))
    keys = jax.random.split(key, len(shapes))
    drawn = [
        jax.random.normal(k, (n_starts, *leaf.shape), leaf.dtype)
        for k, leaf in zip(keys, shapes, strict=True)
    ]
    return jax.tree.unflatten(structure, drawn)


def _judge(objective: _ModeObjective, points: Point, sample: Data, constants: Any) -> Array:
    return _judge_compiled(objective, points, sample, constants) * constants[-1]


_judge_compiled = jax.jit(
    lambda objective, points, sample, constants: objective(None, points, sample, constants),
    static_argnums=0,
)
