"""Images made of a few shapes and noise: data whose features are known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

SHAPES = (
    "010000 111000 010000 000000 000000 000000",
    "000111 000101 000111 000000 000000 000000",
    "000000 000000 000000 100000 110000 111000",
    "000000 000000 000000 000111 000010 000010",
)
"""Plus, frame, triangle and T of the classic example, rows of 6 x 6 pixels."""


class Generated(NamedTuple):
    """Rows and the truth behind them."""

    X: np.ndarray
    """Observed, (N, D)."""
    signal: np.ndarray
    """Without noise: ``assignments @ features``."""
    features: np.ndarray
    """(K, D)."""
    assignments: np.ndarray
    """0 or 1, (N, K)."""


def block_images(
    seed: int = 0, n_rows: int = 1000, *, presence: float = 0.5, noise: float = 0.5
) -> Generated:
    """Four shapes on 6 x 6 pixels, each there or not, and noise.

    The classic example of Griffiths and Ghahramani (2005); the paper's Block-Images has 1000 rows.

    Parameters
    ----------
    seed : int
        The same seed gives the same images.
    n_rows : int
        Number of images.
    presence : float
        Probability of each shape.
    noise : float
        Standard deviation of a pixel.
    """
    features = np.array([[float(c) for c in shape if c in "01"] for shape in SHAPES])
    return _compose(np.random.default_rng(seed), features, n_rows, presence, noise)


def sparse_features(
    seed: int = 0,
    n_rows: int = 5000,
    n_columns: int = 200,
    n_features: int = 30,
    *,
    n_nonzero: int = 20,
    presence: float = 0.2,
    noise: float = 0.5,
) -> Generated:
    """Many sparse features, each there or not, and noise.

    Parameters
    ----------
    seed : int
        The same seed gives the same rows.
    n_rows : int
        Number of rows.
    n_columns : int
        Entries of a row.
    n_features : int
        Number of features.
    n_nonzero : int
        Entries of a feature that are not 0: standard normal, at random places.
    presence : float
        Probability of each feature.
    noise : float
        Standard deviation of an entry.
    """
    generator = np.random.default_rng(seed)
    features = np.zeros((n_features, n_columns))
    for row in features:
        places = generator.choice(n_columns, n_nonzero, replace=False)
        row[places] = generator.standard_normal(n_nonzero)
    return _compose(generator, features, n_rows, presence, noise)


def _compose(
    generator: np.random.Generator,
    features: np.ndarray,
    n_rows: int,
    presence: float,
    noise: float,
) -> Generated:
    assignments = (generator.random((n_rows, len(features))) < presence).astype(np.float64)
    signal = assignments @ features
    return Generated(
        signal + noise * generator.standard_normal(signal.shape), signal, features, assignments
    )
