"""Weights of rows that single precision can count with."""

from __future__ import annotations

import numpy as np

HEAVIEST = 1e12
"""Most weight of all rows together: posteriors of more are points, and squares overflow."""


def rows_that_count(weights: np.ndarray) -> np.ndarray:
    """Which rows have a weight that is more than 0 in single precision; refuses extreme ones."""
    total = float(np.max(weights, initial=0.0)) * len(weights)  # a bound that cannot overflow
    if total > HEAVIEST:
        raise ValueError(
            f"sample_weight: the largest is {np.max(weights):g}, and a row of weight w counts as w "
            f"rows; divide all weights so that they add up to at most {HEAVIEST:g}."
        )
    live = weights.astype(np.float32) > 0
    if not np.any(live):
        raise ValueError(
            "sample_weight: all rows have weight 0 (or less than 1e-45, which is 0 in single "
            "precision); give some a positive one."
        )
    return live
