"""Components of a run, each with what it does and how rare it is; and the tables of the page."""

from __future__ import annotations

import base64
import io
import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np

from wideangle.convergence import ESS_LIMIT, RHAT_LIMIT, in_words
from wideangle.diagnostics import values_of
from wideangle.plots import numbers
from wideangle.plots.style import DIVERGING, colour
from wideangle.presentation.family import interval_of
from wideangle.presentation.records import Column, Run
from wideangle.types import as_dense

_MOST_COMPONENTS = 200
"""Components on the page; a longer list would not be read."""
_MOST_WEIGHTS = 14
"""Columns shown of a weight vector."""
_KEY_COLUMNS = 4
"""Columns whose values are shown of a doubtful row."""


@dataclass(frozen=True)
class Part:
    """One component."""

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
    """Panels: title, names, values and ends of intervals of the strongest columns."""
    image: list[list[float]] | None
    thumbnail: str | None
    """The image as a data address."""


def image_shape(run: Run) -> tuple[int, int] | None:
    """Height and width of a row as an image, if the run has a shape and the columns agree."""
    match run.settings.get("image_shape"):
        case [int(height), int(width)] if height > 0 and height * width == len(run.columns):
            return height, width
    return None


def parts_of(run: Run) -> list[Part]:
    """Every component of the run, at most :data:`_MOST_COMPONENTS`."""
    shown, shape = run.presentation, image_shape(run)
    found = shown.vectors()[:_MOST_COMPONENTS]
    names, panels = shown.entry_names(run.columns), shown.panels(run.frame.classes)
    intervals = {
        title: interval_of(values) for title, values in shown.panel_draws(run.frame.classes).items()
    }
    shares = shown.shares(run.sample)
    table = numbers.angles(run.model) if len(found) else np.zeros((0, 0))
    np.fill_diagonal(table, np.inf)
    if found.shape[1] > len(names):
        shape = None  # several weight vectors, one for each class
    pixels = found[:, : len(run.columns)]
    reach = float(np.max(np.abs(pixels), initial=0.0)) or 1.0
    result = []
    for k in range(len(found)):
        nearest = int(np.argmin(table[k])) if len(table) > 1 else None
        image = pixels[k].reshape(shape) if shape else None
        result.append(
            Part(
                number=k + 1,
                name=f"{shown.noun} {k + 1}",
                colour=colour(k),
                share=float(shares[k]),
                rarity=rarity(float(shares[k])),
                purpose=shown.purpose(run, k),
                nearest=None if nearest is None else nearest + 1,
                nearest_angle=None if nearest is None else float(table[k, nearest]),
                weights=[
                    _panel(title, values[k], names, [one[k] for one in intervals.get(title, ())])
                    for title, values in panels.items()
                ],
                image=None if image is None else image.tolist(),
                thumbnail=None if image is None else thumbnail(image, reach),
            )
        )
    return _without_repeats(result, table < shown.alike)


def _without_repeats(found: list[Part], alike: np.ndarray) -> list[Part]:
    """Refer to the largest of components that point alike, instead of its sentences once more."""
    kept: list[Part] = []
    for part in sorted(found, key=lambda part: -part.share):
        for other in kept:
            same = alike[part.number - 1, other.number - 1]
            if same and part.purpose == other.purpose:
                part.purpose[:] = [f"Like {other.name}."]
                break
        else:
            kept.append(part)
    return found


def _panel(
    title: str, weights: np.ndarray, names: list[str], interval: list[np.ndarray]
) -> dict[str, Any]:
    """The strongest entries: medians and ends of 90 % of the draws, where there are draws.

    Entries that are NaN are not shown.
    """
    sides: dict[str, np.ndarray] = dict(zip(("low", "values", "high"), interval, strict=False))
    middle = sides.get("values", weights)
    sides["values"] = np.where(np.isnan(middle) | np.isnan(weights), weights, middle)
    order = numbers.largest(np.abs(sides["values"]), _MOST_WEIGHTS)
    order = order[~np.isnan(sides["values"][order])]
    return {
        "title": title,
        "names": [names[i] for i in order],
        **{side: found[order].tolist() for side, found in sides.items()},
    }


def rarity(share: float) -> str:
    """How often, in words: ``in 1 of 8 rows``."""
    if share >= 0.95:  # noqa: PLR2004
        return "in nearly every row"
    if share >= 0.3:  # noqa: PLR2004
        return f"in {round(10 * share)} of 10 rows"
    if share < 5e-4:  # noqa: PLR2004
        return "in almost no row"
    return f"in 1 of {round(1 / share):,} rows"


def thumbnail(image: np.ndarray, reach: float) -> str:
    """A small picture as an address that needs no file: red adds, blue takes."""
    from matplotlib.image import imsave

    stream = io.BytesIO()
    imsave(stream, image, cmap=DIVERGING, vmin=-reach, vmax=reach, format="png")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


# ---- tables


def doubtful_rows(run: Run) -> list[Column]:
    """Rows to look at, with their numbers in front and their most important values behind."""
    table = run.presentation.rows_to_look_at(run)
    if table is None or len(table.order) == 0:
        return []
    chosen = _key_columns(run)
    values = as_dense(run.sample.X, table.order, float)[:, chosen]
    known = np.where(np.isnan(values), np.array(None), values.astype(object))
    return [
        Column("row", run.sample.rows[table.order].tolist()),
        *table.columns,
        *(Column(run.columns[c], known[:, i].tolist()) for i, c in enumerate(chosen)),
    ]


def _key_columns(run: Run) -> np.ndarray:
    """Columns that matter most to the model, strongest first."""
    shown = run.presentation
    sizes = np.abs(shown.vectors()).reshape(-1, len(shown.entry_names(run.columns)))
    return np.argsort(-sizes.max(axis=0, initial=0.0)[: len(run.columns)], kind="stable")[
        :_KEY_COLUMNS
    ]


def diagnostics(run: Run) -> list[dict[str, Any]]:
    """R-hat and effective sample sizes of each watched number, and whether they are good."""
    table = run.model.diagnostics_
    if table is None:
        return []
    rows = []
    for i, name in enumerate(table.names):
        rhat, bulk, tail = (_known(table[c][i]) for c in ("rhat", "ess_bulk", "ess_tail"))
        still = table.constant.get(name)
        verdict = "unknown"
        if still is not None:
            verdict = "constant" if np.ptp(still) == 0 else "stuck"
        elif rhat is not None:
            good = rhat <= RHAT_LIMIT and bulk is not None and bulk >= ESS_LIMIT
            verdict = "good" if good else "doubtful" if table["needed"][i] else "slow"
        rows.append(
            {
                "name": in_words(name, run.presentation.words),
                "needed": "yes" if table["needed"][i] else "no",
                "mean": _known(table["mean"][i]),
                "by_chain": "" if still is None else values_of(still),
                "rhat": rhat,
                "bulk": bulk,
                "tail": tail,
                "verdict": verdict,
            }
        )
    return rows


def _known(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def recipe(run: Run) -> dict[str, Any]:
    """What it takes to repeat the run."""
    settings = run.settings
    command = settings.get("command") or []
    known = ("command", "options", "versions", "seed", "source", "n_rows", "began", "image_shape")
    other = {k: v for k, v in settings.items() if k not in known}
    return {
        "command": shlex.join(str(word) for word in command),
        "facts": {
            "data": settings.get("source", ""),
            "rows in the file": settings.get("n_rows", ""),
            "seed": settings.get("seed", ""),
            "began": settings.get("began", ""),
            **other,
            **{f"seconds to {k}": v for k, v in (run.metrics.get("seconds") or {}).items()},
        },
        "settings": run.model.get_params(deep=False),
        "versions": settings.get("versions") or {},
        "notes": [str(note) for note in run.metrics.get("notes") or []],
    }
