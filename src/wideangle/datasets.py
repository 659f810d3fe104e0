"""Data with a known truth, drawn from a seed: images made of shapes, and rows of hidden rules."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["Generated", "GeneratedClasses", "block_images", "mixture_data"]

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
    generator = np.random.default_rng(seed)
    features = np.array([[float(c) for c in shape if c in "01"] for shape in SHAPES])
    assignments = (generator.random((n_rows, len(features))) < presence).astype(np.float64)
    signal = assignments @ features
    X = signal + noise * generator.standard_normal(signal.shape)
    return Generated(X, signal, features, assignments)


class GeneratedClasses(NamedTuple):
    """Rows, their classes, and their experts."""

    X: np.ndarray
    """Observed, (N, D)."""
    y: np.ndarray
    """0 or 1, (N,)."""
    expert: np.ndarray
    """The expert that each row belongs to, (N,)."""


def mixture_data(
    seed: int = 0, n_rows: int = 2000, n_columns: int = 8, n_experts: int = 4, sharpness: float = 3
) -> GeneratedClasses:
    """Rows of a mixture of logistic experts: for each an expert by the gate, and its class by that.

    Parameters
    ----------
    seed : int
        The same seed gives the same rows.
    n_rows : int
        Number of rows.
    n_columns : int
        Entries of a row, standard normal.
    n_experts : int
        Number of experts.
    sharpness : float
        Standard deviation of the weights of gate and experts.
    """
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((n_rows, n_columns))
    gate, experts = sharpness * generator.standard_normal((2, n_columns, n_experts))
    # Gumbel's trick: the largest of scores plus Gumbel noise is a draw of the softmax.
    chosen = np.argmax(X @ gate + generator.gumbel(size=(n_rows, n_experts)), axis=1)
    scores = np.take_along_axis(X @ experts, chosen[:, None], axis=1)[:, 0]
    y = (generator.random(n_rows) < 1.0 / (1.0 + np.exp(-scores))).astype(np.int64)
    return GeneratedClasses(X.astype(np.float32), y, chosen)
