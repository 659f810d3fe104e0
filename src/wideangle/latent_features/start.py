"""Start of a fit of the latent feature model: features found by search, not at random.

The exact sampler of the model moves between neighbouring explanations of the data; started without
features it needs very long to leave a wrong one. The search need not be a valid sampler: it
anneals, then revises groups of features, and keeps what has the highest penalised likelihood.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from wideangle.latent_features.anneal import (
    FULL,
    Effort,
    Problem,
    Schedule,
    Start,
    anneal,
    draw_assignments,
    empty,
    least_noise,
    settle,
)
from wideangle.latent_features.memory import MemoryRows

FEW = 12
"""Most features for which a new anneal of all of them may find something better."""
FEW_HOPS, MANY_HOPS = 100, 60
FEW_FAILURES, MANY_FAILURES = 45, 30
"""Number of hops for few and for many features, and failures in a row after which they end."""
FRESH = 0.2
"""Share of hops that start from nothing, if features are few."""
WARM = Schedule(hottest=3.0, n_steps=8, n_cool=4)
"""Anneal after the noise proved different from the guess."""
COLD, MOST_COLD = Schedule(hottest=1.0, n_steps=1, n_cool=19), 40
"""Steps at the model's noise from the current features, and most repetitions."""
NOISE_ROUNDS, NOISE_CHANGE = 3, 1.2
FEW_COLUMNS = 8
SLOWER = 5
"""How much longer an anneal is when the number of features is known."""
AGAIN = Schedule(hottest=4.0, n_steps=10, n_cool=3)
"""An anneal that keeps most of what it starts from; its first temperature is drawn."""
LARGEST_CLUSTER, CLUSTER_ROWS, LAUNCH_ROWS = 10, 1500, 300
"""Number of features and rows of a hop, and of rows of its launches."""
STRONG = 0.3
"""Cosine or correlation above which two features count as dependent."""
DEPENDENT = 0.25
"""Singular value of unit features below which they count as linearly dependent."""
WORTH = 1.0
"""Nats by which a change must raise the objective; less is noise of a few rows."""
MOST_ROWS = 800
"""Rows used if there are more columns than the next number."""
MOST_COLUMNS = 800
ZERO = 1e-10
"""Share of the largest eigenvalue below which one is rounding error."""
SLACK = 1.05
"""The largest eigenvalue of finite noise scatters around its limit by a few per cent."""


def find_features(
    rng: np.random.Generator,
    rows: MemoryRows,
    noise_variance: float | None = None,
    start: Start | None = None,
    *,
    max_features: int = 100,
    hops: int | None = None,
    patience: float = 1.0,
    stop: Callable[[], bool] = lambda: False,
) -> Start:
    r"""Search for binary features: :math:`x_n = \sum_k z_{nk} w_k + N(0, \sigma^2 I)`.

    Maximises the log likelihood minus, for each feature, the ``penalty`` of coding its rows and its
    vector. The result is a starting state, not a sample.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of all randomness; equal generators give equal results.
    rows : MemoryRows
        The data.
    noise_variance : float, optional
        :math:`\sigma^2`. By default it is guessed from the spectrum, then learned from residuals.
    start : Start, optional
        Result of an earlier search, to continue by hops.
    max_features : int
        Largest number of features.
    hops : int, optional
        Groups of features to revise; by default the search first continues until it finds no
        improvement, then makes 100 hops for few features, and for many at most 60, until 30 in a
        row fail.
    patience : float
        Factor of the number of failures in a row after which hops end; below 1 for one of several
        searches of the same rows.
    stop : callable, optional
        Called between steps; if it returns True, the search returns its current result.
    """
    scale = math.sqrt(rows.energy / max(rows.n_rows * rows.dim, 1))
    if scale == 0 or max_features == 0:
        return nothing(rows, noise_variance)
    # Squares of very large or small float32 numbers overflow or underflow.
    scale = 1.0 if 1e-3 < scale < 1e3 else scale  # noqa: PLR2004
    seen = rows if scale == 1.0 else rows.scaled(1.0 / scale)
    problem = Problem(seen, rows.dim, noise_variance is None, stop)
    effort = Effort(max_features, births=max(3, max_features // 15))
    in_units = rows.n_rows * rows.dim * math.log(scale)
    if start is None:
        reading = read_spectrum(rng, problem.rows)
        given = noise_variance
        noises = _first_noises(reading, seen) if given is None else [given / scale**2]
        tried = [_search(rng, problem, noise, effort) for noise in noises]
        best = max(tried, key=lambda found: found.objective)
        best = _tighten(rng, problem, best, reading, effort)
    else:
        best = in_other_units(start, 1.0 / scale, in_units)
    if hops is None:
        best = _go_on(rng, problem, best, effort)
    best = _hops(rng, problem, best, effort, hops, patience)
    return in_other_units(best, scale, -in_units)


def in_other_units(start: Start, scale: float, in_units: float) -> Start:
    """The same in rows times ``scale``; ``in_units`` is added to the log density of the rows."""
    return Start(
        start.features * scale,
        start.assignments,
        start.noise_variance * scale**2,
        start.objective + in_units,
    )


def _search(rng: np.random.Generator, problem: Problem, noise: float, effort: Effort) -> Start:
    """Anneal; if the residuals show another noise than assumed, anneal again with it."""
    best = anneal(rng, problem, noise, effort)
    for _ in range(NOISE_ROUNDS if problem.learn_noise else 0):
        if abs(math.log(best.noise_variance / noise)) < math.log(NOISE_CHANGE):
            break
        noise = best.noise_variance
        start = best.features, best.assignments
        new = anneal(rng, problem, noise, effort, WARM, start)
        best = max(best, new, key=lambda found: found.objective)
    return best


def _go_on(rng: np.random.Generator, problem: Problem, best: Start, effort: Effort) -> Start:
    """Births, passes and fits until the objective no longer rises.

    As features are found the noise falls, so many are worth their price only after others.
    """
    for _ in range(MOST_COLD):
        if problem.stop():
            break
        start = best.features, best.assignments
        new = anneal(rng, problem, best.noise_variance, effort, COLD, start)
        if new.objective < best.objective + WORTH:
            break
        best = new
    return best


def _hops(
    rng: np.random.Generator,
    problem: Problem,
    best: Start,
    effort: Effort,
    n_hops: int | None,
    patience: float,
) -> Start:
    """Revise groups of features, or all of them if they are few; keep what is better."""
    tries, failures = np.zeros(len(best.features)), 0
    for i in range(FEW_HOPS if n_hops is None else n_hops):
        n_features = len(best.features)
        many = n_features > FEW
        enough = patience * (MANY_FAILURES if many else FEW_FAILURES)
        if n_hops is None and (failures >= enough or (many and i >= MANY_HOPS)):
            break
        if problem.stop():
            break
        if n_features == 0 or (n_features <= FEW and rng.random() < FRESH):
            cap = int(rng.integers(max(1, n_features // 2), n_features + 3))
            capped = effort._replace(max_features=min(cap, effort.max_features))
            new = anneal(rng, problem, best.noise_variance, capped)
        else:
            new = hop(rng, problem, best, tries, effort)
        if new is not None and new.objective > best.objective + WORTH:
            best, tries, failures = new, np.zeros(len(new.features)), 0
        else:
            failures += 1
    return best


def _tighten(
    rng: np.random.Generator, problem: Problem, best: Start, reading: Reading, effort: Effort
) -> Start:
    """Anneal slowly with at most as many features as the rank of the spectrum, if there are more.

    Features that overlap much, or that half of the rows have, are otherwise explained by many
    mixtures of them. The spectrum gives the rank only if it determines the noise clearly.
    """
    if reading.rank is None or len(best.features) <= reading.rank + 1:
        return best
    if abs(math.log(reading.noise_variance / best.noise_variance)) > math.log(NOISE_CHANGE):
        return best
    rows, noise = problem.rows, reading.noise_variance
    hottest = max(FULL.hottest, rows.energy / (rows.n_rows * rows.dim * noise))
    slow = FULL._replace(hottest=hottest, n_steps=SLOWER * FULL.n_steps)
    capped = effort._replace(max_features=min(effort.max_features, reading.rank + 2))
    new = anneal(rng, problem, best.noise_variance, capped, slow)
    return max(best, new, key=lambda found: found.objective)


def _first_noises(reading: Reading, rows: MemoryRows) -> list[float]:
    """Initial noise variances: several, since few columns cannot separate signal from noise."""
    smallest = least_noise(rows)
    guess = max(reading.noise_variance, smallest)
    shrink = 10.0 ** -np.arange(3 if min(rows.n_rows, rows.dim) < FEW_COLUMNS else 1)
    return [max(guess * factor, smallest) for factor in shrink]


def nothing(rows: MemoryRows, noise_variance: float | None) -> Start:
    """No features; the noise of rows of zeros is unknown and set to 1."""
    size = max(rows.n_rows * rows.dim, 1)
    noise = noise_variance or rows.energy / size or 1.0
    log_lik = -0.5 * size * math.log(2.0 * math.pi * noise) - 0.5 * rows.energy / noise
    return Start(*empty(rows), noise, log_lik)


# ---------------------------------------------------------------- a first guess of the noise


class Reading(NamedTuple):
    """Variance of the noise from a spectrum, and the rank of the signal if that is clear."""

    noise_variance: float
    rank: int | None


def read_spectrum(rng: np.random.Generator, rows: MemoryRows) -> Reading:
    r"""Noise and rank of the signal, assuming a rank of at most half of min(N, D).

    If k directions are signal, the other eigenvalues of the (n, m) matrix, n <= m, are noise:
    their sum is about :math:`\sigma^2 (n-k)(m-k)` and, by Marchenko and Pastur, their largest
    about :math:`\sigma^2 (\sqrt{n-k} + \sqrt{m-k})^2`. The answer is the smallest k for which the
    two agree. If none does (spectra of real data fall slowly) the rank is None, and the noise the
    mean of the lower half, which may be too small or too large: refine it by the residuals of a
    fit. Columns of zeros are ignored.
    """
    values, n_long = spectrum(rng, rows)
    values = values[values > ZERO * values.max(initial=0.0)]
    if not len(values):
        return Reading(0.0, None)
    tails = np.cumsum(values[::-1])[::-1]
    variance = 0.0
    for k in range(len(values) // 2 + 1):
        short, long = len(values) - k, max(n_long - k, 1)
        variance = float(tails[k] / (short * long))
        if values[k] <= SLACK * variance * (np.sqrt(short) + np.sqrt(long)) ** 2:
            return Reading(variance, k)
    return Reading(variance, None)


def spectrum(rng: np.random.Generator, rows: MemoryRows) -> tuple[np.ndarray, int]:
    """Eigenvalues of the smaller Gram matrix, falling, and the length of the longer side."""
    if rows.dim <= MOST_COLUMNS:
        gram, count = np.zeros((rows.dim, rows.dim)), rows.n_rows
        for first in range(0, rows.n_rows, 4096):
            block = rows.dense_block(slice(first, first + 4096)).astype(float)
            gram += block.T @ block
        short, long = sorted((count, rows.dim))
    else:
        some = np.sort(rng.choice(rows.n_rows, min(rows.n_rows, MOST_ROWS), replace=False))
        block = rows.dense_block(some).astype(float)
        gram = block @ block.T
        short, long = sorted((len(some), rows.dim))
    values = np.maximum(np.linalg.eigvalsh(gram)[::-1], 0.0)
    return values[:short], long


# ---------------------------------------------------------------- groups of features


class Cluster(NamedTuple):
    """Some features as a separate problem: the residual of the others, in the space they span."""

    members: np.ndarray
    basis: np.ndarray
    """Orthonormal, (r, D)."""
    problem: Problem
    features: np.ndarray
    assignments: np.ndarray


def hop(
    rng: np.random.Generator, problem: Problem, best: Start, tries: np.ndarray, effort: Effort
) -> Start | None:
    """Revise a cluster of features; None if nothing better was found.

    Noise that is isotropic stays so in a subspace, so the small problem is of the same kind as the
    large one. ``tries`` counts the hops that began at each feature, and is updated, so that the
    next hops begin at others.
    """
    members = choose_cluster(rng, best, tries)
    tries[members[0]] += 1
    cluster = project(rng, problem, best, members)
    room = effort.max_features - len(best.features) + len(members)
    effort = effort._replace(patience=1, launch_rows=LAUNCH_ROWS, max_features=room)
    features = rethink(rng, cluster, best.noise_variance, effort)
    if features is None:
        return None
    others = np.delete(np.arange(len(best.features)), members)
    features = np.vstack([best.features[others], features @ cluster.basis])
    none = np.zeros((problem.rows.n_rows, len(features) - len(others)), np.uint8)
    joined = np.hstack([best.assignments[:, others], none])
    joined = draw_assignments(None, problem.rows, features, joined, best.noise_variance, 3)
    return settle(problem, joined, best.noise_variance)


def rethink(
    rng: np.random.Generator, cluster: Cluster, noise_variance: float, effort: Effort
) -> np.ndarray | None:
    """Features that explain the cluster better: annealed again, without some, or unfolded."""
    small, features, assignments = cluster.problem, cluster.features, cluster.assignments
    before = settle(small, assignments, noise_variance).objective + WORTH
    size, kind = len(features), rng.integers(3)
    if kind == 0:
        rank = effective_rank(features)
        # More features than dimensions indicate a wrong solution, such as a + b, -a, -b.
        exact = rank < size and rng.random() < 0.7  # noqa: PLR2004
        cap = rank if exact else int(rng.integers(max(1, size // 2), size + 2))
        effort = effort._replace(max_features=min(cap, effort.max_features))
        new = anneal(rng, small, noise_variance, effort)
        return new.features if new.objective > before else None
    if kind == 1:
        gone = rng.choice(size, int(rng.integers(1, min(size, 3) + 1)), replace=False)
        start, cap = (np.delete(features, gone, 0), np.delete(assignments, gone, 1)), size
    else:
        start, cap = unfold(features, assignments, int(rng.integers(size))), size + 1
    new = settle(small, start[1], noise_variance)
    if new.objective < before:
        again = AGAIN._replace(hottest=rng.uniform(1.5, 8.0))
        effort = effort._replace(max_features=min(cap, effort.max_features))
        new = anneal(rng, small, noise_variance, effort, again, start)
    return new.features if new.objective > before else None


def unfold(
    features: np.ndarray, assignments: np.ndarray, base: int
) -> tuple[np.ndarray, np.ndarray]:
    r"""Read "base image minus features" as the features themselves.

    :math:`w_0 - \sum_j z_j v_j`, with :math:`w_0 = \sum_j v_j`, is :math:`\sum_j (1 - z_j) v_j`:
    drop the base, negate features that point against it, and flip their assignments among the
    base's rows.
    """
    against = features @ features[base] < 0
    features, assignments = features.copy(), assignments.copy()
    features[against] *= -1.0
    assignments[:, against] = assignments[:, [base]] & (1 - assignments[:, against])
    return np.delete(features, base, 0), np.delete(assignments, base, 1)


def effective_rank(features: np.ndarray) -> int:
    """Number of dimensions that the features effectively span."""
    return int(np.sum(np.linalg.svd(_unit(features), compute_uv=False) > DEPENDENT))


def choose_cluster(rng: np.random.Generator, best: Start, tries: np.ndarray) -> np.ndarray:
    """Features that are linearly dependent, or a feature and those that depend on it."""
    most = min(len(best.features), LARGEST_CLUSTER)
    if rng.random() < 0.5:  # noqa: PLR2004
        unit = _unit(best.features)
        values, vectors = np.linalg.eigh(unit @ unit.T)
        null = vectors[:, values < DEPENDENT**2]
        if null.shape[1]:
            weights = np.abs(null @ rng.standard_normal(null.shape[1]))
            order = np.argsort(-weights)[:most]
            return order[weights[order] > 0.2 * weights.max()]
    strength = dependence(rng, best.features, best.assignments)
    weights = (strength.max(axis=1) ** 2 + 1e-3) * 0.25**tries
    first = rng.choice(len(weights), p=weights / weights.sum())
    if rng.random() < 0.5:  # noqa: PLR2004
        near = np.argsort(-strength[first])[: most - 1]
        return np.append(first, near[strength[first, near] > STRONG])
    weights = strength[first] ** 2 + 1e-3
    weights[first] = 0.0
    n_others = int(rng.integers(most))
    if n_others == 0:
        return np.array([first])
    others = rng.choice(len(weights), n_others, replace=False, p=weights / weights.sum())
    return np.append(first, others)


def dependence(
    rng: np.random.Generator, features: np.ndarray, assignments: np.ndarray
) -> np.ndarray:
    """Larger of |cosine| of two features and |correlation| of their rows; 0 with itself."""
    unit = _unit(features)
    some = rng.integers(len(assignments), size=min(len(assignments), CLUSTER_ROWS))
    centred = assignments[some] - assignments[some].mean(axis=0, dtype=np.float64)
    centred /= np.maximum(np.linalg.norm(centred, axis=0), 1e-12)
    strength = np.maximum(np.abs(unit @ unit.T), np.abs(centred.T @ centred))
    np.fill_diagonal(strength, 0.0)
    return strength


def project(
    rng: np.random.Generator, problem: Problem, best: Start, members: np.ndarray
) -> Cluster:
    """Residual of the other features for some rows, in the space that the members span."""
    n_rows = problem.rows.n_rows
    rows, assignments = problem.rows, best.assignments
    if n_rows > CLUSTER_ROWS:
        some = np.sort(rng.choice(n_rows, CLUSTER_ROWS, replace=False))
        rows, assignments = rows.take(some), assignments[some]
    others = np.delete(np.arange(len(best.features)), members)
    basis = np.linalg.qr(best.features[members].T)[0].T
    left = rows.products(basis)
    left -= assignments[:, others] @ (best.features[others] @ basis.T)
    small = Problem(MemoryRows(left), problem.full_dim, stop=problem.stop)
    return Cluster(members, basis, small, best.features[members] @ basis.T, assignments[:, members])


def _unit(features: np.ndarray) -> np.ndarray:
    return features / np.linalg.norm(features, axis=1, keepdims=True)
