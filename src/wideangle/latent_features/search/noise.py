"""A first guess of the noise, from the small singular values of the data."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wideangle.latent_features.rows.memory import FeatureRows

MOST_ROWS = 800
"""Rows looked at where there are more columns than this."""
MOST_COLUMNS = 800
ZERO = 1e-10
"""Share of the largest eigenvalue below which one is nothing but rounding."""
SLACK = 1.05
"""The largest eigenvalue of finite noise scatters around its limit by a few per cent."""


class Reading(NamedTuple):
    """What a spectrum says: variance of the noise, and the rank of the signal if that is clear."""

    noise_variance: float
    rank: int | None


def read_spectrum(rng: np.random.Generator, rows: FeatureRows) -> Reading:
    r"""Noise and rank of the signal, taking the rank to be at most half of min(N, D).

    If k directions are signal, the other eigenvalues of the (n, m) matrix, n <= m, are noise:
    their sum is about :math:`\sigma^2 (n-k)(m-k)` and, by Marchenko and Pastur, their largest
    about :math:`\sigma^2 (\sqrt{n-k} + \sqrt{m-k})^2`. The answer is the smallest k for which the
    two agree. If none does (spectra of real data fall slowly) the rank is None, and the noise the
    mean of the lower half, which may be too small or too large: refine it by the residuals of a
    fit. Columns of zeros count for nothing.
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


def spectrum(rng: np.random.Generator, rows: FeatureRows) -> tuple[np.ndarray, int]:
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
