"""What the page says first: the numbers, and what to mind, in plain words."""

from __future__ import annotations

import numpy as np

from wideangle.convergence import RHAT_LIMIT
from wideangle.plots import numbers
from wideangle.presentation.records import Card, Run

ALIKE = 25.0
"""Degrees below which two components say nearly the same."""
_MOST_PAIRS = 3


def cards(run: Run) -> list[Card]:
    """The numbers of the first line."""
    family = run.presentation
    shown = [*family.results(run.metrics), *family.cards()]
    if len(family.vectors()) > 1:
        spread = run.model.diversity_
        mean, least = np.degrees([spread.mean_angle, spread.min_angle])
        shown.append(Card("Mean angle", f"{mean:.0f}°", f"smallest {least:.0f}°"))
    if run.metrics.get("rhat") is not None:
        rhat = run.metrics["rhat"]
        good = "chains agree" if rhat <= RHAT_LIMIT else f"should be below {RHAT_LIMIT}"
        shown.append(Card("R-hat of predictions", f"{rhat:.2f}", good))
    return shown


def cautions(run: Run) -> list[str]:
    """All that should keep a reader from trusting the page too much."""
    sentences = [str(one) for one in run.metrics.get("warnings", [])]
    if not run.metrics.get("sample_held_out", True):
        sentences.append(
            "No rows were held out: everything below is about rows that the model was fitted to, "
            "and looks better than it would on new ones."
        )
    return list(dict.fromkeys([*sentences, *_alike(run), *run.presentation.cautions(run)]))


def _alike(run: Run) -> list[str]:
    """Sentences about components that say nearly the same."""
    shown = run.presentation
    if len(shown.vectors()) < 2:  # noqa: PLR2004
        return []
    table, word = numbers.angles(run.model), shown.noun.capitalize()
    pairs = zip(*np.triu_indices(len(table), 1), strict=True)
    close = sorted((table[i, j], i + 1, j + 1) for i, j in pairs if table[i, j] < ALIKE)
    return [
        f"{word}s {i} and {j} point in nearly the same direction ({angle:.0f}°): one of them may "
        "be enough."
        for angle, i, j in close[:_MOST_PAIRS]
    ]
