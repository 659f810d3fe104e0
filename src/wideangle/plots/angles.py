"""How far apart components are: one heat map, and their angles against the prior's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from wideangle.base import present
from wideangle.plots import numbers, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_WRITTEN = 12
"""Components up to which the angles are written into the cells."""
BIN = 5.0
"""Width of a bin of angles, in degrees."""


def angle_heatmap(model: Any, *, ax: Any = None) -> Figure:
    """Angle between every pair of components: orange pairs are alike, purple ones opposed.

    Parameters
    ----------
    model
        A fitted model.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.
    """
    table = numbers.angles(model)
    n = len(table)
    side = min(max(2.6, 0.45 * n + 1.6), 7.0)
    ax = style.axes_for(ax, side + 0.9, side)
    shown = np.where(np.eye(n, dtype=bool), np.nan, table)
    image = ax.imshow(shown, cmap=style.TURNED, vmin=0, vmax=180)
    ax.set_facecolor("#F1F2F4")  # seen through the diagonal
    if n <= _MOST_WRITTEN:
        style.write_in_cells(ax, image, shown, "{:.0f}")
    style.tidy(ax, f"Angles between {present(model).noun}s")
    places = np.arange(0, n, max(1, n // 15))
    ax.set_xticks(places, labels=places + 1)
    ax.set_yticks(places, labels=places + 1)
    style.frameless(ax)
    style.lines_between_cells(ax, n, n)
    bar = style.colour_bar(image, ax, "")
    names = ["0° alike", "45°", "90°", "135°", "180° opposed"]
    bar.set_ticks([0, 45, 90, 135, 180], labels=names)
    return ax.figure


def angle_distribution(model: Any, *, ax: Any = None, n_sets: int = 500, seed: int = 0) -> Figure:
    """Angles of all pairs in posterior draws (bars) against draws of the prior (line).

    Where the bars differ from the line, the data have changed the angles; where both agree,
    the angles come from the prior alone.

    Parameters
    ----------
    model
        A fitted model of at least two components.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.
    n_sets, seed : int
        Sets of components drawn from the prior, and the seed of these draws.
    """
    found, expected = numbers.posterior_angles(model), numbers.prior_angles(model, n_sets, seed)
    if len(found) == 0 or len(expected) == 0:
        raise ValueError(f"the model has no two {present(model).noun}s to compare.")
    ax = style.axes_for(ax, 4.6, 2.9)
    edges = np.arange(0.0, 180.0 + BIN, BIN)
    ax.hist(
        found, edges, density=True, color=style.PALETTE[0], alpha=0.75, edgecolor="white", lw=0.4,
        label="posterior",
    )  # fmt: skip
    density, _ = np.histogram(expected, edges, density=True)
    middle = 0.5 * (edges[1:] + edges[:-1])
    ax.plot(middle, density, color=style.PALETTE[1], lw=2, label="prior")
    ax.axvline(90, color=style.PALE, lw=0.8, zorder=0)
    style.tidy(ax, f"Angles between {present(model).noun}s, posterior and prior", "degrees")
    ax.set(xlim=(0, 180), xticks=range(0, 181, 45), yticks=[])
    ax.spines["left"].set_visible(False)
    ax.legend(frameon=False, fontsize=style.TEXT, loc="upper left", handlelength=1.3)
    return ax.figure
