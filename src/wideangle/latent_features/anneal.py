"""Annealed search for features: births, Gibbs passes, least squares, pruning."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from wideangle.latent_features.assignments import Conditionals, sweep_block
from wideangle.latent_features.memory import MemoryRows
from wideangle.latent_features.state import price
from wideangle.machine_code import njit

RIDGE = 0.01
"""Ridge: number of rows of zeros added to each feature, so that equal columns of Z can be solved
for."""
ALIKE = 0.15
"""Features whose squared distance is below this share of the shorter one are merged."""
SMALLEST_NOISE = 1e-6
"""Lower bound of the noise variance, as a share of the mean square of the data."""
ROUNDS, LAST_ROUNDS = 8, 3
"""EM rounds of a launch, and how many of them use the model's noise."""
SETTLING = 2
"""Rounds of the final climb."""
CERTAINLY = 1e12
"""Factor of log-odds after which the likelier value is certain."""
NOTHING = np.zeros(0)
LARGEST_HALVING = 6
"""A launch begins with at least 2^-6 of the rows, those most like its seed."""


class Problem(NamedTuple):
    """Rows to explain; they may be projections of rows of dimension ``full_dim``."""

    rows: MemoryRows
    full_dim: int
    learn_noise: bool = False
    """Whether the noise variance is learned from residuals, or given."""
    stop: Callable[[], bool] = lambda: False
    """Whether the search has to end with what it has."""


class Start(NamedTuple):
    """What the search found, where chains begin."""

    features: np.ndarray
    """(K, D) float64, in the units of the rows."""
    assignments: np.ndarray
    """(N, K) uint8."""
    noise_variance: float
    """As given, or else the residual variance."""
    objective: float
    """Log likelihood minus the price of the features."""


class Fit(NamedTuple):
    """Least squares of the rows on the assignments: W = S Z'X with S = (Z'Z + ridge)^-1."""

    features: np.ndarray
    inverse: np.ndarray
    residual: float
    """Residual sum of squares."""


class Schedule(NamedTuple):
    """Temperatures of an anneal, from ``hottest`` to 1 in ``n_steps``, then ``n_cool`` at 1."""

    hottest: float = 10.0
    n_steps: int = 20
    n_cool: int = 5

    def temperatures(self) -> np.ndarray:
        """One temperature per step."""
        return np.append(np.geomspace(self.hottest, 1.0, self.n_steps), np.ones(self.n_cool))


FULL = Schedule()


class Effort(NamedTuple):
    """How much an anneal may do per step."""

    max_features: int
    births: int = 3
    patience: int = 3
    launch_rows: int = 1000
    passes: int = 2


def empty(rows: MemoryRows) -> tuple[np.ndarray, np.ndarray]:
    """No features, no assignments."""
    return np.zeros((0, rows.dim)), np.zeros((rows.n_rows, 0), np.uint8)


def least_squares(rows: MemoryRows, assignments: np.ndarray) -> Fit:
    """Features that fit the rows best, given the assignments."""
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
    """Merge features that are nearly the same; a row that has either has the merged one."""
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
    schedule: Schedule = FULL,
    start: tuple[np.ndarray, np.ndarray] | None = None,
) -> Start:
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
        if problem.learn_noise and temperature == 1.0:
            noise_variance = residual_variance(rows, fit)
        if problem.stop():
            break
    return settle(problem, assignments, noise_variance)


def settle(problem: Problem, assignments: np.ndarray, noise_variance: float) -> Start:
    """Climb to the nearest optimum without noise, and compute its objective."""
    fit, assignments = _fit_and_prune(problem, assignments, noise_variance)
    for _ in range(SETTLING):
        assignments = draw_assignments(
            None, problem.rows, fit.features, assignments, noise_variance, 2
        )
        fit, assignments = _fit_and_prune(problem, assignments, noise_variance)
        if problem.learn_noise:
            noise_variance = residual_variance(problem.rows, fit)
    worth = objective(problem, fit, assignments, noise_variance)
    return Start(fit.features, assignments, noise_variance, worth)


def objective(problem: Problem, fit: Fit, assignments: np.ndarray, noise_variance: float) -> float:
    """Log likelihood minus the price of every feature."""
    rows = problem.rows
    size = rows.n_rows * rows.dim
    log_lik = -0.5 * fit.residual / noise_variance
    log_lik -= 0.5 * size * math.log(2.0 * math.pi * noise_variance)
    counts = assignments.sum(axis=0, dtype=np.int64)
    lengths = np.einsum("kd,kd->k", fit.features, fit.features)
    return log_lik - float(penalty(problem, counts, lengths, noise_variance).sum())


def residual_variance(rows: MemoryRows, fit: Fit) -> float:
    """Residual variance of the fit, counting D parameters for each feature."""
    freedom = rows.dim * max(rows.n_rows - len(fit.features), 1)
    return max(fit.residual / freedom, least_noise(rows))


def least_noise(rows: MemoryRows) -> float:
    """Smallest noise variance allowed; positive even for rows of zeros."""
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
    rows: MemoryRows,
    features: np.ndarray,
    assignments: np.ndarray,
    variance: float,
    n_passes: int,
) -> np.ndarray:
    """Gibbs passes over z at fixed features; without ``rng`` each z takes its likelier value.

    The data enter through X W' and W W' once; a pass costs N K times the features of a row.
    """
    found = np.array(assignments, np.uint8, order="C")
    if found.shape[1] == 0:
        return found
    products = rows.products(features)
    inner = (features @ features.T).astype(products.dtype)
    for _ in range(n_passes):
        share = (found.sum(axis=0) + 0.5) / (rows.n_rows + 1.0)
        log_odds = np.log(share) - np.log1p(-share)
        _pass(rng, products, inner, log_odds, 1.0 / variance, found)
    return found


def _pass(
    rng: np.random.Generator | None,
    products: np.ndarray,
    inner: np.ndarray,
    log_odds: np.ndarray,
    precision: float,
    assignments: np.ndarray,
) -> None:
    """One pass in place, by the kernel of the sampler's sweeps."""
    size, dtype = len(inner), products.dtype
    keys = np.zeros((2, size), np.uint32)
    factor = CERTAINLY
    if rng is not None:
        keys = rng.integers(2**32, size=(2, size), dtype=np.uint32)
        factor = 1.0
    odds = (factor * log_odds).astype(dtype)
    given = Conditionals(
        keys, NOTHING, NOTHING, inner, log_odds, odds, dtype.type(factor * precision), last=size
    )
    sweep_block(given, 0, assignments, products)


# ---------------------------------------------------------------- new features


class Launch(NamedTuple):
    """A proposed feature, and the share of rows that have it."""

    feature: np.ndarray
    share: float


def penalty(problem: Problem, counts: Any, lengths: Any, variance: float) -> Any:
    r"""The ``price`` of features; ``lengths`` are :math:`|w|^2`.

    In a subspace, each omitted direction would have added :math:`v/m` to :math:`|w|^2` and half a
    nat to the gain, by fitting noise.
    """
    unseen = problem.full_dim - problem.rows.dim
    counts = np.asarray(counts, np.float64)
    whole = lengths + unseen * variance / np.maximum(counts, 1.0)
    return price(counts, whole, variance, problem.rows.n_rows, problem.full_dim) - 0.5 * unseen


def launch(rng: np.random.Generator, residual: np.ndarray, variance: float) -> Launch | None:
    r"""Fit :math:`R_n \sim (1-\pi) N(0, v I) + \pi N(c, v I)` from a random seed row.

    The seed is drawn by :math:`|R_n|^2`; c starts as the mean of the rows most like it. The noise
    of the first rounds is the variance along c, so that a c far from any feature can still move.
    Returns None if the residual is zero.
    """
    energy = np.einsum("nd,nd->n", residual, residual, dtype=np.float64)
    total = energy.sum()
    if not total > 0:
        return None
    seed = min(int(np.searchsorted(np.cumsum(energy), rng.random() * total)), len(residual) - 1)
    like = residual @ residual[seed]
    n_top = max(1, len(residual) >> int(rng.integers(1, LARGEST_HALVING + 1)))
    top = np.argpartition(-like, n_top - 1)[:n_top]
    centre = residual[top].mean(axis=0, dtype=np.float64).astype(residual.dtype)
    share = _climb(residual, centre, variance)
    return Launch(centre.astype(float), share) if share > 0 else None


@njit(fastmath={"contract", "reassoc"})
def _climb(residual, centre, variance):
    """Move ``centre`` by EM; return the share of rows that have it, 0 if it lost them all."""
    n_rows, dim = residual.shape
    n_warm, sums = ROUNDS - LAST_ROUNDS, np.empty(dim)
    share, spread = 0.5, variance
    for i in range(ROUNDS):
        square = 0.0
        for d in range(dim):
            square += centre[d] * centre[d]
            sums[d] = 0.0
        if not square > 0.0:
            return 0.0
        # One hard round, then rounds at the noise along c, then rounds at the model's noise.
        noise = max(variance, spread) if i < n_warm else variance
        logit = math.log(share / (1.0 - share))
        total, gaps = 0.0, 0.0
        for n in range(n_rows):
            along = 0.0
            for d in range(dim):
                along += residual[n, d] * centre[d]
            t = logit + (along - 0.5 * square) / noise
            if i == 0 or abs(t) > 36.0:  # noqa: PLR2004
                weight = 1.0 if t > 0.0 else 0.0
            else:
                weight = 1.0 / (1.0 + math.exp(-t))
            total += weight
            gaps += (1.0 - weight) * along**2 + weight * (along - square) ** 2
            if weight > 0.0:
                for d in range(dim):
                    sums[d] += weight * residual[n, d]
        if total < 0.5:  # noqa: PLR2004  # less than half a row: nothing there
            return 0.0
        share = min(total / n_rows, 1.0 - 1e-6)
        spread = gaps / (n_rows * square)
        for d in range(dim):
            centre[d] = sums[d] / total
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
    """Launch features at the residual until ``patience`` in a row are not worth their price.

    A launch uses ``sample`` rows; whether it is worth its :func:`penalty` is decided on all rows.
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
        column = takers(problem, new, along, variance)
        if column is None:
            failures += 1
            continue
        failures = 0
        residual -= np.outer(column[some], new.feature).astype(rows.dtype)
        found = Born(
            np.vstack([found.features, new.feature]),
            np.column_stack([found.assignments, column]),
        )
    return found


def takers(problem: Problem, new: Launch, along: np.ndarray, variance: float) -> np.ndarray | None:
    """Rows that take the new feature, or None if their total gain is below its price.

    ``along`` are the products of the residuals with the feature.
    """
    square = float(new.feature @ new.feature)
    gain = (along - 0.5 * square) / variance
    column = gain + math.log(new.share / (1.0 - new.share)) > 0
    count = column.sum()
    needed = penalty(problem, count, square, variance)
    return column.astype(np.uint8) if gain[column].sum() > needed else None
