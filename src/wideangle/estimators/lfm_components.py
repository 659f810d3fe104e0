r"""Which features of a posterior draw matter, and what draws say about the training rows.

A draw of the feature model holds a few features that explain nothing, because the prior puts them
there. A feature *matters* if taking it away costs more log-likelihood than its price, about the
number of nats needed to write down its rows and its vector. Features that matter are matched across
draws by :mod:`wideangle.estimators.lfm_match`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import xlogy

from wideangle.models.held_out_rows import FeatureDraw

CHUNK_ROWS = 4096
"""Training rows handled at once."""


def removal_cost(draw: FeatureDraw, gram: Any, cross: Any) -> np.ndarray:
    r"""Log-likelihood lost by setting column k of Z to 0 and changing nothing else, (K,).

    .. math:: \frac{1}{2\sigma^2} \Big( 2 w_k \cdot \sum_n z_{nk} r_n + m_k |w_k|^2 \Big), \qquad
              \sum_n z_{nk} r_n = (Z^\top X - Z^\top Z W)_k,

    with residuals r and counts m: no pass over rows.

    Parameters
    ----------
    draw
        Features and noise variance.
    gram, cross
        :math:`Z^\top Z` (K, K) and :math:`Z^\top X` (K, D).
    """
    features = np.asarray(draw.features, np.float64)
    gram, cross = np.asarray(gram, np.float64), np.asarray(cross, np.float64)
    left = np.sum(features * (cross - gram @ features), axis=1)
    explained = 2.0 * left + np.diagonal(gram) * np.sum(features**2, axis=1)
    return explained / (2.0 * float(draw.noise_variance))


def price(draw: FeatureDraw, counts: Any, n_rows: int) -> np.ndarray:
    r"""Nats that a feature must earn, (K,).

    .. math:: N H(m_k / N) + \frac D2 \log\Big(1 + \frac{m_k |w_k|^2}{D \sigma^2}\Big),

    the entropy H of its column of Z and the precision to which the rows determine its vector. Both
    grow with the data, where a fixed share of the energy would fail with hundreds of features.
    """
    features = np.asarray(draw.features, np.float64)
    share = np.asarray(counts, np.float64) / max(n_rows, 1)
    entropy = -xlogy(share, share) - xlogy(1.0 - share, 1.0 - share)
    dim = features.shape[1]
    signal = share * n_rows * np.sum(features**2, axis=1) / (dim * float(draw.noise_variance))
    return n_rows * entropy + 0.5 * dim * np.log1p(signal)


def matters(
    draw: FeatureDraw, gram: Any, cross: Any, n_rows: int, factor: float = 1.0
) -> np.ndarray:
    """Features whose removal costs more than ``factor`` times their :func:`price`, (K,) of bool."""
    counts = np.diagonal(np.asarray(gram))
    return removal_cost(draw, gram, cross) > factor * price(draw, counts, n_rows)


def training_activation(draws: Sequence[FeatureDraw], index: np.ndarray) -> np.ndarray:
    """Share of the draws with a component in which a training row has it, (N, components).

    The mean is over the draws that have the component; times ``presence`` it is over all.
    """
    index = np.asarray(index)
    total = np.zeros((len(_assignments(draws[0])), index.shape[1]))
    for draw, numbers in zip(draws, index, strict=True):
        found = np.flatnonzero(numbers >= 0)
        for rows in _row_chunks(len(total)):
            total[rows, found] += _assignments(draw)[rows][:, numbers[found]]
    return total / np.maximum((index >= 0).sum(axis=0), 1)


def training_mean(draws: Sequence[FeatureDraw]) -> np.ndarray:
    """Posterior mean of Z W, (N, D), over all draws and all features, not only components."""
    total = np.zeros((len(_assignments(draws[0])), draws[0].features.shape[1]))
    for draw in draws:
        features = np.asarray(draw.features, np.float64)
        for rows in _row_chunks(len(total)):
            total[rows] += _assignments(draw)[rows].astype(np.float64) @ features
    return total / len(draws)


def sample_rows(draw: FeatureDraw, n_rows: int, rng: np.random.Generator) -> np.ndarray:
    """New rows (n_rows, D) from one draw; features of no training row are left out."""
    features = np.asarray(draw.features, np.float64)
    z = rng.random((n_rows, len(features))) < np.asarray(draw.sticks)
    noise = rng.standard_normal((n_rows, features.shape[1]))
    return z.astype(np.float64) @ features + np.sqrt(float(draw.noise_variance)) * noise


def _assignments(draw: FeatureDraw) -> np.ndarray:
    if draw.assignments is None:
        raise ValueError("the draw has no assignments of training rows.")
    return draw.assignments


def _row_chunks(n_rows: int) -> list[slice]:
    return [slice(i, i + CHUNK_ROWS) for i in range(0, n_rows, CHUNK_ROWS)]
