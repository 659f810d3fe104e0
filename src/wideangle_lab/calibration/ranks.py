r"""Are ranks uniform? The test behind simulation-based calibration.

Unknowns :math:`\theta` come from the prior, data from the model given :math:`\theta`, and draws
:math:`\theta_1..\theta_L` from a sampler of the posterior. If the sampler is right, the rank of
:math:`f(\theta)` among the :math:`f(\theta_i)` is uniform on 0..L for every f, whatever the prior,
the model and the data (Talts and others 2018).
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy import stats

N_BINS = 16
N_REFERENCE = 20_000
"""Simulated sets of uniform ranks behind a p-value of the ECDF test."""
INTERVALS = (0.5, 0.8, 0.95)


class Uniformity(NamedTuple):
    """Result of the test of one quantity."""

    counts: list[int]
    """How often each rank 0..L occurred."""
    chi_square: float
    """P-value of Pearson's test of the counts, in at most :data:`N_BINS` bins."""
    ecdf: float
    """P-value of the largest excursion of the empirical distribution function."""
    coverage: list[float]
    """Share of truths inside the central intervals of :data:`INTERVALS`."""
    mean: float
    """Mean of (rank + 1/2)/(L + 1), 1/2 if uniform; below 1/2, draws are too large."""

    @property
    def p_value(self) -> float:
        """Twice the smaller p-value (Bonferroni)."""
        return min(1.0, 2.0 * min(self.chi_square, self.ecdf))


def rank(truth: np.ndarray, draws: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rank of each truth (S,) among its draws (S, L), 0..L; ties are broken at random.

    Among e equal draws the truth takes each of the e + 1 places with the same probability, so
    that discrete quantities have uniform ranks too.
    """
    below = np.sum(draws < truth[:, None], axis=1)
    equal = np.sum(draws == truth[:, None], axis=1)
    return below + rng.integers(0, equal + 1)


def assess(ranks: np.ndarray, n_draws: int) -> Uniformity:
    """Test ranks 0..L for uniformity."""
    every = np.bincount(ranks, minlength=n_draws + 1)
    place = (ranks + 0.5) / (n_draws + 1)
    return Uniformity(
        counts=every.tolist(),
        chi_square=float(stats.chisquare(in_bins(every)).pvalue),
        ecdf=ecdf_p_value(every),
        coverage=[float(np.mean(np.abs(place - 0.5) < 0.5 * width)) for width in INTERVALS],
        mean=float(place.mean()),
    )


def in_bins(every: np.ndarray) -> np.ndarray:
    """Counts of the ranks in at most :data:`N_BINS` equal bins."""
    n_bins = min(N_BINS, len(every))
    if len(every) % n_bins:
        raise ValueError(f"{len(every)} ranks cannot be put into {n_bins} equal bins.")
    return np.reshape(every, (n_bins, -1)).sum(axis=1)


def ecdf_p_value(every: np.ndarray) -> float:
    r"""P-value of the most surprising point of the empirical distribution function.

    :math:`\min_i 2\min(P(B_i \le b_i), P(B_i \ge b_i))` with :math:`B_i` binomial, compared with
    its values for simulated uniform ranks (Säilynoja, Bürkner and Vehtari 2022).
    """
    total, size = int(every.sum()), len(every)
    found = _excursion(every[None], *_tails(total, size))[0]
    smaller = np.searchsorted(_reference(total, size), found, side="right")
    return float((smaller + 1) / (N_REFERENCE + 1))


def band(total: int, size: int, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Simultaneous band for the share of ranks below each place, minus the expected share."""
    lower, upper = _tails(total, size)
    allowed = np.quantile(_reference(total, size), 1.0 - level)
    expected = np.arange(1, size + 1) / size
    inside = 2.0 * np.minimum(lower, upper) >= allowed
    share = np.arange(total + 1) / total
    low = np.array([share[row].min() for row in inside]) - expected
    high = np.array([share[row].max() for row in inside]) - expected
    return low, high


@cache
def _tails(total: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """P(B <= b) and P(B >= b) for every place (rows) and count b (columns)."""
    chance = (np.arange(1, size + 1) / size)[:, None]
    count = np.arange(total + 1)[None]
    return stats.binom.cdf(count, total, chance), stats.binom.sf(count - 1, total, chance)


def _excursion(every: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    below = np.cumsum(every, axis=1)[:, :-1]
    place = np.arange(below.shape[1])[None]
    return 2.0 * np.minimum(lower[place, below], upper[place, below]).min(axis=1)


@cache
def _reference(total: int, size: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    sets = rng.multinomial(total, np.full(size, 1.0 / size), size=N_REFERENCE)
    return np.sort(_excursion(sets, *_tails(total, size)))
