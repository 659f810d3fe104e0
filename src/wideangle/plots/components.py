"""What components are: images, words, weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from wideangle.plots import numbers, style


def feature_images(
    model: Any, shape: tuple[int, int], *, n_most: int = 24, columns: int | None = None
) -> Any:
    """Features as images of the given shape: red adds light, blue takes it, white is no change.

    Parameters
    ----------
    model
        A fitted latent feature model, or a mixture of experts with one weight vector per expert.
    shape : (height, width)
        Of an image; height times width is the number of columns.
    n_most : int
        Most features shown; the first have most energy.
    columns : int, optional
        Images in a line.

    Returns
    -------
    matplotlib.figure.Figure
    """
    images = image_stack(model, shape)[:n_most]
    n = len(images)
    if n == 0:
        raise ValueError("the model has no features to draw.")
    columns = columns or min(n, 8)
    lines = -(-n // columns)
    height, width = shape
    figure = style.new_figure(1.25 * columns, (1.25 * height / width + 0.2) * lines + 0.3)
    figure.suptitle(f"{numbers.noun(model).capitalize()}s, each with its share of the rows",
                    fontsize=style.TITLE, color=style.INK, x=0.01, ha="left")  # fmt: skip
    reach = float(np.max(np.abs(images))) or 1.0
    shares = None if numbers.is_mixture(model) else model.prevalence_
    for place, image in enumerate(images):
        ax = figure.add_subplot(lines, columns, place + 1)
        ax.imshow(image, cmap=style.DIVERGING, vmin=-reach, vmax=reach, interpolation="nearest")
        share = "" if shares is None else f": {100 * shares[place]:.0f} %"
        ax.set_title(f"{place + 1}{share}", fontsize=style.SMALL, color=style.INK, pad=3)
        ax.set(xticks=[], yticks=[])
        for spine in ax.spines.values():
            spine.set_color(style.PALE)
    return figure


def image_stack(model: Any, shape: tuple[int, int]) -> np.ndarray:
    """Components as images, (K, height, width), without the intercept."""
    found = numbers.vectors(model)
    height, width = shape
    if model.n_features_in_ != height * width:
        raise ValueError(
            f"shape={tuple(shape)}: an image of {height} x {width} has {height * width} pixels, "
            f"but the model has {model.n_features_in_} columns."
        )
    if found.shape[1] not in (height * width, height * width + 1):
        raise ValueError("experts of more than two classes are several images each.")
    return found[:, : height * width].reshape(-1, height, width)


def top_words(
    model: Any, names: Sequence[str] | None = None, *, n_words: int = 8, n_most: int = 12
) -> Any:
    """Largest entries of each feature, with their names: what the feature is about.

    Parameters
    ----------
    model
        A fitted latent feature model.
    names : sequence of str, optional
        Names of the columns; by default those seen in the fit.
    n_words, n_most : int
        Words of a feature, and most features shown.

    Returns
    -------
    matplotlib.figure.Figure
    """
    words = numbers.column_names(model, names)
    found = numbers.vectors(model)[:n_most]
    if len(found) == 0:
        raise ValueError("the model has no features to draw.")
    columns = min(len(found), 4)
    lines = -(-len(found) // columns)
    figure = style.new_figure(2.1 * columns, (0.19 * n_words + 0.5) * lines)
    for place, vector in enumerate(found):
        chosen = numbers.largest(vector, n_words)
        ax = figure.add_subplot(lines, columns, place + 1)
        ax.barh(np.arange(len(chosen)), vector[chosen], color=style.colour(place), height=0.72)
        ax.invert_yaxis()
        ax.set_yticks(np.arange(len(chosen)), labels=[style.shorten(words[i]) for i in chosen])
        share = "" if numbers.is_mixture(model) else f", in {100 * model.prevalence_[place]:.0f} %"
        style.tidy(ax, f"{place + 1}{share} of rows" if share else f"{place + 1}")
        ax.title.set_fontsize(style.TEXT)
        style.frameless(ax)
        ax.set_xticks([])
        ax.axvline(0, color=style.PALE, lw=0.8)
    return figure


def expert_weights(
    model: Any, names: Sequence[str] | None = None, *, n_most: int = 15, ax: Any = None
) -> Any:
    """Weights of the experts: red columns speak for the class, blue ones against it.

    Weights are those of the representative draw, in units of prepared columns: the change of the
    log-odds for one standard deviation (0/1 columns: for a 1). With more than two classes there is
    one panel for each.

    Parameters
    ----------
    model
        A fitted mixture of experts.
    names : sequence of str, optional
        Names of the columns; by default those seen in the fit.
    n_most : int
        Most columns shown: those with the largest weight in any expert.
    ax : matplotlib axes, optional
        Where to draw, for two classes; by default on a new figure.

    Returns
    -------
    matplotlib.figure.Figure
    """
    words = numbers.column_names(model, names)
    tables = weight_tables(model)
    size = np.abs(np.stack(list(tables.values()))).max(axis=(0, 1))
    chosen = numbers.largest(size, n_most)
    reach = float(size.max()) or 1.0
    n_experts = len(next(iter(tables.values())))
    if ax is not None and len(tables) > 1:
        raise ValueError("ax: more than two classes need a figure of their own.")
    width = max(2.0, 0.42 * n_experts)
    figure = ax.figure if ax is not None else style.new_figure(
        width * len(tables) + 2.3, 0.27 * len(chosen) + 1.1
    )  # fmt: skip
    all_axes = [ax] if ax is not None else [
        figure.add_subplot(1, len(tables), i + 1) for i in range(len(tables))
    ]  # fmt: skip
    for here, (title, table) in zip(all_axes, tables.items(), strict=True):
        shown = table[:, chosen].T
        image = here.imshow(shown, cmap=style.DIVERGING, vmin=-reach, vmax=reach, aspect="auto")
        if n_experts <= 8:  # noqa: PLR2004
            style.write_in_cells(here, image, shown, "{:.1f}")
        style.tidy(here, title, "expert")
        style.frameless(here)
        style.lines_between_cells(here, *shown.shape)
        here.set_xticks(np.arange(n_experts), labels=np.arange(n_experts) + 1)
        labels = [style.shorten(words[i]) if here is all_axes[0] else "" for i in chosen]
        here.set_yticks(np.arange(len(chosen)), labels=labels)
    style.colour_bar(image, all_axes[-1], "weight (log-odds)")
    return figure


def weight_tables(model: Any) -> dict[str, np.ndarray]:
    """Title and weights (K, p) of each panel: the second of two classes, or every class."""
    found = np.asarray(model.experts_, float)
    if found.ndim == 2:  # noqa: PLR2004
        return {style.shorten(f"For class {model.classes_[-1]}", 40): found}
    return {style.shorten(f"For class {c}", 40): found[:, i] for i, c in enumerate(model.classes_)}
