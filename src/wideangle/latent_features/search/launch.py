"""One new feature from what the present ones leave unexplained."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numba
import numpy as np

from wideangle.latent_features.components import price
from wideangle.latent_features.rows.memory import FeatureRows

ROUNDS, LAST_ROUNDS = 8, 3
"""Rounds of EM of a launch, and how many of them run at the model's own noise."""
LARGEST_HALVING = 6
"""A launch begins with at least the 2^-6 of the rows that are most like its seed."""


class Problem(NamedTuple):
    """Rows to explain; they may be projections of rows of a larger dimension ``full_dim``."""

    rows: FeatureRows
    full_dim: int


class Launch(NamedTuple):
    """A proposed feature, the share of rows that have it, and EM's log likelihood by round.

    The log likelihoods are those of the rounds at the model's noise, less that of no feature.
    """

    feature: np.ndarray
    share: float
    log_lik: np.ndarray


def penalty(problem: Problem, counts: Any, lengths: Any, variance: float) -> Any:
    r"""The :func:`~.lfm_components.price` of features; ``lengths`` are :math:`|w|^2`.

    In a subspace the directions left out would have added one :math:`v/m` each to
    :math:`|w|^2`, and half a nat to the gain: noise that fits itself.
    """
    unseen = problem.full_dim - problem.rows.dim
    counts = np.asarray(counts, np.float64)
    whole = lengths + unseen * variance / np.maximum(counts, 1.0)
    return price(counts, whole, variance, problem.rows.n_rows, problem.full_dim) - 0.5 * unseen


def launch(rng: np.random.Generator, residual: np.ndarray, variance: float) -> Launch | None:
    r"""Fit :math:`R_n \sim (1-\pi) N(0, v I) + \pi N(c, v I)` from a random seed row.

    The seed is drawn by :math:`|R_n|^2`; c starts as the mean of the rows most like it. The noise
    of the first rounds is the variance along c, so that a c far from any feature can still move.
    None where the residual is zero.
    """
    energy = np.einsum("nd,nd->n", residual, residual, dtype=np.float64)
    total = energy.sum()
    if not total > 0:
        return None
    seed = min(int(np.searchsorted(np.cumsum(energy), rng.random() * total)), len(residual) - 1)
    like = residual @ residual[seed]
    n_top = max(1, len(residual) >> int(rng.integers(1, LARGEST_HALVING + 1)))
    top = np.argpartition(-like, n_top - 1)[:n_top]
    centre = residual[top].mean(axis=0, dtype=np.float64)
    return fit_one(residual, centre, variance)


def fit_one(residual: np.ndarray, centre: np.ndarray, variance: float) -> Launch | None:
    """EM of the one-feature mixture from ``centre``; see :func:`launch`."""
    centre = centre.astype(residual.dtype)
    log_lik = np.zeros(LAST_ROUNDS)
    share = _climb(residual, centre, variance, log_lik)
    return Launch(centre.astype(float), share, log_lik) if share > 0 else None


@numba.njit(cache=True, nogil=True)
def _climb(residual, centre, variance, log_lik):
    """Move ``centre`` by EM; return the share of rows that have it, 0 if it lost them all."""
    n_rows, n_warm = len(residual), ROUNDS - len(log_lik)
    share, spread = 0.5, variance
    weights = np.empty(n_rows, residual.dtype)
    for i in range(ROUNDS):
        square = float(np.dot(centre, centre))
        if not square > 0.0:
            return 0.0
        along = np.dot(residual, centre)
        # One hard round, rounds at the noise there is along c, last rounds at the model's noise.
        noise = max(variance, spread) if i < n_warm else variance
        logit = math.log(share / (1.0 - share))
        total, gaps, ratio = 0.0, 0.0, 0.0
        for n in range(n_rows):
            t = logit + (along[n] - 0.5 * square) / noise
            if i == 0 or abs(t) > 36.0:  # noqa: PLR2004
                weight = 1.0 if t > 0.0 else 0.0
            else:
                weight = 1.0 / (1.0 + math.exp(-t))
            if i >= n_warm:
                ratio += max(t, 0.0) + math.log1p(math.exp(-abs(t)))
            weights[n] = weight
            total += weight
            gaps += (1.0 - weight) * along[n] ** 2 + weight * (along[n] - square) ** 2
        if i >= n_warm:
            log_lik[i - n_warm] = ratio + n_rows * math.log(1.0 - share)
        if total < 0.5:  # noqa: PLR2004  # less than half a row: nothing there
            return 0.0
        share = min(total / n_rows, 1.0 - 1e-6)
        spread = gaps / (n_rows * square)
        centre[:] = np.dot(weights, residual) / total
    return share


class Born(NamedTuple):
    """Accepted features (B, D) and the rows that have them (N, B)."""

    features: np.ndarray
    assignments: np.ndarray


def births(
    rng: np.random.Generator,
    problem: Problem,
    features: np.ndarray,
    assignments: np.ndarray,
    variance: float,
    *,
    at_most: int,
    patience: int = 3,
    sample: int = 1000,
) -> Born:
    """Launch features at the residual until ``patience`` of them in a row are not worth it.

    A launch sees ``sample`` rows; whether it is worth its :func:`penalty` is asked of all rows.
    """
    rows = problem.rows
    some = np.sort(rng.choice(rows.n_rows, min(sample, rows.n_rows), replace=False))
    residual = rows.dense_block(some)
    residual -= assignments[some].astype(rows.dtype) @ features.astype(rows.dtype)
    found = Born(np.zeros((0, rows.dim)), np.zeros((rows.n_rows, 0), np.uint8))
    failures = 0
    while failures < patience and len(found.features) < at_most:
        new = launch(rng, residual, variance)
        if new is None:
            break
        along = rows.products(new.feature[None])[:, 0].astype(float)
        along -= assignments @ (features @ new.feature)
        along -= found.assignments @ (found.features @ new.feature)
        chosen = takers(problem, new, along, variance)
        if chosen is None:
            failures += 1
            continue
        failures = 0
        residual -= np.outer(chosen[some], new.feature).astype(rows.dtype)
        found = Born(
            np.vstack([found.features, new.feature]),
            np.column_stack([found.assignments, chosen]),
        )
    return found


def takers(problem: Problem, new: Launch, along: np.ndarray, variance: float) -> np.ndarray | None:
    """Rows that take the new feature, or None if all they gain is below its price.

    ``along`` are the products of the residuals with the feature.
    """
    square = float(new.feature @ new.feature)
    gain = (along - 0.5 * square) / variance
    chosen = gain + math.log(new.share / (1.0 - new.share)) > 0
    count = chosen.sum()
    needed = penalty(problem, count, square, variance)
    return chosen.astype(np.uint8) if gain[chosen].sum() > needed else None
