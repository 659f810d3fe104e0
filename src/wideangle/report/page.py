"""Put the page together: one file that needs no network.

Nothing that came from data can run: Jinja2 escapes text, JSON is packed into letters without
``<``, and the page's own policy allows no script but the two that it carries, which it names by
their hashes, and no loads from anywhere.

The library that draws is by far the largest part. It is packed like the data, and the page unpacks
both when it is opened.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import zlib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from wideangle.convergence import RHAT_LIMIT
from wideangle.plots import numbers
from wideangle.presentation.records import Card, Run
from wideangle.report import charts, parts
from wideangle.storage import StorageError
from wideangle.storage.files import write as write_file

_BASE85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_DIGITS = bytes(125 if code == ord("<") else code for code in range(40, 125))
"""Letters of packed bytes: in order, so that the page can count, and without the sign of a tag."""
_LABEL = 24
"""Letters of a name next to a bar."""
_MOST_PAIRS = 3
_UNKNOWN = ("rhat", "ess", "r2")
"""Numbers that may have no value: without chains, and of held-out rows that are all alike."""


def write(run: Run, output: Path) -> None:
    """Write the page about a run to a file, whole or not at all."""
    write_file(output, [render(run).encode()])


def render(run: Run) -> str:
    """The page as text."""
    check_scores(run)
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("wideangle.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "short": short, "in_form": in_form}
    shown, components = run.presentation, parts.parts_of(run)
    pictures = charts.charts_of(run)
    chains = charts.chains_of(run)
    library, program = plotly(), _asset("page.js")
    return environment.get_template("page.html").render(
        run=run,
        title=run.path.name if run.path is not None else "a run",
        shown=shown,
        n_components=len(shown.vectors()),
        verdict=" ".join([shown.verdict(run), *_one_enough(run)]),
        cards=cards(run),
        cautions=cautions(run),
        alike=_alike(run),
        parts=sorted(components, key=lambda part: -part.share),
        columns=shown.component_columns(run),
        first=max(components, key=lambda part: part.share, default=None),
        pictures=pictures,
        chains=chains,
        doubtful=parts.doubtful_rows(run),
        diagnostics=parts.diagnostics(run),
        recipe=parts.recipe(run),
        policy=policy(library, program),
        packed={
            "data": packed(as_json(_for_script(components, pictures, chains))),
            "library": _packed_once(library),
        },
        program=program,
        style=_asset("page.css"),
    )


def check_scores(run: Run) -> None:
    """Refuse scores that are not known; only errors of scores and :data:`_UNKNOWN` may be so."""
    for name, value in run.metrics.items():
        score = name.removesuffix("_error")
        may_be_unknown = name in _UNKNOWN or (score != name and score in run.metrics)
        if value is None and not may_be_unknown:
            place = "metrics.json" if run.path is None else run.path / "metrics.json"
            raise StorageError(f"{place}: {name!r} is null, and a page shows numbers; train again.")


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
    return list(dict.fromkeys([*sentences, *run.presentation.cautions(run)]))


def _alike(run: Run) -> list[str]:
    """A sentence about components that are nearly the same, unless most are."""
    close = [pair for pair in _pairs(run) if pair[0] < run.presentation.alike]
    if not close or _one_enough(run):
        return []
    words = [f"{i} and {j} ({angle:.0f}°)" for angle, i, j in close[:_MOST_PAIRS]]
    more = ", and others" * (len(close) > _MOST_PAIRS)
    return [
        f"{run.presentation.noun.capitalize()}s {', '.join(words)}{more} point in nearly the same "
        "direction: fewer may be enough."
    ]


def _one_enough(run: Run) -> list[str]:
    """Good news where most components are nearly the same."""
    angles, noun = [pair[0] for pair in _pairs(run)], run.presentation.noun
    if not angles or np.mean(angles) >= run.presentation.alike:
        return []
    return [
        f"The {noun}s point in nearly the same direction ({np.mean(angles):.0f}° apart on "
        f"average): one {noun} may be enough for these rows."
    ]


def _pairs(run: Run) -> list[tuple[float, int, int]]:
    """Angle and numbers of each pair of components, closest first."""
    if len(run.presentation.vectors()) < 2:  # noqa: PLR2004
        return []
    table = numbers.angles(run.model)
    pairs = zip(*np.triu_indices(len(table), 1), strict=True)
    return sorted((float(table[i, j]), int(i) + 1, int(j) + 1) for i, j in pairs)


def _for_script(components: list[parts.Part], pictures: Any, chains: Any) -> dict[str, Any]:
    plain = [dataclasses.asdict(part) for part in components]
    for part in plain:
        del part["thumbnail"]
        for panel in part["weights"]:
            panel["labels"] = [charts.plain(name, _LABEL) for name in panel["names"]]
            panel["names"] = [charts.plain(name) for name in panel["names"]]
            for key in panel.keys() & {"values", "low", "high"}:
                panel[key] = charts.rounded(panel[key])
        if part["image"] is not None:
            part["image"] = charts.rounded(part["image"], 3)
    return {"parts": plain, "charts": pictures, "chains": chains}


def policy(*scripts: str) -> str:
    """Content security policy: these scripts, styles and images of the page, and nothing else."""
    allowed = " ".join(f"'sha256-{_hash(script)}'" for script in scripts) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def as_json(content: Any) -> str:
    """JSON that any browser reads."""
    return json.dumps(content, allow_nan=False, separators=(",", ":"))


def plotly() -> str:
    """The library that draws, as its package carries it."""
    from plotly.offline import get_plotlyjs

    return get_plotlyjs()


def packed(text: str) -> tuple[str, int]:
    """A text compressed (deflate) as letters, 5 for 4 bytes, and the number of bytes."""
    squeezed = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    content = squeezed.compress(text.encode()) + squeezed.flush()
    letters = base64.b85encode(content, pad=True)
    return letters.translate(bytes.maketrans(_BASE85, _DIGITS)).decode(), len(content)


_packed_once = cache(packed)
"""For the library, which is the same for every page."""


def _asset(name: str) -> str:
    return resources.files("wideangle.report").joinpath(name).read_text("utf-8")


def percent(share: float) -> str:
    """``12 %``, with a digit more for small shares."""
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"  # noqa: PLR2004


def in_form(value: Any, form: str) -> str:
    """A value of a :class:`~wideangle.presentation.records.Column`."""
    return percent(value) if form == "percent" and value is not None else short(value)


def short(value: Any) -> str:
    """A cell of a table."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)
