"""What all pictures share: colours that anyone can tell apart, quiet axes, figures that show."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

INK = "#22262B"
PALE = "#C9CED6"
FAINT = "#8A8F98"
# Okabe and Ito's palette without its yellow, which is not seen on white, and black, which is text.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "^", "s", "D", "v", "P", "X", "*")
DIVERGING, SEQUENTIAL, TURNED = "RdBu_r", "cividis", "PuOr"
"""Colour maps of signed numbers, of amounts, and of angles around a right one."""
SMALL, TEXT, TITLE = 8.0, 9.0, 10.5


def colour(number: int) -> str:
    """Colour of a component; from the seventh on they repeat, and markers and names tell."""
    return PALETTE[number % len(PALETTE)]


def new_figure(width: float, height: float) -> Any:
    """An empty figure that a notebook shows by itself and that no global list keeps alive."""
    from matplotlib.figure import Figure

    class Picture(Figure):
        def _repr_png_(self) -> bytes:
            stream = io.BytesIO()
            self.savefig(stream, format="png", dpi=110)
            return stream.getvalue()

    return Picture(figsize=(width, height), facecolor="white", layout="constrained")


def axes_for(ax: Any, width: float, height: float) -> Any:
    """The axes that were given, or those of a new figure."""
    return new_figure(width, height).add_subplot() if ax is None else ax


def tidy(ax: Any, title: str = "", x: str = "", y: str = "") -> None:
    """Title, labels and thin axes."""
    if title:
        ax.set_title(title, fontsize=TITLE, color=INK, loc="left", pad=8)
    ax.set_xlabel(x, fontsize=TEXT, color=INK)
    ax.set_ylabel(y, fontsize=TEXT, color=INK)
    ax.tick_params(labelsize=SMALL, labelcolor=INK, color=PALE, length=3)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(PALE)


def frameless(ax: Any) -> None:
    """For pictures made of cells: the cells are the frame."""
    for spine in ax.spines.values():
        spine.set_visible(False)
    ax.tick_params(length=0)


def lines_between_cells(ax: Any, lines: int, columns: int) -> None:
    """Thin lines, so that pale cells can be told apart."""
    ax.set_xticks(np.arange(0.5, columns - 1), minor=True)
    ax.set_yticks(np.arange(0.5, lines - 1), minor=True)
    ax.grid(which="minor", color="#DDE1E6", lw=0.7)
    ax.tick_params(which="minor", length=0)


def colour_bar(image: Any, ax: Any, label: str) -> Any:
    """A thin bar beside the axes."""
    bar = ax.figure.colorbar(image, ax=ax, fraction=0.046, pad=0.03)
    bar.set_label(label, fontsize=TEXT, color=INK)
    bar.ax.tick_params(labelsize=SMALL, labelcolor=INK, length=2, color=PALE)
    bar.outline.set_visible(False)
    return bar


def write_in_cells(ax: Any, image: Any, values: np.ndarray, form: str) -> None:
    """Write each value that is a number into its cell, white where the cell is dark."""
    shades = image.cmap(image.norm(values))
    dark = shades[..., :3] @ np.array([0.2126, 0.7152, 0.0722]) < 0.5  # noqa: PLR2004
    for (i, j), value in np.ndenumerate(values):
        ink = "white" if dark[i, j] else INK
        if np.isfinite(value):
            ax.text(j, i, form.format(value), ha="center", va="center", fontsize=SMALL, color=ink)


def shorten(name: str, most: int = 22) -> str:
    """A name that fits beside an axis; the dollar would start a formula."""
    name = name if len(name) <= most else name[: most - 1] + "…"
    return name.replace("$", r"\$")
