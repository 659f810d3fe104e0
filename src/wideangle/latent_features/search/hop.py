"""Second thoughts about a few features at a time, in the small space they span."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wideangle.latent_features.rows.memory import FeatureRows
from wideangle.latent_features.search.anneal import (
    Effort,
    Found,
    Schedule,
    anneal,
    draw_assignments,
    settle,
)
from wideangle.latent_features.search.launch import Problem

AGAIN = Schedule(hottest=4.0, n_steps=10, n_cool=3)
"""An anneal that keeps most of what it starts from; its first temperature is drawn."""
LARGEST_CLUSTER, CLUSTER_ROWS, LAUNCH_ROWS = 10, 1500, 300
"""How many features and rows a hop looks at, and how many rows its launches look at."""
STRONG = 0.3
"""Cosine or correlation from which two features are taken to lean on each other."""
DEPENDENT = 0.25
"""Singular value of unit features below which they are taken to be linearly dependent."""
WORTH = 1.0
"""Nats by which a change must raise the objective; less is scatter of the last few rows."""


class Cluster(NamedTuple):
    """Some features as a problem of their own: what the others leave, in the space they span."""

    members: np.ndarray
    basis: np.ndarray
    """Orthonormal, (r, D)."""
    problem: Problem
    features: np.ndarray
    assignments: np.ndarray


def hop(
    rng: np.random.Generator,
    problem: Problem,
    best: Found,
    tries: np.ndarray,
    effort: Effort,
    schedule: Schedule,
    *,
    learn_noise: bool,
) -> Found | None:
    """Rethink a cluster of features; None if nothing better was found within it.

    Noise that is isotropic stays so in a subspace, so the small problem is of the same kind as the
    large one. ``tries`` counts the hops that began at each feature, and
    is counted on: the next hops look elsewhere.
    """
    members = choose_cluster(rng, best, tries)
    tries[members[0]] += 1
    cluster = project(rng, problem, best, members)
    room = effort.max_features - len(best.features) + len(members)
    effort = effort._replace(patience=1, launch_rows=LAUNCH_ROWS, max_features=room)
    features = rethink(rng, cluster, best.noise_variance, effort, schedule)
    if features is None:
        return None
    others = np.delete(np.arange(len(best.features)), members)
    features = np.vstack([best.features[others], features @ cluster.basis])
    none = np.zeros((problem.rows.n_rows, len(features) - len(others)), np.uint8)
    joined = np.hstack([best.assignments[:, others], none])
    joined = draw_assignments(None, problem.rows, features, joined, best.noise_variance, 3)
    return settle(problem, joined, best.noise_variance, learn_noise=learn_noise)


def rethink(
    rng: np.random.Generator,
    cluster: Cluster,
    noise_variance: float,
    effort: Effort,
    schedule: Schedule,
) -> np.ndarray | None:
    """Features that explain the cluster's rows better: anneal afresh, without some, or unfolded."""
    small, features, assignments = cluster.problem, cluster.features, cluster.assignments
    before = settle(small, assignments, noise_variance).objective + WORTH
    size, kind = len(features), rng.integers(3)
    if kind == 0:
        rank = effective_rank(features)
        # More features than dimensions is the mark of a wrong solution, such as a + b, -a, -b.
        exact = rank < size and rng.random() < 0.7  # noqa: PLR2004
        cap = rank if exact else int(rng.integers(max(1, size // 2), size + 2))
        effort = effort._replace(max_features=min(cap, effort.max_features))
        new = anneal(rng, small, noise_variance, effort, schedule)
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
    drop the base, negate what points against it, and swap who has it among the base's rows.
    """
    against = features @ features[base] < 0
    features, assignments = features.copy(), assignments.copy()
    features[against] *= -1.0
    assignments[:, against] = assignments[:, [base]] & (1 - assignments[:, against])
    return np.delete(features, base, 0), np.delete(assignments, base, 1)


def effective_rank(features: np.ndarray) -> int:
    """Number of directions the features really span."""
    return int(np.sum(np.linalg.svd(_unit(features), compute_uv=False) > DEPENDENT))


def choose_cluster(rng: np.random.Generator, best: Found, tries: np.ndarray) -> np.ndarray:
    """Features that are linearly dependent, or a feature and those that lean on it."""
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
    rng: np.random.Generator, problem: Problem, best: Found, members: np.ndarray
) -> Cluster:
    """What the other features leave of some rows, in the space that the members span."""
    n_rows = problem.rows.n_rows
    rows, chosen = problem.rows, best.assignments
    if n_rows > CLUSTER_ROWS:
        some = np.sort(rng.choice(n_rows, CLUSTER_ROWS, replace=False))
        rows, chosen = rows.take(some), chosen[some]
    others = np.delete(np.arange(len(best.features)), members)
    basis = np.linalg.qr(best.features[members].T)[0].T
    seen = rows.products(basis).astype(float)
    seen -= chosen[:, others] @ (best.features[others] @ basis.T)
    small = Problem(FeatureRows(seen), problem.full_dim)
    return Cluster(members, basis, small, best.features[members] @ basis.T, chosen[:, members])


def _unit(features: np.ndarray) -> np.ndarray:
    return features / np.linalg.norm(features, axis=1, keepdims=True)
