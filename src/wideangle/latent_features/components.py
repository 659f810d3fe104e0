r"""Which features of a posterior draw matter, and new rows from a draw.

A draw of the feature model holds a few features that explain nothing, because the prior puts them
there. A feature *matters* if taking it away costs more log-likelihood than its price, about the
number of nats needed to write down its rows and its vector. Features that matter are matched across
draws by :mod:`wideangle.latent_features.match`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import xlogy

from wideangle.latent_features.predict.held_out import FeatureDraw


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


def price(counts: Any, squares: Any, noise: float, n_rows: int, dim: int) -> np.ndarray:
    r"""Nats that features must earn, from the rows that use them and their squared lengths.

    .. math:: N H(m/N) + \tfrac D2 (1 + \log q), \qquad q = m |w|^2 / (D \sigma^2) > 1,

    and :math:`D q / 2` in place of the second term up to q = 1. The first term codes which of the N
    rows have the feature. The second is the difference between the likelihood at the least squares
    w, a gain of D q / 2, and the evidence of a Gaussian w of the best variance,
    :math:`(D/2)(q - 1 - \log q)`, which is 0 up to q = 1: a vector fitted to m rows of pure noise
    has q = 1 and is worth nothing, however large D is. Both grow with the data, where a fixed share
    of the energy would fail with hundreds of features.
    """
    share = np.asarray(counts, np.float64) / max(n_rows, 1)
    entropy = -xlogy(share, share) - xlogy(1.0 - share, 1.0 - share)
    q = np.asarray(counts, np.float64) * np.asarray(squares, np.float64) / (dim * noise)
    vector = np.where(q > 1.0, 1.0 + np.log(np.maximum(q, 1.0)), q)
    return n_rows * entropy + 0.5 * dim * vector


def matters(
    draw: FeatureDraw, gram: Any, cross: Any, n_rows: int, factor: float = 1.0
) -> np.ndarray:
    """Features whose removal costs more than ``factor`` times their :func:`price`, (K,) of bool."""
    counts = np.diagonal(np.asarray(gram))
    squares = np.sum(np.asarray(draw.features, np.float64) ** 2, axis=1)
    needed = price(counts, squares, float(draw.noise_variance), n_rows, draw.features.shape[1])
    return removal_cost(draw, gram, cross) > factor * needed


def sample_rows(draw: FeatureDraw, n_rows: int, rng: np.random.Generator) -> np.ndarray:
    """New rows (n_rows, D) from one draw; features of no training row are left out."""
    features = np.asarray(draw.features, np.float64)
    z = rng.random((n_rows, len(features))) < np.asarray(draw.sticks)
    noise = rng.standard_normal((n_rows, features.shape[1]))
    return z.astype(np.float64) @ features + np.sqrt(float(draw.noise_variance)) * noise
