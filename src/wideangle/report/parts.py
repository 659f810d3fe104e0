"""The components of a run, each with what it is for and how rare it is."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from wideangle.plots import numbers
from wideangle.plots.style import DIVERGING, colour
from wideangle.runs.folder import Run

MOST_COMPONENTS = 200
"""Components on the page; a longer list would not be read."""
MOST_WEIGHTS = 14
"""Columns shown of a weight vector."""
CLEAR = 0.15
"""Weights below this share of the largest are left out of sentences."""


@dataclass(frozen=True)
class Part:
    """One expert or feature."""

    number: int
    """As people count: from 1."""
    name: str
    colour: str
    share: float
    """Of the rows that use it."""
    rarity: str
    purpose: list[str]
    """Sentences."""
    nearest: int | None
    """Number of the component at the smallest angle."""
    nearest_angle: float | None
    weights: list[dict[str, Any]]
    """Panels: title, names and values of the strongest columns."""
    image: list[list[float]] | None
    thumbnail: str | None
    """The image as a data address."""
    extra: dict[str, float]
    """Numbers of one kind of model: presence, energy; accuracy."""


def image_shape(run: Run) -> tuple[int, int] | None:
    """Height and width of a row as an image, if the run says so and the columns agree."""
    given = run.settings.get("image_shape")
    if not (isinstance(given, (list, tuple)) and len(given) == 2):  # noqa: PLR2004
        return None
    height, width = (int(n) if isinstance(n, (int, float)) else 0 for n in given)
    fits = min(height, width) > 0 and height * width == len(run.columns)
    return (height, width) if fits else None


def parts_of(run: Run) -> list[Part]:
    """Every component of the run, at most :data:`MOST_COMPONENTS`."""
    model, shape = run.model, image_shape(run)
    found = numbers.vectors(model)[:MOST_COMPONENTS]
    table = numbers.angles(model) if len(found) else np.zeros((0, 0))
    shares = shares_of(run)
    reach = float(np.max(np.abs(found[:, : len(run.columns)]), initial=0.0)) or 1.0
    result = []
    for k in range(len(found)):
        others = np.where(np.arange(len(table)) == k, np.inf, table[k])
        nearest = int(np.argmin(others)) if len(table) > 1 else None
        image = found[k, : len(run.columns)].reshape(shape) if shape else None
        if found.shape[1] > len(run.columns) + 1:
            image = None  # several weight vectors, one for each class
        result.append(
            Part(
                number=k + 1,
                name=f"{numbers.noun(model)} {k + 1}",
                colour=colour(k),
                share=float(shares[k]),
                rarity=rarity(float(shares[k])),
                purpose=expert_purpose(run, k) if run.kind == "moe" else feature_purpose(run, k),
                nearest=None if nearest is None else nearest + 1,
                nearest_angle=None if nearest is None else float(others[nearest]),
                weights=weight_panels(run, k),
                image=None if image is None else image.tolist(),
                thumbnail=None if image is None else thumbnail(image, reach),
                extra=_extra(run, k),
            )
        )
    return result


def shares_of(run: Run) -> np.ndarray:
    """Share of the rows that use each component."""
    if run.kind == "features":
        return np.asarray(run.model.prevalence_)
    return np.asarray(run.sample.values["gate"]).mean(axis=0)


def rarity(share: float) -> str:
    """How often, in words: ``in 1 of 8 rows``."""
    if share >= 0.95:  # noqa: PLR2004
        return "in nearly every row"
    if share >= 0.3:  # noqa: PLR2004
        return f"in {round(10 * share)} of 10 rows"
    if share < 5e-4:  # noqa: PLR2004
        return "in almost no row"
    return f"in 1 of {round(1 / share):,} rows"


def weight_panels(run: Run, k: int) -> list[dict[str, Any]]:
    """The strongest entries of a component, for each class where there are several."""
    names = numbers.column_names(run.model, run.columns)
    if run.kind == "features":
        panels = {"adds to a row": run.model.components_[k]}
    else:
        weights = np.asarray(run.model.experts_[k], float)
        classes = run.frame.classes
        several = weights.ndim == 2  # noqa: PLR2004
        panels = (
            {f"speaks for {classes[c]}": row for c, row in enumerate(weights)}
            if several
            else {f"speaks for {classes[-1]}": weights}
        )
        panels["makes the gate ask it"] = gate_contrast(run)[k]
    return [
        {"title": title, "names": [names[i] for i in order], "values": values[order].tolist()}
        for title, values in panels.items()
        for order in [np.argsort(-np.abs(values), kind="stable")[:MOST_WEIGHTS]]
    ]


def gate_contrast(run: Run) -> np.ndarray:
    """Weights of the gate against their mean, (K, p): adding one vector to all changes nothing."""
    gates = np.asarray(run.model.gates_, float)
    return gates - gates.mean(axis=0)


def expert_purpose(run: Run, k: int) -> list[str]:
    """When an expert is asked, and what it says then."""
    names, marks = numbers.column_names(run.model, run.columns), indicators(run)
    classes = run.frame.classes
    gate, weights = gate_contrast(run)[k], np.asarray(run.model.experts_[k], float)
    sentences = []
    if run.model.n_experts > 1 and (when := strongest(gate, names, marks)):
        sentences.append(f"Asked where {when}.")
    rows = weights if weights.ndim == 2 else weights[None]  # noqa: PLR2004
    labels = classes if weights.ndim == 2 else classes[-1:]  # noqa: PLR2004
    lean = int(np.argmax(np.abs(rows).max(axis=1)))
    if says := strongest(rows[lean], names, marks):
        sentences.append(f"Speaks for {labels[lean]} where {says}.")
    accuracy = _accuracy(run, k)
    if accuracy is not None:
        sentences.append(f"Right on {100 * accuracy[0]:.0f} % of the {accuracy[1]} rows it led.")
    return sentences


def feature_purpose(run: Run, k: int) -> list[str]:
    """What a feature adds to the rows that have it."""
    vector = np.asarray(run.model.components_[k])
    names = numbers.column_names(run.model, run.columns)
    up, down = (_listed(side * vector, names) for side in (1, -1))
    sentences = [f"{verb} {words}." for verb, words in (("Raises", up), ("Lowers", down)) if words]
    presence = float(run.model.presence_[k])
    sure = "every draw" if presence > 0.999 else f"{100 * presence:.0f} % of the draws"  # noqa: PLR2004
    return [*sentences, f"Found in {sure} of the chains."]


def _listed(values: np.ndarray, names: list[str], most: int = 4) -> str:
    """Columns with clearly positive values, strongest first."""
    order = np.argsort(-values, kind="stable")
    clear = [i for i in order if values[i] > CLEAR * max(np.abs(values).max(), 1e-300)]
    more = f" and {len(clear) - most} more" if len(clear) > most else ""
    return ", ".join(names[i] for i in clear[:most]) + more


def indicators(run: Run) -> frozenset[str]:
    """Columns of zeros and ones that stand for a word or for a gap."""
    sources = run.frame.sources or ()
    return frozenset(
        name
        for source in sources
        for name in (source.columns if source.kind == "category" else source.columns[1:])
    )


def strongest(
    values: np.ndarray, names: list[str], marks: frozenset[str] = frozenset(), most: int = 3
) -> str:
    """``a is high, b is low`` from weights; the intercept says nothing about a row."""
    known = [i for i, name in enumerate(names) if name != numbers.INTERCEPT]
    order = sorted(known, key=lambda i: -abs(values[i]))
    largest = abs(values[order[0]]) if order else 0.0
    clear = [i for i in order[:most] if abs(values[i]) > CLEAR * largest]
    words = []
    for i in clear:
        high = values[i] > 0
        if names[i] in marks:  # such as ``colour = red``
            words.append(names[i] if high else f"not {names[i]}")
        else:
            words.append(f"{names[i]} is {'high' if high else 'low'}")
    return ", ".join(words) if len(words) < 2 else f"{', '.join(words[:-1])} and {words[-1]}"  # noqa: PLR2004


def _accuracy(run: Run, k: int) -> tuple[float, int] | None:
    """Share of right answers among the rows of the sample in which the expert has most say."""
    if run.sample.y is None:
        return None
    led = np.argmax(run.sample.values["gate"], axis=1) == k
    if not led.any():
        return None
    right = np.argmax(run.sample.values["proba"], axis=1) == run.sample.y
    return float(right[led].mean()), int(led.sum())


def _extra(run: Run, k: int) -> dict[str, float]:
    if run.kind == "features":
        matched = run.model.matched_
        total = float(np.sum(matched.energy)) or 1.0
        return {
            "presence": float(run.model.presence_[k]),
            "energy": float(matched.energy[k]) / total,
        }
    accuracy = _accuracy(run, k)
    return {} if accuracy is None else {"accuracy": accuracy[0], "led": float(accuracy[1])}


def thumbnail(image: np.ndarray, reach: float) -> str:
    """A small picture as an address that needs no file: red adds, blue takes."""
    from matplotlib.image import imsave

    stream = io.BytesIO()
    imsave(stream, image, cmap=DIVERGING, vmin=-reach, vmax=reach, format="png")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()
