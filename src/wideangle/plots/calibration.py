"""Whether probabilities mean what they say."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.stats import beta

from wideangle.plots import style

LEVEL = 0.9
"""Share of the error bars that should hold the truth."""


class Reliability(NamedTuple):
    """Rows put together by what was predicted; bins without rows are left out."""

    predicted: np.ndarray
    """Mean probability of the rows of each bin."""
    observed: np.ndarray
    """How often it happened."""
    low: np.ndarray
    high: np.ndarray
    """Interval for the true frequency: quantiles of the Beta law after Jeffreys' prior."""
    count: np.ndarray
    error: float
    """Mean gap between the two, weighted by rows (expected calibration error)."""


def reliability(happened: Any, probability: Any, n_bins: int = 10) -> Reliability:
    """Compare probabilities with frequencies in ``n_bins`` equal bins of probability."""
    happened, probability = np.asarray(happened, float), np.asarray(probability, float)
    place = np.clip((probability * n_bins).astype(int), 0, n_bins - 1)
    count = np.bincount(place, minlength=n_bins)
    kept = count > 0
    hits = np.bincount(place, happened, n_bins)[kept]
    predicted = np.bincount(place, probability, n_bins)[kept] / count[kept]
    count = count[kept]
    tail = 0.5 * (1.0 - LEVEL)
    low, high = (beta.ppf(q, hits + 0.5, count - hits + 0.5) for q in (tail, 1.0 - tail))
    observed = hits / count
    error = float(np.sum(count * np.abs(observed - predicted)) / max(count.sum(), 1))
    return Reliability(predicted, observed, low, high, count, error)


def outcomes(proba: np.ndarray, y: Any, classes: Any) -> tuple[np.ndarray, np.ndarray, str]:
    """What happened, its probability and its name.

    For two classes that the second one came; for more, that the most probable class was right.
    """
    y, classes = np.asarray(y), np.asarray(classes)
    if len(classes) == 2:  # noqa: PLR2004
        return y == classes[1], proba[:, 1], f"class {classes[1]}"
    return classes[np.argmax(proba, axis=1)] == y, proba.max(axis=1), "a right answer"


def calibration(model: Any, X: Any, y: Any, *, n_bins: int = 10, ax: Any = None) -> Any:
    """Predicted probability against observed frequency, with 90 % intervals; the diagonal is right.

    Use rows that the model has not seen. For more than two classes the probability is that of the
    most probable class.

    Parameters
    ----------
    model
        A fitted classifier with ``predict_proba``.
    X, y
        Held-out rows and their classes.
    n_bins : int
        Equal bins of probability.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    happened, probability, name = outcomes(model.predict_proba(X), y, model.classes_)
    found = reliability(happened, probability, n_bins)
    ax = style.axes_for(ax, 3.9, 3.7)
    ax.plot([0, 1], [0, 1], color=style.PALE, lw=1.2, zorder=1)
    reach = np.abs(np.stack([found.low, found.high]) - found.observed)
    ax.errorbar(found.predicted, found.observed, reach, fmt="none", ecolor=style.PALETTE[0],
                elinewidth=1.4, alpha=0.6, zorder=2)  # fmt: skip
    size = 18 + 130 * found.count / found.count.max()
    ax.scatter(
        found.predicted, found.observed, s=size, color=style.PALETTE[0], edgecolors="white",
        linewidths=0.8, zorder=3, label="rows",
    )  # fmt: skip
    style.tidy(ax, "Do the probabilities hold?", style.shorten(f"probability of {name}", 44),
               "how often it was so")  # fmt: skip
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    ax.set_aspect("equal")
    ax.text(0.99, 0.02, f"{len(happened)} rows\nmean gap {found.error:.3f}", ha="right",
            fontsize=style.SMALL, color=style.INK, transform=ax.transAxes)  # fmt: skip
    return ax.figure
