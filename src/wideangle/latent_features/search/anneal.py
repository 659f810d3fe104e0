"""Annealed search for features: births, Gibbs passes, least squares, pruning."""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np

from wideangle.latent_features.rows.memory import FeatureRows
from wideangle.latent_features.search.launch import Problem, births, penalty

RIDGE = 0.01
"""Rows' worth of zeros added to each feature, so that equal columns of Z can be solved for."""
ALIKE = 0.15
"""Features whose squared distance is below this share of the shorter one are merged."""
SMALLEST_NOISE = 1e-6
"""Noise variance is never taken below this share of the mean square of the data."""


class Found(NamedTuple):
    """Features (K, D), who has them (N, K), the noise variance, and what the whole is worth."""

    features: np.ndarray
    assignments: np.ndarray
    noise_variance: float
    objective: float


class Fit(NamedTuple):
    """Least squares of the rows on the assignments: W = S Z'X with S = (Z'Z + ridge)^-1."""

    features: np.ndarray
    inverse: np.ndarray
    residual: float
    """Sum of squares left."""


class Schedule(NamedTuple):
    """Temperatures of an anneal, from ``hottest`` to 1 in ``n_steps``, then ``n_cool`` at 1."""

    hottest: float = 10.0
    n_steps: int = 20
    n_cool: int = 5

    def temperatures(self) -> np.ndarray:
        """One temperature per step."""
        return np.append(np.geomspace(self.hottest, 1.0, self.n_steps), np.ones(self.n_cool))


class Effort(NamedTuple):
    """How much an anneal may do per step."""

    max_features: int
    births: int = 3
    patience: int = 3
    launch_rows: int = 1000
    passes: int = 2


def empty(rows: FeatureRows) -> tuple[np.ndarray, np.ndarray]:
    """No features, no assignments."""
    return np.zeros((0, rows.dim)), np.zeros((rows.n_rows, 0), np.uint8)


def least_squares(rows: FeatureRows, assignments: np.ndarray) -> Fit:
    """Features that fit the rows best, given who has them."""
    weights = assignments.astype(rows.dtype)
    gram = (weights.T @ weights).astype(float)
    cross = rows.cross(assignments)
    inverse = np.linalg.inv(gram + RIDGE * np.eye(len(gram)))
    features = inverse @ cross
    left = rows.energy - 2.0 * np.vdot(features, cross) + np.vdot(features, gram @ features)
    return Fit(features, inverse, max(float(left), 0.0))


def prune(
    problem: Problem, fit: Fit, counts: np.ndarray, variance: float
) -> tuple[np.ndarray, Fit]:
    r"""Drop, worst first, features whose removal costs less than their price; refit the others.

    With the others refitted, removing feature k raises the sum of squares by
    :math:`|w_k|^2 / S_{kk}`, and :math:`w_j \to w_j - (S_{jk} / S_{kk}) w_k`. Returns the indices
    kept and their fit.
    """
    features, inverse, left = fit.features.copy(), fit.inverse.copy(), fit.residual
    kept = np.arange(len(features))
    while len(kept):
        lengths = np.einsum("kd,kd->k", features, features)
        rise = lengths / np.diag(inverse)
        price = penalty(problem, counts[kept], lengths, variance)
        surplus = 0.5 * rise / variance - price
        worst = int(np.argmin(surplus))
        if surplus[worst] >= 0:
            break
        left += rise[worst]
        slope = inverse[:, worst] / inverse[worst, worst]
        features = np.delete(features - np.outer(slope, features[worst]), worst, 0)
        inverse = inverse - np.outer(slope, inverse[worst])
        inverse = np.delete(np.delete(inverse, worst, 0), worst, 1)
        kept = np.delete(kept, worst)
    return kept, Fit(features, inverse, left)


def merge(features: np.ndarray, assignments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Join features that are nearly the same; a row that has either has the joined one."""
    gram = features @ features.T
    lengths = np.diag(gram)
    distances = lengths[:, None] + lengths - 2.0 * gram
    close = np.triu(distances < ALIKE * np.minimum(lengths[:, None], lengths), 1)
    if not close.any():
        return features, assignments
    assignments, gone = assignments.copy(), set()
    for first, second in np.argwhere(close):
        if first not in gone and second not in gone:
            assignments[:, first] |= assignments[:, second]
            gone.add(second)
    kept = [k for k in range(len(features)) if k not in gone]
    return features[kept], assignments[:, kept]


def anneal(
    rng: np.random.Generator,
    problem: Problem,
    noise_variance: float,
    effort: Effort,
    schedule: Schedule,
    start: tuple[np.ndarray, np.ndarray] | None = None,
    *,
    learn_noise: bool = False,
) -> Found:
    """Search from ``start`` at falling noise; features are born, updated, merged and dropped."""
    rows = problem.rows
    features, assignments = empty(rows) if start is None else start
    for temperature in schedule.temperatures():
        variance = temperature * noise_variance
        born = births(
            rng,
            problem,
            features,
            assignments,
            variance,
            at_most=min(effort.births, effort.max_features - len(features)),
            patience=effort.patience,
            sample=effort.launch_rows,
        )
        features = np.vstack([features, born.features])
        assignments = np.hstack([assignments, born.assignments])
        assignments = draw_assignments(rng, rows, features, assignments, variance, effort.passes)
        features, assignments = merge(features, assignments)
        fit, assignments = _fit_and_prune(problem, assignments, variance)
        noise = rng.standard_normal(fit.features.shape)
        root = np.linalg.cholesky(fit.inverse + 1e-12 * np.eye(len(fit.inverse)))
        features = fit.features + math.sqrt(variance) * root @ noise
        if learn_noise and temperature == 1.0:
            noise_variance = residual_variance(rows, fit)
    return settle(problem, assignments, noise_variance, learn_noise=learn_noise)


def settle(
    problem: Problem,
    assignments: np.ndarray,
    noise_variance: float,
    *,
    learn_noise: bool = False,
    n_rounds: int = 2,
) -> Found:
    """Climb to the nearest optimum without noise, and price it."""
    fit, assignments = _fit_and_prune(problem, assignments, noise_variance)
    for _ in range(n_rounds):
        assignments = draw_assignments(
            None, problem.rows, fit.features, assignments, noise_variance, 2
        )
        fit, assignments = _fit_and_prune(problem, assignments, noise_variance)
        if learn_noise:
            noise_variance = residual_variance(problem.rows, fit)
    worth = objective(problem, fit, assignments, noise_variance)
    return Found(fit.features, assignments, noise_variance, worth)


def objective(problem: Problem, fit: Fit, assignments: np.ndarray, noise_variance: float) -> float:
    """Log likelihood minus the price of every feature."""
    rows = problem.rows
    size = rows.n_rows * rows.dim
    log_lik = -0.5 * fit.residual / noise_variance
    log_lik -= 0.5 * size * math.log(2.0 * math.pi * noise_variance)
    counts = assignments.sum(axis=0, dtype=np.int64)
    lengths = np.einsum("kd,kd->k", fit.features, fit.features)
    return log_lik - float(penalty(problem, counts, lengths, noise_variance).sum())


def residual_variance(rows: FeatureRows, fit: Fit) -> float:
    """Noise variance that the fit leaves, with D numbers paid for each feature."""
    freedom = rows.dim * max(rows.n_rows - len(fit.features), 1)
    return max(fit.residual / freedom, least_noise(rows))


def least_noise(rows: FeatureRows) -> float:
    """Smallest noise variance that is believed; rows that are nothing but zeros have one too."""
    smallest = SMALLEST_NOISE * rows.energy / (rows.n_rows * rows.dim)
    return smallest if smallest > np.finfo(np.float32).tiny else SMALLEST_NOISE


def _fit_and_prune(
    problem: Problem, assignments: np.ndarray, variance: float
) -> tuple[Fit, np.ndarray]:
    assignments = assignments[:, assignments.any(axis=0)]
    fit = least_squares(problem.rows, assignments)
    counts = assignments.sum(axis=0, dtype=np.int64)
    kept, fit = prune(problem, fit, counts, variance)
    return fit, np.ascontiguousarray(assignments[:, kept])


def draw_assignments(
    rng: np.random.Generator | None,
    rows: FeatureRows,
    features: np.ndarray,
    assignments: np.ndarray,
    variance: float,
    n_passes: int,
) -> np.ndarray:
    """Gibbs passes over z at fixed features; without ``rng`` each z takes its likelier value.

    The data enter through X W' and W W' once; a pass costs N K times the features of a row.
    """
    found = np.ascontiguousarray(assignments).copy()
    if found.shape[1] == 0:
        return found
    products = rows.products(features)
    gram = features @ features.T
    for _ in range(n_passes):
        share = (found.sum(axis=0) + 0.5) / (rows.n_rows + 1.0)
        logits = np.log(share) - np.log1p(-share)
        if rng is None:
            _climb_pass(products, gram, logits, 1.0 / variance, found)
        else:
            _gibbs_pass(rng, products, gram, logits, 1.0 / variance, found)
    return found


@numba.njit(cache=True, nogil=True)
def _explain(gram, chosen, scores):
    """Set scores to W W' z."""
    scores[:] = 0.0
    for k in range(len(chosen)):
        if chosen[k]:
            for j in range(len(chosen)):
                scores[j] += gram[k, j]


@numba.njit(cache=True, nogil=True)
def _flip(gram, chosen, scores, k, value):
    """Set z_k and keep scores = W W' z."""
    sign = 1.0 if value else -1.0
    chosen[k] = value
    for j in range(len(chosen)):
        scores[j] += sign * gram[k, j]


@numba.njit(cache=True, nogil=True)
def _log_odds(products, gram, logits, precision, chosen, scores, k):
    alone = products[k] - scores[k] + chosen[k] * gram[k, k]
    return logits[k] + (alone - 0.5 * gram[k, k]) * precision


@numba.njit(cache=True, nogil=True)
def _gibbs_pass(rng, products, gram, logits, precision, assignments):
    scores = np.empty(len(gram))
    for n in range(len(assignments)):
        chosen = assignments[n]
        _explain(gram, chosen, scores)
        for k in range(len(gram)):
            t = _log_odds(products[n], gram, logits, precision, chosen, scores, k)
            if abs(t) > 36.0:  # noqa: PLR2004  # beyond double precision: no draw needed
                value = t > 0.0
            else:
                value = rng.random() * (1.0 + math.exp(-t)) < 1.0
            if value != chosen[k]:
                _flip(gram, chosen, scores, k, value)


@numba.njit(cache=True, nogil=True)
def _climb_pass(products, gram, logits, precision, assignments):
    scores = np.empty(len(gram))
    for n in range(len(assignments)):
        chosen = assignments[n]
        _explain(gram, chosen, scores)
        for k in range(len(gram)):
            t = _log_odds(products[n], gram, logits, precision, chosen, scores, k)
            if (t > 0.0) != chosen[k]:
                _flip(gram, chosen, scores, k, t > 0.0)
