"""Which rows use which components."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from wideangle.base import present
from wideangle.plots import numbers, style
from wideangle.posterior import evenly
from wideangle.presentation.family import Presentation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRID = 200
"""Points of the map along each axis."""


def activation_matrix(model: Any, X: Any, *, n_most: int = 400, ax: Any = None) -> Figure:
    """How much each row (across) uses each component (down), rows with alike patterns together.

    Parameters
    ----------
    model
        A fitted model.
    X
        Rows to show.
    n_most : int
        Most rows drawn, evenly spaced among those of X.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.
    """
    shown = present(model)
    numbers.check_some(shown)
    used = np.asarray(shown.activations(X))
    chosen = evenly(len(used), n_most)
    used = used[chosen][row_order(used[chosen])]
    n = used.shape[1]
    ax = style.axes_for(ax, 5.6, min(0.26 * n + 1.1, 8.0))
    image = ax.imshow(
        used.T, cmap=style.SEQUENTIAL, vmin=0, vmax=1, aspect="auto", interpolation="nearest"
    )
    word = shown.noun
    style.tidy(ax, f"Which rows use which {word}", f"{len(used)} rows, alike ones together", word)
    style.frameless(ax)
    step = max(1, n // 20)
    places = np.arange(0, n, step)
    shares = used.mean(axis=0)
    ax.set_yticks(places, labels=[f"{k + 1}  ({100 * shares[k]:.0f} %)" for k in places])
    ax.set_xticks([])
    for line in np.arange(0.5, n - 1):
        ax.axhline(line, color="white", lw=0.8)
    style.colour_bar(image, ax, "probability")
    return ax.figure


def row_order(used: np.ndarray) -> np.ndarray:
    """Order that puts rows of the same pattern together, and more certain ones first."""
    patterns = np.round(used[:, ::-1]).astype(int)
    return np.lexsort((*np.vstack([-used.max(axis=1)[None], -patterns.T]),))


def component_map(
    model: Any, X: Any, y: Any = None, *, n_most: int = 1500, ax: Any = None
) -> Figure:
    """Which component leads where.

    Two columns are drawn as they are, with the activations as background: the colours of components
    mix where several are active. More columns are projected onto the two directions along which the
    logarithms of the activations differ most.

    Parameters
    ----------
    model
        A fitted model.
    X
        Rows to show.
    y : array, optional
        Their classes, shown by markers.
    n_most : int
        Most rows drawn, evenly spaced among those of X.
    ax : matplotlib axes, optional
        Where to draw; by default on a new figure.
    """
    shown = present(model)
    numbers.check_some(shown)
    chosen = evenly(X.shape[0], n_most)
    X = X[chosen] if not hasattr(X, "iloc") else X.iloc[chosen]
    labels = None if y is None else np.asarray(y)[chosen]
    used = np.asarray(shown.activations(X))
    leader = np.argmax(used, axis=1)
    ax = style.axes_for(ax, 5.2, 3.9)
    direct = model.n_features_in_ == 2  # noqa: PLR2004
    if direct:
        points = np.asarray(X, float)
        names = shown.entry_names()[:2]
        _background(ax, shown, points)
    else:
        points = numbers.plane_of(used)
        names = ["log probabilities, main direction", "second direction"]
    _scatter(ax, points, leader, labels, direct)
    title = f"Which {shown.noun} leads where"
    style.tidy(ax, title, *(style.shorten(name, 40) for name in names))
    ax.legend(handles=_legend(shown.noun, used, leader, labels), frameon=False,
              fontsize=style.SMALL, loc="upper left", bbox_to_anchor=(1.0, 1.0),
              handletextpad=0.3)  # fmt: skip
    return ax.figure


def _background(ax: Any, shown: Presentation, points: np.ndarray) -> None:
    from matplotlib.colors import to_rgb

    x, y, grid = numbers.grid_over(points, GRID, 0.06)
    used = shown.activations(grid)
    shades = np.array([to_rgb(style.colour(k)) for k in range(used.shape[1])])
    mixed = 0.55 + 0.45 * (used @ shades)  # paler, so that points stand out
    ax.imshow(
        np.clip(mixed, 0, 1).reshape(GRID, GRID, 3), origin="lower", aspect="auto",
        extent=(x[0], x[-1], y[0], y[-1]), interpolation="bilinear",
    )  # fmt: skip


def _scatter(ax: Any, points: Any, leader: Any, labels: Any, direct: bool) -> None:
    shades = np.array([style.colour(k) for k in range(leader.max() + 1)])
    for number, label in enumerate([None] if labels is None else np.unique(labels)):
        member = np.ones(len(points), bool) if label is None else labels == label
        marker = style.MARKERS[number % len(style.MARKERS)]
        ax.scatter(
            *points[member].T, s=19, marker=marker, c=shades[leader[member]], alpha=0.9,
            edgecolors="white", linewidths=0.5 if direct else 0.3, label=str(label),
        )  # fmt: skip


def _legend(noun: str, used: np.ndarray, leader: np.ndarray, labels: Any) -> list[Any]:
    from matplotlib.lines import Line2D

    plain: dict[str, Any] = {"ls": "", "ms": 6}
    shares = used.mean(axis=0)
    handles = [
        Line2D([], [], marker="o", color=style.colour(k), label=f"{noun} {k + 1}: "
               f"{100 * shares[k]:.0f} %", **plain)
        for k in np.argsort(-shares) if np.any(leader == k)
    ]  # fmt: skip
    if labels is not None:
        handles += [
            Line2D([], [], marker=style.MARKERS[i % len(style.MARKERS)], color=style.FAINT,
                   label=style.shorten(f"class {c}"), **plain)
            for i, c in enumerate(np.unique(labels))
        ]  # fmt: skip
    return handles
