"""Maximisation and variational inference: passes that raise one bound.

A pass finds the responsibilities of all rows; then weights, centres and concentrations are improved
in turn, each by a step that cannot lower the bound. Starts are compared on a sample of the rows,
where many passes are cheap, and the best continues on all rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from wideangle.checks import warn
from wideangle.progress import Progress
from wideangle.spherical_mixture.centres import (
    CentrePrior,
    Centres,
    begin_centres,
    update_factors,
    update_points,
)
from wideangle.spherical_mixture.rows import MemoryRows, Rows, Statistics, gather
from wideangle.spherical_mixture.task import Fitted, Mixture, Task
from wideangle.spherical_mixture.weights import WeightFactors, fit_weights

SAMPLE = 20_000
"""Rows on which starts are compared."""
SEEDING_ROWS = 50
"""Rows per seed from which seeds are chosen."""
START_PASSES, MOST_PASSES = 15, 300
ENOUGH = 1e-5
"""Gain of the bound per row, in nats, below which the ascent stops."""


class State(NamedTuple):
    """State of an ascent."""

    centres: Centres
    weights: WeightFactors


def fit(
    rng: np.random.Generator, task: Task, rows: Rows, sample: MemoryRows, *, empty: bool = False
) -> Fitted:
    """The best of several starts; ``sample`` are some of the rows, or all.

    Empty clusters are dropped by default.
    """
    task = with_tightness(rng, task, sample)
    n_passes = task.inference.n_passes or MOST_PASSES
    total = task.inference.n_starts * min(START_PASSES, n_passes) + n_passes
    interrupted, bounds, done = False, [], 0
    found: tuple[State, float] | None = None
    with Progress(total, 0, task.verbose) as bar:
        try:
            for _ in range(task.inference.n_starts):
                start, best = _start(rng, task, sample), found
                for state, bound in passes(start, task, sample, min(START_PASSES, n_passes)):
                    bar.at(done := done + 1, "starts")
                    if best is None or bound > best[1]:
                        found = state, bound
            assert found is not None
            for state, bound in passes(found[0], task, rows, n_passes):
                found = state, bound
                bounds.append(bound)
                bar.at(done := done + 1, "all rows")
        except KeyboardInterrupt:
            if found is None:
                raise
            interrupted = True
            warn(f"interrupted after {len(bounds)} passes", RuntimeWarning)
    state = found[0]
    trace = {"bound": np.array(bounds or [found[1]])[None]}
    notes = {"n_passes": len(bounds), "bound": float(found[1])} | (
        {"interrupted": True} if interrupted else {}
    )
    centres, weights = state
    mixture = Mixture(centres.directions, centres.concentrations, weights.means)
    if not empty:
        mixture = mixture.only(used(weights.counts))
    return Fitted(mixture, task.prior, weights.alpha, trace, notes)


def used(counts: np.ndarray) -> np.ndarray:
    """Clusters that are not empty.

    They have at least half a row; if weights of rows are tiny, a quarter of the average cluster.
    """
    return np.flatnonzero(counts >= min(0.5, 0.25 * counts.sum() / len(counts)))


def passes(state: State, task: Task, rows: Rows, most: int) -> Iterator[tuple[State, float]]:
    """States and their bounds, until the bound no longer rises."""
    before = -np.inf
    for _ in range(most):
        found = gather(rows, *parameters(state))
        bound = found.log_lik + state.centres.gain + state.weights.gain
        yield state, bound
        if bound - before < ENOUGH * found.counts.sum() and np.isfinite(before):
            return
        before = bound
        state = improve(state, found, task)


def parameters(state: State) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters and offsets for a pass."""
    centres, weights = state
    natural = centres.concentrations[:, None] * centres.means
    return natural, weights.expected_log - centres.log_means


def improve(state: State, found: Statistics, task: Task) -> State:
    """Better weights, centres and concentrations for the responsibilities of a pass."""
    weights = fit_weights(
        found.counts, state.weights.alpha, infinite=task.infinite, learn=task.learn_alpha
    )
    update = update_factors if task.factors else update_points
    return State(update(found, state.centres, task.prior), weights)


# ---------------------------------------------------------------- starts


def _start(rng: np.random.Generator, task: Task, sample: MemoryRows) -> State:
    """Seeds far from each other, and the first pass with them."""
    directions = seeds(rng, sample, task.n_components)
    counts = np.full(task.n_components, sample.weights.sum() / task.n_components)
    weights = fit_weights(counts, task.alpha, infinite=task.infinite, learn=False)
    flat = weights._replace(expected_log=np.full_like(counts, -np.log(len(counts))))
    centres = begin_centres(directions, task.prior, counts, factors=task.factors)
    found = gather(sample, *parameters(State(centres, flat)))
    if task.infinite:  # longest sticks first
        order = np.argsort(-found.counts, kind="stable")
        found = Statistics(found.counts[order], found.resultants[order], found.log_lik)
        centres = centres.ordered(order)
    return improve(State(centres, weights), found, task)


def seeds(rng: np.random.Generator, sample: MemoryRows, n_seeds: int) -> np.ndarray:
    """Rows as centres, each drawn in proportion to its distance from earlier ones (k-means++).

    The distance is one minus the cosine, half the squared chord. If rows run out, directions are
    uniform.
    """
    rows, weights = dense_sample(rng, sample, SEEDING_ROWS * n_seeds)
    nearest = np.ones(len(rows))
    chosen = []
    for level in rng.random(n_seeds):
        ends = np.cumsum(weights * nearest)
        if ends[-1] <= 1e-6 * weights.sum():
            break
        place = np.searchsorted(ends, level * ends[-1], side="right")
        row = rows[min(place, len(rows) - 1)]
        chosen.append(row)
        nearest = np.minimum(nearest, np.maximum(1.0 - rows @ row, 0.0))
    more = rng.standard_normal((n_seeds, rows.shape[1]))[len(chosen) :]
    found = np.array([*chosen, *more], np.float64)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def dense_sample(
    rng: np.random.Generator, rows: MemoryRows, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """At most this many rows of positive weight, dense, and their weights.

    Their order does not depend on how they are numbered.
    """
    rows = rows.sample(rng, most)
    order = rows.order(rng)
    dense = rows.take(np.arange(rows.shape[0]))[order]
    weights = rows.weights[order]
    return dense[weights > 0], weights[weights > 0]


def with_tightness(rng: np.random.Generator, task: Task, sample: MemoryRows) -> Task:
    """The expected cosine of the prior, if not given, from a first partition.

    As in k-means, rows are assigned to the nearest of as many seeds as the model may have clusters,
    and centres become their means, a few times; the result is the mean cosine of rows to these
    centres.
    """
    if not np.isnan(task.prior.cosine):
        return task
    rows, weights = dense_sample(rng, sample, SEEDING_ROWS * task.n_components)
    centres = seeds(rng, sample, task.n_components)
    cosine = 0.5
    for _ in range(3):
        along = rows @ centres.T
        nearest = np.argmax(along, axis=1)
        cosine = float(np.average(along.max(axis=1), weights=weights))
        belongs = sp.csr_matrix((weights, (nearest, np.arange(len(rows)))),
                                shape=(len(centres), len(rows)))  # fmt: skip
        sums = np.asarray(belongs @ rows)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(lengths > 0, sums / np.where(lengths > 0, lengths, 1.0), centres)
    prior: CentrePrior = task.prior._replace(cosine=float(np.clip(cosine, 0.02, 0.98)))
    return task._replace(prior=prior)
