"""What features look like: faces as images, text as words."""

from __future__ import annotations

import io
from importlib.util import find_spec
from typing import Any

import numpy as np

from wideangle.datasets import Dataset

SHAPES = {"yale": (32, 32), "ar": (47, 34), "block_images": (6, 6)}
"""Height and width of the images of a data set."""
MOST_IMAGES, COLUMNS = 40, 10
MOST_TOPICS, TOP_WORDS = 30, 10


def picture(model: Any, data: Dataset) -> bytes | None:
    """A PNG of the components of images; None for other data, and where nothing can be drawn."""
    if data.name not in SHAPES or model.n_components_ == 0 or not find_spec("matplotlib"):
        return None
    return draw_images(model.components_, model.prevalence_, SHAPES[data.name])


def draw_images(components: np.ndarray, prevalence: np.ndarray, shape: tuple[int, int]) -> bytes:
    """A grid of the first components; red adds light, blue takes it, grey is no change."""
    from matplotlib.figure import Figure

    n_shown = min(len(components), MOST_IMAGES)
    n_columns = min(COLUMNS, n_shown)
    n_lines = -(-n_shown // n_columns)
    figure = Figure(figsize=(1.1 * n_columns, 1.3 * n_lines * shape[0] / shape[1]), dpi=90)
    figure.subplots_adjust(0.01, 0.01, 0.99, 0.95, wspace=0.06, hspace=0.25)
    for place in range(n_shown):
        axes = figure.add_subplot(n_lines, n_columns, place + 1)
        image = components[place].reshape(shape)
        reach = np.max(np.abs(image)) or 1.0
        axes.imshow(image, cmap="RdBu_r", vmin=-reach, vmax=reach, interpolation="nearest")
        axes.set_title(f"{100 * prevalence[place]:.0f} %", fontsize=8, pad=2)
        axes.set_xticks([])
        axes.set_yticks([])
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def top_words(vector: np.ndarray, names: tuple[str, ...], n_words: int = TOP_WORDS) -> list[str]:
    """The words with the largest weights, as in the paper."""
    return [names[d] for d in np.argsort(-vector, kind="stable")[:n_words]]
