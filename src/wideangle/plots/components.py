"""What components are: images, words, weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wideangle.base import present
from wideangle.plots import numbers, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def component_images(
    model: Any, shape: tuple[int, int], *, n_most: int = 24, columns: int | None = None
) -> Figure:
    """Components as images of the given shape: red adds light, blue takes it, white is no change.

    Parameters
    ----------
    model
        A fitted model with one vector for each component.
    shape : (height, width)
        Of an image; height times width is the number of columns.
    n_most : int
        Most components shown, the first ones.
    columns : int, optional
        Images in a line.
    """
    shown = present(model)
    images = _image_stack(model, shape)[:n_most]
    n = len(images)
    numbers.check_some(shown)
    columns = columns or min(n, 8)
    lines = -(-n // columns)
    height, width = shape
    figure = style.new_figure(1.25 * columns, (1.25 * height / width + 0.2) * lines + 0.3)
    shares = shown.training_shares()
    words = "" if shares is None else ", each with its share of the rows"
    figure.suptitle(f"{shown.noun.capitalize()}s{words}", fontsize=style.TITLE, color=style.INK,
                    x=0.01, ha="left")  # fmt: skip
    reach = float(np.max(np.abs(images))) or 1.0
    for place, image in enumerate(images):
        ax = figure.add_subplot(lines, columns, place + 1)
        ax.imshow(image, cmap=style.DIVERGING, vmin=-reach, vmax=reach, interpolation="nearest")
        share = "" if shares is None else f": {100 * shares[place]:.0f} %"
        ax.set_title(f"{place + 1}{share}", fontsize=style.SMALL, color=style.INK, pad=3)
        ax.set(xticks=[], yticks=[])
        for spine in ax.spines.values():
            spine.set_color(style.PALE)
    return figure


def _image_stack(model: Any, shape: tuple[int, int]) -> np.ndarray:
    """Components as images, (K, height, width), without the intercept."""
    found = present(model).vectors()
    height, width = shape
    if model.n_features_in_ != height * width:
        raise ValueError(
            f"shape={tuple(shape)}: an image of {height} x {width} has {height * width} pixels, "
            f"but the model has {model.n_features_in_} columns."
        )
    if found.shape[1] not in (height * width, height * width + 1):
        raise ValueError("a component has several weights for each column: no image shows it.")
    return found[:, : height * width].reshape(-1, height, width)


def top_words(
    model: Any, names: Sequence[str] | None = None, *, n_words: int = 8, n_most: int = 12
) -> Figure:
    """Largest entries of each component, with their names: what it is about.

    Parameters
    ----------
    model
        A fitted model with one vector for each component.
    names : sequence of str, optional
        Names of the columns; by default those seen in the fit.
    n_words, n_most : int
        Words of a component, and most components shown.
    """
    shown = present(model)
    words, shares = shown.entry_names(names), shown.training_shares()
    numbers.check_some(shown)
    found = shown.vectors()[:n_most]
    columns = min(len(found), 4)
    lines = -(-len(found) // columns)
    figure = style.new_figure(2.1 * columns, (0.19 * n_words + 0.5) * lines)
    for place, vector in enumerate(found):
        chosen = numbers.largest(vector, n_words)
        ax = figure.add_subplot(lines, columns, place + 1)
        ax.barh(np.arange(len(chosen)), vector[chosen], color=style.colour(place), height=0.72)
        ax.invert_yaxis()
        ax.set_yticks(np.arange(len(chosen)), labels=[style.shorten(words[i]) for i in chosen])
        share = "" if shares is None else f", in {100 * shares[place]:.0f} % of rows"
        style.tidy(ax, f"{place + 1}{share}")
        ax.title.set_fontsize(style.TEXT)
        style.frameless(ax)
        ax.set_xticks([])
        ax.axvline(0, color=style.PALE, lw=0.8)
    return figure


def component_weights(
    model: Any, names: Sequence[str] | None = None, *, n_most: int = 15, ax: Any = None
) -> Figure:
    """Weights of the components: red columns raise what the component predicts, blue ones lower it.

    Weights of a mixture of experts are those of the representative draw, in units of prepared
    columns: the change of the log-odds for one standard deviation (0/1 columns: for a 1). With more
    than two classes there is one panel for each.

    Parameters
    ----------
    model
        A fitted model.
    names : sequence of str, optional
        Names of the columns; by default those seen in the fit.
    n_most : int
        Most columns shown: those with the largest weight in any component.
    ax : matplotlib axes, optional
        Where to draw, for one panel; by default on a new figure.
    """
    shown = present(model)
    numbers.check_some(shown)
    words, tables = shown.entry_names(names), shown.weights()
    size = np.abs(np.stack(list(tables.values()))).max(axis=(0, 1))
    chosen = numbers.largest(size, n_most)
    if ax is not None and len(tables) > 1:
        raise ValueError("ax: several panels need a whole figure; leave ax out.")
    axes = [ax] if ax is not None else _panels(len(tables), len(shown.vectors()), len(chosen))
    for panel, (title, table) in zip(axes, tables.items(), strict=True):
        image = _weight_cells(panel, table[:, chosen].T, float(size.max()) or 1.0)
        style.tidy(panel, style.shorten(title[0].upper() + title[1:], 40), shown.noun)
        style.frameless(panel)
        labels = [style.shorten(words[i]) if panel is axes[0] else "" for i in chosen]
        panel.set_yticks(np.arange(len(chosen)), labels=labels)
    style.colour_bar(image, axes[-1], "weight")
    return axes[0].figure


def _panels(n_panels: int, n_components: int, n_lines: int) -> list[Any]:
    width = max(2.0, 0.42 * n_components)
    figure = style.new_figure(width * n_panels + 2.3, 0.27 * n_lines + 1.1)
    return [figure.add_subplot(1, n_panels, i + 1) for i in range(n_panels)]


def _weight_cells(ax: Any, table: np.ndarray, reach: float) -> Any:
    """Cells of columns (down) and components (across)."""
    n = table.shape[1]
    image = ax.imshow(table, cmap=style.DIVERGING, vmin=-reach, vmax=reach, aspect="auto")
    if n <= 8:  # noqa: PLR2004
        style.write_in_cells(ax, image, table, "{:.1f}")
    style.lines_between_cells(ax, *table.shape)
    ax.set_xticks(np.arange(n), labels=np.arange(n) + 1)
    return image
