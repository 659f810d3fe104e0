"""Calibration of class probabilities, and of intervals of a quantity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from wideangle.plots import style
from wideangle.presentation.classifier import reliability
from wideangle.presentation.regressor import coverage, levels_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COVERED = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Intervals whose coverage is drawn."""


def outcomes(proba: np.ndarray, y: Any, classes: Any) -> tuple[np.ndarray, np.ndarray, str]:
    """What happened, its probability and its name.

    For two classes that the second one came; for more, that the most probable class was right.
    """
    y, classes = np.asarray(y), np.asarray(classes)
    if len(classes) == 2:  # noqa: PLR2004
        return y == classes[1], proba[:, 1], f"class {classes[1]}"
    return classes[np.argmax(proba, axis=1)] == y, proba.max(axis=1), "a right answer"


def calibration(model: Any, X: Any, y: Any, *, n_bins: int = 10, ax: Any = None) -> Figure:
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
    """
    happened, probability, name = outcomes(model.predict_proba(X), y, model.classes_)
    found = reliability(happened, probability, n_bins)
    ax, reach = _diagonal(ax, found)
    ax.errorbar(found.predicted, found.observed, reach, fmt="none", ecolor=style.PALETTE[0],
                elinewidth=1.4, alpha=0.6, zorder=2)  # fmt: skip
    size = 18 + 130 * found.count / found.count.max()
    ax.scatter(
        found.predicted, found.observed, s=size, color=style.PALETTE[0], edgecolors="white",
        linewidths=0.8, zorder=3, label="rows",
    )  # fmt: skip
    style.tidy(ax, "Are the probabilities calibrated?", style.shorten(f"probability of {name}", 44),
               "observed frequency")  # fmt: skip
    return _finished(ax, len(happened), found.error)


def interval_calibration(model: Any, X: Any, y: Any, *, ax: Any = None) -> Figure:
    """Level of central intervals against the share of rows they hold; the diagonal is right.

    Use rows that the model has not seen. Bars are 90 % intervals for the true share.

    Parameters
    ----------
    model
        A fitted regressor with ``predict_quantiles``.
    X, y
        Held-out rows and their targets.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.
    """
    y = np.asarray(y, float)
    found = coverage(y, model.predict_quantiles(X, levels_of(COVERED)))
    ax, reach = _diagonal(ax, found)
    ax.errorbar(COVERED, found.observed, reach, fmt="o", ms=5, color=style.PALETTE[0],
                elinewidth=1.4, markeredgecolor="white", zorder=2, label="rows")  # fmt: skip
    style.tidy(ax, "Are the intervals calibrated?", "interval", "share of rows inside")
    return _finished(ax, len(y), float(np.mean(np.abs(found.observed - np.array(COVERED)))))


def _diagonal(ax: Any, found: Any) -> tuple[Any, np.ndarray]:
    """Axes with the line on which all is right, and how far intervals reach from what was seen."""
    ax = style.axes_for(ax, 3.9, 3.7)
    ax.plot([0, 1], [0, 1], color=style.PALE, lw=1.2, zorder=1)
    return ax, np.abs(np.stack([found.low, found.high]) - found.observed)


def _finished(ax: Any, n_rows: int, gap: float) -> Figure:
    """Equal axes from 0 to 1, with the number of rows and the mean gap."""
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    ax.set_aspect("equal")
    ax.text(0.99, 0.02, f"{n_rows} rows\nmean gap {gap:.3f}", ha="right",
            fontsize=style.SMALL, color=style.INK, transform=ax.transAxes)  # fmt: skip
    return ax.figure
