"""Write docs/defaults.md and the paragraph of the README about log-losses from the record.

``python -m wideangle_lab.bench.defaults.page RECORD docs/defaults.md README.md``, where the record
is ``results/bench/defaults.json``.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wideangle_lab.bench.defaults import reliability
from wideangle_lab.bench.defaults.loop import OTHERS
from wideangle_lab.bench.defaults.rivals import LOGISTIC
from wideangle_lab.bench.defaults.tables import TABLES
from wideangle_lab.bench.defaults.targets import (
    SMALL,
    Summary,
    Target,
    busy,
    summaries,
    targets,
)
from wideangle_lab.bench.page import computer_of, versions_of
from wideangle_lab.bench.record import OURS, show
from wideangle_lab.marks import fill_page

BOOSTING = "gradient boosting"
CLASSIFIERS = (
    OURS,
    LOGISTIC,
    BOOSTING,
    "CatBoost",
    "random forest",
    "Gaussian process",
    "MLP",
)
TIMES = ("first fit, s", "next, s", "a second")
"""Columns that are empty where the machine was busy."""
VERDICTS = {True: "met", False: "**missed**", None: "not measured"}
NUMBERS = re.compile(r"\d[\d,]*(\.\d+)?")


def render(record: Mapping[str, Any]) -> str:
    """The record as Markdown."""
    tables = summaries(record)
    fitted = [table for table in tables if table.fits]
    classifiers = [table for table in fitted if table.classes]
    compared = [table for table in classifiers if table.losses]
    parts = [
        grid(OVERVIEW, classifiers),
        *missing(tables),
        "## Targets",
        verdicts(targets(tables), whole=all(complete(tables, name) for name in TABLES)),
        "## Log-loss",
        "Mean over the splits, on test rows, in nats; the lowest is bold. The last column is the "
        "distance from logistic regression, relative to it, with its 95% interval: paired over "
        "splits, and corrected for the rows that splits share (Nadeau and Bengio, 2003). Samples "
        "of Adult-9 share their test rows only; Building has one split, and no interval.",
        grid(LOSSES, compared),
        *others(classifiers),
        *reliability.render(classifiers),
        "## Chains",
        CHAINS_SAY,
        grid(CHAINS, classifiers),
        "## Latent features",
        grid(FEATURES, [table for table in fitted if not table.classes]),
        "## What fits warned of",
        warned(tables),
        "## Where it was measured",
        where(record),
    ]
    return "\n\n".join(parts)


class Small(NamedTuple):
    """The result on small tables."""

    tables: list[Summary]
    below: dict[str, int]
    """On how many of them our log-loss is lower, by other classifier."""


def small_tables(record: Mapping[str, Any]) -> Small:
    """Tables of classes with few rows, and where our log-loss is lower."""
    found = [
        table
        for table in summaries(record)
        if table.losses and table.classes and table.worst("n_rows") <= SMALL
    ]
    below = {
        name: sum(table.losses[OURS] < table.losses.get(name, math.nan) for table in found)
        for name in (LOGISTIC, BOOSTING)
    }
    return Small(found, below)


def render_headline(record: Mapping[str, Any]) -> str:
    """The first sentence of the README about the result."""
    tables, below = small_tables(record)
    rows = [table.worst("n_rows") for table in tables]
    return (
        f"On {len(tables)} real tables with {min(rows):,} to {max(rows):,} training rows, and with "
        f"nothing tuned, its log-loss is lower than that of {LOGISTIC} on {below[LOGISTIC]} and "
        f"that of {BOOSTING} on {below[BOOSTING]} ([all results](docs/defaults.md))."
    )


def render_summary(record: Mapping[str, Any]) -> str:
    """The paragraph of the README: the result on small tables, with exceptions."""
    tables, below = small_tables(record)
    splits = [table.n_compared for table in tables]
    lowest = sum(table.lowest == OURS for table in tables)
    worse = sorted((t for t in tables if t.above > 0), key=lambda table: -table.above)
    shown = ", ".join(f"{table.title} ({table.above:+.1%})" for table in worse) or "none"
    spread = f"{min(splits)} to {max(splits)}" if min(splits) < max(splits) else min(splits)
    return (
        f"Mean log-loss of test rows with default settings, {spread} splits of each table:\n\n"
        f"- lower than that of {LOGISTIC} on {below[LOGISTIC]} of {len(tables)} tables, than that "
        f"of {BOOSTING} on {below[BOOSTING]}, and the lowest of {len(CLASSIFIERS)} classifiers on "
        f"{lowest};\n"
        f"- higher than that of {LOGISTIC} on {shown};\n"
        f"- beyond chance (95% intervals over splits) lower than that of {LOGISTIC} on "
        f"{sum(t.excess.interval[1] < 0 for t in tables)}, higher on "
        f"{sum(t.excess.interval[0] > 0 for t in tables)}."
    )


def missing(tables: Sequence[Summary]) -> list[str]:
    """Total time, missing tables and seeds, and failures."""
    n_fits = {table.name: len(table.fits) for table in tables}
    absent = [name_of(name) for name in TABLES if name not in n_fits]
    short = [
        f"{name_of(name)} ({n} of {TABLES[name].n_seeds})"
        for name, n in n_fits.items()
        if n < TABLES[name].n_seeds
    ]
    n_busy = sum(busy(fit) for table in tables for fit in table.fits)
    lines = [f"Times of {n_busy} fits are left out: the machine was busy."] * (n_busy > 0)
    lines += [f"Not measured, for want of data or time: {'; '.join(absent)}."] if absent else []
    lines += [f"Not measured with all seeds: {'; '.join(short)}."] if short else []
    return lines + [f"Failed: {name_of(t.name)}: {error}" for t in tables for error in t.errors]


def complete(tables: Sequence[Summary], name: str) -> bool:
    """Whether all seeds of a table were fitted."""
    return any(t.name == name and len(t.fits) >= TABLES[name].n_seeds for t in tables)


def verdicts(found: Iterable[Target], *, whole: bool) -> str:
    """Every target, and whether it was met; incomplete panels are marked."""
    so_far = "" if whole else " so far"
    rows = (
        f"| {t.wish} | {t.measured} | {VERDICTS[t.met]}{so_far * (t.met is not None)} |"
        for t in found
    )
    return "\n".join(["| target | measured | |", "|---|---|---|", *rows])


def others(tables: Sequence[Summary]) -> list[str]:
    """Point estimates and variational fits beside logistic regression."""
    measured = [table for table in tables if table.others]
    if not measured:
        return []
    rows = []
    for table in measured:
        first, *_ = table.others.values()
        cells = [table.title, f"{first.n_fits}", number(first.linear, ".3f")]
        for one in table.others.values():
            quiet = f"{one.quiet} of {one.n_fits}"
            cells += [number(one.log_loss, ".3f"), one.excess.text("+.1%"), quiet]
        rows.append(f"| {' | '.join(cells)} |")
    head = ["table", "splits", LOGISTIC]
    for name in OTHERS:
        head += [name, "", "without a warning"]
    marks = ["---", *["---:"] * (len(head) - 1)]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, marks)]
    return ["## Without sampling", OTHERS_SAY, "\n".join([*lines, *rows])]


def warned(tables: Sequence[Summary]) -> str:
    """Warnings by frequency, with their numbers removed."""
    lines = []
    for table in tables:
        texts = (NUMBERS.sub("…", text) for fit in table.fits for text in fit["warnings"])
        lines += [f"- {name_of(table.name)}, {n} x: {text}" for text, n in Counter(texts).items()]
    return "\n".join(lines) or "Nothing."


def where(record: Mapping[str, Any], others: str = "classifiers") -> str:
    """Machines, versions and numbers of processes; commits are in the record."""
    parts = [part for cell in record["cells"].values() for part in cell.values()]
    stamps = [part["stamp"] for part in parts if "stamp" in part]
    loads = [one["machine"]["load_at_start"][0] for one in stamps]
    days = sorted(one["finished"] for one in stamps)
    shared = sum("shared_process" in one for one in stamps)
    alone = "Each part ran in a process of its own."
    if shared:
        alone = f"{shared} of {len(stamps)} parts shared processes with others."
    head = (
        f"Measured from {days[0]} to {days[-1]}, in parts: a fit, or the other {others}, of one "
        f"split. {alone} Load of the machine at the start of a part: {min(loads):g} to "
        f"{max(loads):g}. The record has the commit of each part."
    )
    return "\n".join([head, "", *computers(stamps)])


def computers(stamps: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each computer: how many parts it measured, with which versions."""
    n_parts = Counter(computer_of(one) for one in stamps)
    versions = {name: dict[str, None]() for name in n_parts}
    for one in stamps:
        versions[computer_of(one)].update(dict.fromkeys(versions_of(one)))
    return [f"- {n} parts on {name}: {', '.join(versions[name])}" for name, n in n_parts.items()]


def name_of(name: str) -> str:
    """The title, marked if it belongs to the feature sampler."""
    return TABLES[name].title + ("" if TABLES[name].classes else " (features)")


def grid(columns: Mapping[str, Callable[[Summary], str]], tables: Iterable[Summary]) -> str:
    """One line for each table, without times if there are none; the first column is text."""
    tables = list(tables)
    known = {name for name, column in columns.items() if any(map(column, tables))}
    columns = {name: columns[name] for name in columns if name in known or name not in TIMES}
    rows = [[column(table) for column in columns.values()] for table in tables]
    marks = ["---", *["---:"] * (len(columns) - 1)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, marks, *rows))


def shape(table: Summary) -> str:
    """Rows, columns and classes."""
    fit = table.fits[0]
    sizes = (fit[name] for name in ("n_rows", "n_columns", "n_classes") if name in fit)
    return " x ".join(f"{size:,}" for size in sizes)


def loss(name: str) -> Callable[[Summary], str]:
    """A column of log-losses."""

    def column(table: Summary) -> str:
        value = number(table.losses.get(name, math.nan), ".3f")
        return f"**{value}**" if table.losses and name == table.lowest else value

    return column


def best_other(table: Summary) -> str:
    """The lowest log-loss of the other classifiers except logistic regression, and its name."""
    others = {n: value for n, value in table.losses.items() if n not in (OURS, LOGISTIC)}
    if not others:
        return ""
    best = min(others, key=lambda name: others[name])
    return f"{loss(best)(table)} {best}"


def pace(table: Summary) -> str:
    """Effective draws per second of the second fit, or of the first if there is no second."""
    next_, first = table.seconds("warm"), table.seconds("cold")
    value = table.median("ess") / (first if math.isnan(next_) else next_)
    return "" if math.isnan(value) else show(value)


def ended(table: Summary) -> str:
    """Why chains stopped, and how often."""
    return ", ".join(f"{why} {n}" for why, n in Counter(f["ending"] for f in table.fits).items())


def number(value: float, form: str) -> str:
    """Formatted number, empty if missing."""
    return "" if math.isnan(value) else format(value, form)


OVERVIEW: dict[str, Callable[[Summary], str]] = {
    "table": lambda table: table.title,
    "training rows x columns x classes": shape,
    "first fit, s": lambda table: number(table.seconds("cold"), ".3g"),
    "next, s": lambda table: number(table.seconds("warm"), ".3g"),
    "without a warning": lambda table: f"{table.quiet} of {len(table.fits)}",
    "log-loss": loss(OURS),
    LOGISTIC: loss(LOGISTIC),
    "best other": best_other,
}
LOSSES = (
    {"table": OVERVIEW["table"]}
    | {name: loss(name) for name in CLASSIFIERS}
    | {"": lambda table: table.excess.text("+.1%")}
)
OTHERS_SAY = (
    'Log-loss of `inference="map"` and `inference="vi"`, with nothing else set, on the same '
    "splits, and their distances from logistic regression with 95% intervals."
)
CHAINS_SAY = (
    "R-hat is the worst of all fits, of the numbers that predictions need and of all; effective "
    "draws are the smallest number of a fit, all chains together, in the median of the fits, and "
    "a second of a next fit. Chains end when they have converged, when their time is over, or "
    "when they sit in different modes."
)
_AGREEMENT: dict[str, Callable[[Summary], str]] = {
    "R-hat, predictions": lambda table: number(table.worst("rhat"), ".3f"),
    "R-hat, all": lambda table: number(table.worst("rhat_all"), ".3f"),
    "effective draws": lambda table: number(table.median("ess"), ",.0f"),
    "a second": pace,
    "ended": ended,
}
CHAINS: dict[str, Callable[[Summary], str]] = {
    "table": OVERVIEW["table"],
    "divergences": lambda table: str(sum(fit["divergent"] for fit in table.fits)),
    **_AGREEMENT,
}
FEATURES: dict[str, Callable[[Summary], str]] = {
    "data": OVERVIEW["table"],
    "rows x columns": shape,
    **{name: OVERVIEW[name] for name in ("first fit, s", "next, s", "without a warning")},
    "components": lambda table: f"{table.median('n_components'):g}",
    **_AGREEMENT,
}


def main(source: str, page: str, readme: str | None = None) -> None:
    """Write the page, and the sentence and the paragraph of the README."""
    record = json.loads(Path(source).read_text(encoding="utf-8"))
    fill_page(Path(page), {"record": render(record)})
    if readme is not None:
        texts = {"headline": render_headline(record), "defaults": render_summary(record)}
        fill_page(Path(readme), texts)


if __name__ == "__main__":
    main(*sys.argv[1:])
