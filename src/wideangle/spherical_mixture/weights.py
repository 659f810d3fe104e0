r"""Weights of the clusters: a Dirichlet distribution, or the sticks of a Dirichlet process.

Finite: :math:`\pi \sim \mathrm{Dirichlet}(\alpha/K, \dots, \alpha/K)`, with few clusters in use if
:math:`\alpha` is small compared with K. Infinite: :math:`\pi_k = v_k \prod_{j<k}(1 - v_j)` with
:math:`v_k \sim \mathrm{Beta}(1, \alpha)`, truncated here after the last cluster. Ascents keep the
whole distribution of the weights and not a point estimate: the density of a sparse Dirichlet
distribution is unbounded at the edges.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import betaln, digamma, gammaln

ALPHA_MEAN = 10.0
"""Mean of the exponential prior of alpha, if it is learned."""
_RANGE = np.log(1e-4), np.log(1e5)


class WeightFactors(NamedTuple):
    """The distribution of the weights given counts."""

    expected_log: np.ndarray
    """Expected log weights, (K,)."""
    means: np.ndarray
    """Expected weights, (K,)."""
    alpha: float
    gain: float
    """Part of the bound: expected log prior minus expected log factor."""
    counts: np.ndarray
    """Weight of the rows of each cluster, (K,)."""


def fit_weights(counts: np.ndarray, alpha: float, *, infinite: bool, learn: bool) -> WeightFactors:
    """The best factor given counts, then the best alpha given the factor."""
    first, rest = _parameters(counts, alpha, infinite)
    whole = digamma(first + rest)
    logs, others = digamma(first) - whole, digamma(rest) - whole
    if infinite:
        others[-1] = 0.0  # the last stick is all that is left
        logs[-1] = 0.0
    if learn:
        alpha = _best_alpha(logs, others, alpha, infinite)
    gain = _expected_log_prior(logs, others, alpha, infinite)
    gain -= _expected_log_factor(first, rest, logs, others, infinite)
    if learn:
        gain -= alpha / ALPHA_MEAN + np.log(ALPHA_MEAN)
    if not infinite:
        return WeightFactors(logs, first / first.sum(), alpha, gain, counts)
    parts = first / (first + rest)
    parts[-1] = 1.0
    left = np.append(1.0, np.cumprod(1.0 - parts)[:-1])
    expected = logs + np.append(0.0, np.cumsum(others)[:-1])
    return WeightFactors(expected, parts * left, alpha, gain, counts)


def _parameters(counts: np.ndarray, alpha: float, infinite: bool) -> tuple[np.ndarray, np.ndarray]:
    """Parameters of the Beta distributions of sticks, or of the Dirichlet's margins."""
    if infinite:
        after = np.append(np.cumsum(counts[::-1])[::-1][1:], 0.0)
        return 1.0 + counts, alpha + after
    first = alpha / len(counts) + counts
    return first, first.sum() - first


def _expected_log_prior(
    logs: np.ndarray, others: np.ndarray, alpha: float, infinite: bool
) -> float:
    n = len(logs)
    if infinite:
        return float((n - 1) * np.log(alpha) + (alpha - 1.0) * others[:-1].sum())
    share = alpha / n
    return float(gammaln(alpha) - n * gammaln(share) + (share - 1.0) * logs.sum())


def _expected_log_factor(
    first: np.ndarray, rest: np.ndarray, logs: np.ndarray, others: np.ndarray, infinite: bool
) -> float:
    if infinite:
        terms = (first - 1.0) * logs + (rest - 1.0) * others - betaln(first, rest)
        return float(terms[:-1].sum())
    terms = (first - 1.0) * logs - gammaln(first)
    return float(gammaln(first.sum()) + terms.sum())


def _best_alpha(logs: np.ndarray, others: np.ndarray, alpha: float, infinite: bool) -> float:
    if infinite:  # a Gamma density
        return float((len(logs) - 1) / (1.0 / ALPHA_MEAN - others[:-1].sum()) or alpha)

    def loss(log_alpha: float) -> float:
        value = np.exp(log_alpha)
        return value / ALPHA_MEAN - _expected_log_prior(logs, others, value, infinite)

    found = minimize_scalar(loss, bounds=_RANGE, method="bounded")
    return float(np.exp(found.x)) if found.fun < loss(np.log(alpha)) else alpha
