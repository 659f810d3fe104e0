"""Predictions of a quantity with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wideangle.base import present
from wideangle.plots import style
from wideangle.posterior import evenly
from wideangle.presentation.regressor import levels_of
from wideangle.types import as_dense

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRID = 200
"""Places along the column."""


def prediction_bands(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    column: int | str = 0,
    levels: Sequence[float] = (0.5, 0.9),
    n_most: int = 1500,
    ax: Any = None,
) -> Figure:
    """Prediction along one column, with bands that hold a share of the rows.

    The other columns stay at their medians over X.

    Parameters
    ----------
    model
        A fitted regressor with ``predict_quantiles``.
    X
        Rows: the range of the column, and the medians of the others.
    y : array, optional
        Their targets, drawn as points.
    column : int or str
        Number of the column, or its name.
    levels
        Shares of the bands, from 0 to 1.
    n_most : int
        Most points drawn, evenly spaced among those of X.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.
    """
    names = present(model).entry_names()
    place = names.index(column) if isinstance(column, str) else int(column)
    rows = as_dense(np.asarray(X) if hasattr(X, "columns") else X, slice(None), float)
    grid = np.repeat(np.median(rows, axis=0, keepdims=True), GRID, axis=0)
    along = np.linspace(rows[:, place].min(), rows[:, place].max(), GRID)
    grid[:, place] = along
    if hasattr(X, "columns"):  # as the model was fitted
        grid = type(X)(grid, columns=X.columns)
    widest_first = sorted(levels, reverse=True)
    found = model.predict_quantiles(grid, [*levels_of(widest_first), 0.5])
    n = len(widest_first)
    ax = style.axes_for(ax, 5.2, 3.6)
    if y is not None:
        chosen = evenly(len(rows), n_most)
        ax.scatter(rows[chosen, place], np.asarray(y)[chosen], s=9, color=style.FAINT,
                   linewidths=0, alpha=0.6, label="rows", zorder=1)  # fmt: skip
    for i, level in enumerate(widest_first):
        ax.fill_between(along, found[:, i], found[:, n + i], color=style.PALETTE[0],
                        alpha=0.18 + 0.14 * i, lw=0, label=f"{100 * level:.0f} %",
                        zorder=2)  # fmt: skip
    ax.plot(along, found[:, -1], color=style.PALETTE[0], lw=1.6, label="median", zorder=3)
    others = " (other columns at their medians)" if rows.shape[1] > 1 else ""
    style.tidy(ax, f"Predictions{others}", style.shorten(names[place], 44), "prediction")
    ax.legend(fontsize=style.SMALL, frameon=False)
    return ax.figure
