"""Draws against those of a reference: means, quantiles, and the maximum mean discrepancy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpyro.diagnostics import effective_sample_size

FOLDER = Path(__file__).parent
LEVELS = (0.1, 0.5, 0.9)
MOST = 500
"""Draws of each side in a discrepancy."""
SHUFFLES = 1000


def reference(name: str) -> dict[str, np.ndarray]:
    """The stored draws, (chain, draw)."""
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as file:
        return {key: file[key].astype(np.float64) for key in file.files}


def z_scores(draws: dict[str, np.ndarray], known: dict[str, np.ndarray]) -> dict[str, float]:
    """Differences of means and of the shares below reference quantiles, in standard errors."""
    found = {}
    for name, right in known.items():
        left = np.asarray(draws[name], np.float64)
        found[f"{name}, mean"] = _z(left, right)
        for level in LEVELS:
            limit = np.quantile(right, level)
            # Half of what is equal: numbers are rounded, and some are whole.
            parts = [(one < limit) + 0.5 * (one == limit) for one in (left, right)]
            found[f"{name}, quantile {level}"] = _z(*parts)
    return found


def _z(left: np.ndarray, right: np.ndarray) -> float:
    away = left.mean() - right.mean()
    variance = sum(one.var() / n_effective(one) for one in (left, right))
    return float(away / np.sqrt(max(variance, 1e-12)))


def n_effective(values: np.ndarray) -> float:
    """Effective sample size; no more than there are draws."""
    if np.ptp(values) == 0:
        return 1.0
    return float(min(effective_sample_size(values), values.size))


def discrepancy(draws: dict[str, np.ndarray], known: dict[str, np.ndarray]) -> tuple[float, float]:
    """Maximum mean discrepancy (unbiased, squared) of all numbers at once, and its p-value.

    Of each side as many draws are taken as are worth independent ones, evenly spaced, so that they
    can be exchanged at random. The kernel is Gaussian, as wide as the median distance.
    """
    rng = np.random.default_rng(0)
    sides = []
    for side in (draws, known):
        n = min(MOST, int(min(n_effective(np.asarray(side[name], float)) for name in known)))
        table = np.column_stack([np.ravel(side[name]) for name in known])
        sides.append(table[np.linspace(0, len(table) - 1, n).astype(int)])
    scale = np.concatenate([known[name].reshape(-1, 1) for name in known], axis=1)
    both = (np.concatenate(sides) - scale.mean(axis=0)) / scale.std(axis=0)
    squares = np.sum((both[:, None] - both[None]) ** 2, axis=-1)
    kernel = np.exp(-squares / np.median(squares))
    np.fill_diagonal(kernel, 0.0)
    n, m = map(len, sides)
    here = np.arange(n + m) < n

    def value(left: np.ndarray) -> float:
        a, b = left / n, ~left / m
        return float(
            a @ kernel @ a * n / (n - 1) + b @ kernel @ b * m / (m - 1) - 2 * (a @ kernel @ b)
        )

    seen = value(here)
    others = [value(rng.permutation(here)) for _ in range(SHUFFLES)]
    return seen, (1 + sum(other >= seen for other in others)) / (1 + SHUFFLES)
