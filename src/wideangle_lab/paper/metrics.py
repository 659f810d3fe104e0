r"""Metrics of predicted probabilities.

* accuracy, in per cent;
* log-loss: mean of :math:`-\log p(y_n)`, in nats, probabilities cut off at 1e-12;
* Brier score: mean of :math:`\sum_c (p_{nc} - 1[y_n = c])^2`, between 0 and 2;
* expected calibration error: over :data:`BINS` bins of equal width of the probability of the
  predicted class, the mean of |accuracy - mean probability| weighted by the rows in the bin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

BINS = 15
SMALLEST = 1e-12


def row_losses(y: np.ndarray, proba: np.ndarray) -> np.ndarray:
    """Negative log probability of the true class of every row."""
    return -np.log(np.maximum(proba[np.arange(len(y)), y], SMALLEST))


def evaluate(
    y: np.ndarray, proba: np.ndarray, groups: Mapping[str, np.ndarray] | None = None
) -> dict[str, Any]:
    """All metrics, and accuracy and log-loss within groups of rows."""
    losses = row_losses(y, proba)
    right = np.argmax(proba, axis=1) == y
    return {
        "n_test": len(y),
        "accuracy": 100.0 * float(np.mean(right)),
        "accuracy_error": 100.0 * standard_error(right),
        "log_loss": float(np.mean(losses)),
        "log_loss_error": standard_error(losses),
        "brier": brier(y, proba),
        "calibration_error": calibration_error(y, proba),
        "bins": BINS,
        "groups": {
            name: {
                "n_test": int(np.sum(mask)),
                "accuracy": 100.0 * float(np.mean(right[mask])),
                "log_loss": float(np.mean(losses[mask])),
            }
            for name, mask in (groups or {}).items()
            if np.any(mask)
        },
    }


def brier(y: np.ndarray, proba: np.ndarray) -> float:
    """Mean squared distance between probabilities and the truth."""
    truth = np.eye(proba.shape[1])[y]
    return float(np.mean(np.sum((proba - truth) ** 2, axis=1)))


def calibration_error(y: np.ndarray, proba: np.ndarray, bins: int = BINS) -> float:
    """Expected calibration error of the predicted class."""
    chosen = np.argmax(proba, axis=1)
    confidence = proba[np.arange(len(y)), chosen]
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    gap = (chosen == y) - confidence
    return float(np.sum(np.abs(np.bincount(place, gap, minlength=bins))) / len(y))


def standard_error(values: np.ndarray) -> float:
    """Standard error of a mean over rows; NaN for fewer than two."""
    n = len(values)
    return float(np.std(values, ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
