r"""Weights of chains that do not mix: stacking of their predictive distributions.

Chains that sit in different modes of a posterior represent it in proportions that depend on where
they began. Stacking gives chain c the weight :math:`w_c` with which the mixture predicts best what
it was not fitted to,

.. math:: \max_w \sum_n \log \sum_c w_c\, p_c(y_n \mid \text{all but } n),

over weights that are not negative and add up to one (Yao, Vehtari and Gelman, 2022,
arXiv:2006.12335). It is about predictions, not about the posterior: numbers of components are not
to be averaged with these weights.

The leave-one-out densities of a chain come from its draws by importance sampling, where the largest
ratios are replaced by quantiles of a generalised Pareto distribution fitted to them (Vehtari,
Simpson, Gelman, Yao and Gabry, 2024, arXiv:1507.02646).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

LEAST = 0.01
"""Chains of less weight get none: they would cost a prediction draws and change nothing."""
MAX_STEPS, CLOSE = 300, 1e-3
"""Most steps of the ascent, and the log density per datum, in nats, up to which it is exact."""
N_BOOTSTRAP = 32
"""Random weights of the data over which the weights of chains are averaged."""
UNRELIABLE = 0.7
"""Shape of the Pareto distribution above which a leave-one-out density is not to be trusted."""
LEAST_TAIL = 5
"""Fewer ratios have no tail to fit."""
PRIOR_DRAWS, PRIOR_QUARTILE = 10, 3
"""Strength of the prior of the shape, and scale of that of the inverse scale, in the paper."""


class LeaveOneOut(NamedTuple):
    """Leave-one-out log densities of N rows, and how far each is to be trusted."""

    log_density: np.ndarray
    pareto_k: np.ndarray


def leave_one_out(log_lik: np.ndarray, row_weights: np.ndarray | None = None) -> LeaveOneOut:
    """Log density of each row given all others, from those (S, N) in each draw.

    ``row_weights`` (N,) are how often each row counts; leaving it out leaves out all of that.
    """
    log_lik = np.asarray(log_lik, np.float64).T
    weights = np.ones(len(log_lik)) if row_weights is None else np.asarray(row_weights)
    log_ratios, shapes = smoothed(-weights[:, None] * log_lik)
    total = np.logaddexp.reduce(log_ratios, axis=1)
    return LeaveOneOut(np.logaddexp.reduce(log_ratios + log_lik, axis=1) - total, shapes)


def smoothed(log_ratios: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log importance ratios (N, S) with smoothed tails, the largest at most 0, and shapes (N,)."""
    ratios = log_ratios - log_ratios.max(axis=1, keepdims=True)
    n_draws = ratios.shape[1]
    n_tail = int(np.ceil(min(n_draws / 5.0, 3.0 * n_draws**0.5)))
    if n_tail < LEAST_TAIL:
        return ratios, np.full(len(ratios), np.inf)
    order = np.argsort(ratios, axis=1)
    cut = np.take_along_axis(ratios, order[:, -n_tail - 1, None], axis=1)
    tail_places = order[:, -n_tail:]
    tail = np.exp(np.take_along_axis(ratios, tail_places, axis=1)) - np.exp(cut)
    moving = tail[:, int(n_tail / 4 + 0.5) - 1] > 0
    shapes = np.full(len(ratios), -np.inf)  # of ratios that are all alike
    shape, scale = _fit_pareto(tail[moving])
    shapes[moving] = shape
    chances = -np.log1p(-np.arange(0.5, n_tail) / n_tail)
    quantiles = scale[:, None] * _expm1_ratio(shape[:, None], chances)
    new = np.minimum(np.log(quantiles + np.exp(cut[moving])), 0.0)
    result = ratios.copy()
    rows = np.flatnonzero(moving)[:, None]
    result[rows, tail_places[moving]] = new
    return result, shapes


def _expm1_ratio(shape: np.ndarray, x: np.ndarray) -> np.ndarray:
    """(exp(shape x) - 1) / shape, and x at shape 0."""
    small = np.abs(shape) < np.finfo(float).eps
    return np.where(small, x, np.expm1(shape * x) / np.where(small, 1.0, shape))


def _fit_pareto(tail: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shape and scale of generalised Pareto distributions, one for each sorted row.

    The posterior mean of Zhang and Stephens (2009), with the weak prior of the shape at 0.5 that
    importance sampling needs.
    """
    n = tail.shape[1]
    n_grid = 30 + int(n**0.5)
    grid = 1.0 - np.sqrt(n_grid / (np.arange(1, n_grid + 1) - 0.5))
    inverse = grid / (PRIOR_QUARTILE * tail[:, int(n / 4 + 0.5) - 1, None]) + 1.0 / tail[:, -1:]
    shapes = np.stack([np.log1p(-b[:, None] * tail).mean(axis=1) for b in inverse.T], axis=1)
    log_posterior = n * (np.log(-inverse / shapes) - shapes - 1.0)
    weights = np.exp(log_posterior - log_posterior.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    best = np.sum(inverse * weights, axis=1)
    shape = np.log1p(-best[:, None] * tail).mean(axis=1)
    return (n * shape + 0.5 * PRIOR_DRAWS) / (n + PRIOR_DRAWS), -shape / best


def stack(log_density: np.ndarray, row_weights: np.ndarray | None = None) -> np.ndarray:
    """Weights of chains (C,) whose mixture has the largest log density (C, N) of left-out data.

    Of few data the best weights are those of one chain, by chance. The result is therefore the mean
    of the best weights over random weights of the data (the Bayesian bootstrap): chains that the
    data cannot tell apart share. ``row_weights`` (N,) are how often each datum counts.
    """
    n = log_density.shape[1]
    counts = np.ones(n) if row_weights is None else np.asarray(row_weights, np.float64)
    random = np.random.default_rng(0).exponential(size=(N_BOOTSTRAP, n))
    weights = np.mean(best_weights(log_density, counts * random), axis=0)
    weights = np.where(weights < LEAST, 0.0, weights)
    return weights / weights.sum()


def best_weights(log_density: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Best weights (B, C) of chains for each of several weights (B, N) of the data.

    Expectation-maximisation of the shares of a mixture; the objective is concave.
    """
    density = np.exp(log_density - log_density.max(axis=0))
    counts = counts / counts.sum(axis=1, keepdims=True)
    weights = np.full((len(counts), len(density)), 1.0 / len(density))
    for _ in range(MAX_STEPS):
        gains = (counts / (weights @ density)) @ density.T
        weights = weights * gains
        if gains.max() < 1.0 + CLOSE:  # the largest gain bounds what is left
            break
    return weights / weights.sum(axis=1, keepdims=True)
