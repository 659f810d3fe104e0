"""Numbers that statistical tests compare with a threshold (four standard errors, a KS p-value)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpyro.diagnostics import effective_sample_size
from scipy import stats

FOUR = 4.0
"""Standard errors a mean may be off; one right test in 16,000 fails, and seeds are fixed."""

RARE = 1e-4
"""Smallest p-value a right sampler may show; the same odds as four standard errors."""


class Measured(NamedTuple):
    """What a test of a fault found: a number that the fault must push beyond its limit."""

    what: str
    value: float
    limit: float


MEASURED: list[Measured] = []
"""Of the test that runs; ``known_faults.py`` reads it after each and makes a table."""


def measured(what: str, value: Any, limit: float) -> float:
    """Note a number and hand it back, so that a test can compare it with its limit."""
    MEASURED.append(Measured(what, float(value), limit))
    return float(value)


def relative_error(value: Any, truth: Any) -> float:
    """Largest relative error; where the truth is 0, the absolute one."""
    value, truth = np.asarray(value, float), np.asarray(truth, float)
    scale = np.where(truth == 0, 1.0, np.abs(truth))
    return float(np.max(np.abs(value - truth) / scale))


def z_score(draws: Any, truth: Any) -> float:
    """Largest distance of a mean over axis 0 from the truth, in standard errors."""
    draws, truth = np.asarray(draws, float), np.asarray(truth, float)
    error = draws.std(axis=0, ddof=1) / np.sqrt(len(draws))
    away = np.abs(draws.mean(axis=0) - truth)
    return float(np.max(away / np.maximum(error, 1e-300), where=away > 1e-9, initial=0.0))


def z_score_of_chains(chains: Any, truth: Any) -> float:
    """As :func:`z_score` for correlated draws of shape (chains, draws, ...)."""
    chains, truth = np.asarray(chains, float), np.asarray(truth, float)
    size = effective_sample_size(chains)
    error = chains.std(axis=(0, 1), ddof=1) / np.sqrt(size)
    return float(np.max(np.abs(chains.mean(axis=(0, 1)) - truth) / error))


def z_score_of_two(left: Any, right: Any) -> float:
    """Largest difference between the means of two samples, in standard errors."""
    left, right = np.asarray(left, float), np.asarray(right, float)
    error = np.sqrt(left.var(axis=0, ddof=1) / len(left) + right.var(axis=0, ddof=1) / len(right))
    return float(np.max(np.abs(left.mean(axis=0) - right.mean(axis=0)) / error))


def ks_pvalue(draws: Any, cdf: Callable[[np.ndarray], np.ndarray]) -> float:
    """P-value of the Kolmogorov-Smirnov test of draws against their exact distribution."""
    return float(stats.kstest(np.asarray(draws, float).ravel(), cdf).pvalue)


def central_difference(f: Callable[[np.ndarray], Any], x: Any, step: float = 1e-6) -> np.ndarray:
    """Gradient of a scalar function at an array, one coordinate at a time."""
    x = np.array(x, float)
    gradient = np.empty_like(x)
    for index in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = (float(f(up)) - float(f(down))) / (2.0 * step)
    return gradient
