"""Calibration of class probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from wideangle.plots import style
from wideangle.presentation.classifier import reliability

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
    style.tidy(ax, "Are the probabilities calibrated?", style.shorten(f"probability of {name}", 44),
               "observed frequency")  # fmt: skip
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    ax.set_aspect("equal")
    ax.text(0.99, 0.02, f"{len(happened)} rows\nmean gap {found.error:.3f}", ha="right",
            fontsize=style.SMALL, color=style.INK, transform=ax.transAxes)  # fmt: skip
    return ax.figure
