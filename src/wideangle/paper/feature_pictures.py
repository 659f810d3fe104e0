"""What features look like: faces as images, text as words."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from wideangle.datasets import Dataset
from wideangle.storage.files import write

SHAPES = {"yale": (32, 32), "ar": (47, 34), "block_images": (6, 6)}
"""Height and width of the images of a data set."""
MOST_IMAGES, COLUMNS = 40, 10
MOST_TOPICS, TOP_WORDS = 30, 10


def show_features(model: Any, data: Dataset, stem: Path) -> Path | None:
    """Write ``<stem>.png`` for images, ``<stem>.md`` for text with known words, else nothing."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    if model.n_components_ == 0:
        return None
    if data.name in SHAPES and find_spec("matplotlib"):
        path = stem.with_name(stem.name + ".png")
        draw_images(model.components_, model.prevalence_, SHAPES[data.name], path)
        return path
    if data.feature_names and data.y is not None:
        path = stem.with_name(stem.name + ".md")
        text = word_table(model.components_, model.prevalence_, data.feature_names)
        write(path, [text.encode()])
        return path
    return None


def draw_images(
    components: np.ndarray, prevalence: np.ndarray, shape: tuple[int, int], path: Path
) -> None:
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
    figure.savefig(path)


def top_words(vector: np.ndarray, names: tuple[str, ...], n_words: int = TOP_WORDS) -> list[str]:
    """The words with the largest weights, as in the paper."""
    return [names[d] for d in np.argsort(-vector, kind="stable")[:n_words]]


def word_table(components: np.ndarray, prevalence: np.ndarray, names: tuple[str, ...]) -> str:
    """Markdown: how many documents have the feature, and its words."""
    lines = ["| documents | words |", "|---:|---|"]
    for vector, share in zip(components[:MOST_TOPICS], prevalence, strict=False):
        lines.append(f"| {100 * share:.1f} % | {' '.join(top_words(vector, names))} |")
    return "\n".join(lines) + "\n"
