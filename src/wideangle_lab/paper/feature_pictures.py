"""Pictures of features of images, and words of features of text."""

from __future__ import annotations

import io
from importlib.util import find_spec
from typing import Any

import numpy as np

from wideangle_lab.datasets import Dataset

SHAPES = {"yale": (32, 32), "ar": (47, 34), "block_images": (6, 6)}
"""Height and width of the images of a data set."""
MOST_IMAGES, COLUMNS = 40, 10
MOST_TOPICS, TOP_WORDS = 30, 10


def picture(model: Any, data: Dataset) -> bytes | None:
    """A PNG of the components of images; None for other data, or if nothing can be drawn."""
    if data.name not in SHAPES or model.n_components_ == 0 or not find_spec("matplotlib"):
        return None
    from wideangle.plots import component_images

    figure = component_images(model, SHAPES[data.name], n_most=MOST_IMAGES, columns=COLUMNS)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90)
    return buffer.getvalue()


def top_words(vector: np.ndarray, names: tuple[str, ...], n_words: int = TOP_WORDS) -> list[str]:
    """The words with the largest weights, as in the paper."""
    return [names[d] for d in np.argsort(-vector, kind="stable")[:n_words]]
