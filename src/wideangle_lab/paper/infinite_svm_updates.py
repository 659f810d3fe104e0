r"""Updates of the infinite SVM, each the minimiser of its objective in one block.

Letters as in :mod:`wideangle_lab.paper.infinite_svm`: shares are :math:`\phi`, weights :math:`\mu`,
gains :math:`y_n \mu_i \cdot f(x_n)`, U the coordinates and F the features of the rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from scipy.special import betaln, digamma, logsumexp
from sklearn.cluster import KMeans

TINY = 1e-12
"""Assignments below this are skipped by the solver of the margins."""
SWEEPS, BISECTIONS, STARTS = 30, 50, 20


class Clusters(NamedTuple):
    """The generative half of q: sticks Beta(a, b), means N(m, spread I), noise variance."""

    a: np.ndarray
    b: np.ndarray
    means: np.ndarray
    spread: np.ndarray
    noise: float


def first_shares(U: np.ndarray, n_components: int, alpha: float, seed: int) -> np.ndarray:
    """The best of several mixtures of the coordinates alone, from 1, 2, 4, ... clusters.

    Mean-field updates seldom empty a cluster that has rows, so the number of clusters is chosen
    here, by the same objective without the margins.
    """
    distinct = len(np.unique(U, axis=0))
    sizes = {min(2**power, n_components, distinct) for power in range(n_components.bit_length())}
    found = [_mixture(U, k, n_components, alpha, seed) for k in sorted(sizes | {n_components})]
    return min(found, key=lambda one: one[1])[0]


def _mixture(
    U: np.ndarray, k: int, n_components: int, alpha: float, seed: int
) -> tuple[np.ndarray, float]:
    """Start from slightly softened k-means clusters, with the other clusters nearly empty."""
    k = min(k, len(np.unique(U, axis=0)))
    labels = KMeans(k, n_init=3, random_state=seed).fit_predict(U)
    shares = np.full((len(U), n_components), TINY)
    shares[np.arange(len(U)), labels] = 1.0 - TINY * n_components
    shares = shares[:, np.argsort(-shares.sum(axis=0), kind="stable")]
    clusters = update_clusters(shares, U, alpha, noise=1.0)
    for _ in range(STARTS):
        shares = assign(log_density(clusters, U))
        shares = shares[:, best_order(shares.sum(axis=0), alpha)]
        clusters = update_clusters(shares, U, alpha, clusters.noise)
    nothing = np.zeros((n_components, 1)), np.zeros_like(shares)
    return shares, objective(shares, clusters, *nothing, U, alpha, 0.0)


def large_margin(
    F: np.ndarray,
    sign: np.ndarray,
    shares: np.ndarray,
    weights: np.ndarray,
    duals: np.ndarray,
    C: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Means of the classifiers: one SVM whose features are those of a row in all its clusters.

    Dual coordinate ascent from the last multipliers; kept only if the objective falls.
    """
    new = duals.copy()
    found = shares.T @ (F * (sign * new)[:, None])
    lengths = np.sum(F**2, axis=1) * np.sum(shares**2, axis=1)
    for _ in range(SWEEPS):
        order = rng.permutation(len(F))
        if _dual_sweep(F, sign, shares, found, new, lengths, C, order) < 1e-3 * C:
            break
    better = _margin_cost(F, sign, shares, found, C) <= _margin_cost(F, sign, shares, weights, C)
    return (found, new) if better else (weights, duals)


@numba.njit(cache=True)
def _dual_sweep(F, sign, shares, weights, duals, lengths, C, order):
    """One pass of dual coordinate ascent; returns the largest change of a multiplier."""
    largest = 0.0
    for n in order:
        margin = 0.0
        for i in range(shares.shape[1]):
            if shares[n, i] > TINY:
                margin += shares[n, i] * np.dot(weights[i], F[n])
        step = (1.0 - sign[n] * margin) / max(lengths[n], TINY)
        change = min(max(duals[n] + step, 0.0), C) - duals[n]
        if change != 0.0:
            duals[n] += change
            largest = max(largest, abs(change))
            for i in range(shares.shape[1]):
                if shares[n, i] > TINY:
                    weights[i] += change * sign[n] * shares[n, i] * F[n]
    return largest


def _margin_cost(
    F: np.ndarray, sign: np.ndarray, shares: np.ndarray, weights: np.ndarray, C: float
) -> float:
    margins = sign * np.sum(shares * (F @ weights.T), axis=1)
    return float(0.5 * np.sum(weights**2) + C * np.sum(np.maximum(0.0, 1.0 - margins)))


def assign(density: np.ndarray, gains: np.ndarray | None = None, C: float = 0.0) -> np.ndarray:
    r"""Shares of every row: exact minimiser of :math:`\sum_i \phi_i (\log \phi_i - d_i) + C h`.

    With h the hinge of :math:`\sum_i \phi_i g_i`. The dual is over one multiplier in [0, C]:
    :math:`\phi_i \propto e^{d_i + \omega g_i}`, and the margin grows with :math:`\omega`.
    """

    def shares_at(omega: np.ndarray) -> np.ndarray:
        logits = density + omega[:, None] * gains
        return np.exp(logits - logsumexp(logits, axis=1, keepdims=True))

    if gains is None:
        return np.exp(density - logsumexp(density, axis=1, keepdims=True))
    low, high = np.zeros(len(density)), np.full(len(density), C)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        short = np.sum(shares_at(middle) * gains, axis=1) < 1.0
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return shares_at(0.5 * (low + high))


def log_density(clusters: Clusters, U: np.ndarray) -> np.ndarray:
    """E log weight of a cluster + E log density of the coordinates in it, (N, T)."""
    both = digamma(clusters.a + clusters.b)
    stay, go = digamma(clusters.a) - both, digamma(clusters.b) - both
    log_weights = np.append(stay, 0.0) + np.append(0.0, np.cumsum(go))
    dim = U.shape[1]
    square = _squares(U, clusters.means) + dim * clusters.spread
    noise = clusters.noise
    return log_weights - 0.5 * (dim * np.log(2 * np.pi * noise) + square / noise)


def sticks(sizes: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Beta distributions of the sticks but the last, which is the rest."""
    later = np.cumsum(sizes[::-1])[::-1] - sizes
    return 1.0 + sizes[:-1], alpha + later[:-1]


def best_order(sizes: np.ndarray, alpha: float) -> np.ndarray:
    """The largest cluster first, where that makes the sticks more probable.

    Without it the last cluster, which has all weight beyond the truncation, attracts rows.
    """
    order = np.argsort(-sizes, kind="stable")
    gain = np.sum(betaln(*sticks(sizes[order], alpha))) - np.sum(betaln(*sticks(sizes, alpha)))
    return order if gain > 0 else np.arange(len(sizes))


def update_clusters(shares: np.ndarray, U: np.ndarray, alpha: float, noise: float) -> Clusters:
    """Sticks and means given the shares, then the noise given the means."""
    sizes = shares.sum(axis=0)
    a, b = sticks(sizes, alpha)
    spread = 1.0 / (1.0 + sizes / noise)
    means = (shares.T @ U) * (spread / noise)[:, None]
    square = np.sum(shares * (_squares(U, means) + U.shape[1] * spread))
    new_noise = max(float(square / U.size), 1e-6)
    return Clusters(a, b, means, spread, new_noise)


def objective(
    shares: np.ndarray,
    clusters: Clusters,
    weights: np.ndarray,
    gains: np.ndarray,
    U: np.ndarray,
    alpha: float,
    C: float,
) -> float:
    """KL divergence of q from the prior, including rows, plus the penalty of lost margins."""
    dim = U.shape[1]
    rows = np.sum(shares * (np.log(np.maximum(shares, 1e-300)) - log_density(clusters, U)))
    means = 0.5 * np.sum(
        np.sum(clusters.means**2, axis=1) + dim * (clusters.spread - 1.0 - np.log(clusters.spread))
    )
    hinge = np.sum(np.maximum(0.0, 1.0 - np.sum(shares * gains, axis=1)))
    weight = np.sum(_beta_divergence(clusters.a, clusters.b, alpha))
    return float(rows + means + weight + 0.5 * np.sum(weights**2) + C * hinge)


def _beta_divergence(a: np.ndarray, b: np.ndarray, alpha: float) -> np.ndarray:
    """KL(Beta(a, b) || Beta(1, alpha))."""
    total = digamma(a + b)
    return (
        betaln(1.0, alpha)
        - betaln(a, b)
        + (a - 1.0) * (digamma(a) - total)
        + (b - alpha) * (digamma(b) - total)
    )


def _squares(U: np.ndarray, means: np.ndarray) -> np.ndarray:
    return (U**2).sum(axis=1)[:, None] - 2 * U @ means.T + (means**2).sum(axis=1)
