"""From a record to the page of the documentation and the numbers of the README.

``python -m wideangle.bench.page results/bench/full.json docs/performance.md README.md`` writes the
page, and puts its most important rows between the two marks of the README.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wideangle.bench.record import OURS, Case, from_json, show

MARKS = ("<!-- numbers: begin -->", "<!-- numbers: end -->")
COMMAND = "wideangle bench"
SHOWN = ("SciPy", "np.cumsum", "NumPyro NUTS")
"""Rivals of the README; the page has all."""


def render(record: Mapping[str, Any]) -> str:
    """The whole page."""
    parts = ["# Performance\n", f"Written from the record by `make bench`. {where(record)}\n", HOW]
    for area, cases in record["areas"].items():
        parts.append(f"\n## {area}\n")
        parts.append("| case | unit | wideangle | rival | its value | times better | target |")
        parts.append("|---|---|---:|---|---:|---:|---:|")
        parts += [row for case in map(from_json, cases) for row in _rows(case)]
        notes = dict.fromkeys(case["note"] for case in cases if case["note"])
        parts += ["", *notes] if notes else []
    return "\n".join(parts) + "\n"


HOW = """
Each comparison alternates the competitors within one run and forms the ratio repeat by repeat; the
table has the median and, in brackets, the range of the middle half of the repeats. "Times better"
below 1 means that the rival is better. Compilation is not timed. Absolute numbers of a busy machine
mean little; compare ratios."""


def where(record: Mapping[str, Any]) -> str:
    """One sentence: command, seed, machine, versions, commit."""
    machine, versions = record["machine"], dict(record["versions"])
    names = {"python": "Python", "jax": "JAX", "numpyro": "NumPyro", "numpy": "NumPy"}
    names |= {"scipy": "SciPy"}
    shown = ", ".join(f"{name} {versions[key]}" for key, name in names.items() if key in versions)
    settings = record["settings"]
    quick = " --quick" if settings["quick"] else ""
    return (
        f"Command: `{COMMAND}{quick} --seed {settings['seed']}`, {settings['repeats']} repeats, on "
        f"{machine['cores']} cores of an {machine['processor']} with {machine['memory_gib']:.0f} "
        f"GiB (load {machine['load_at_start'][0]:g} at the start), {shown}; commit "
        f"{record['commit'] or 'unknown'}."
    )


def render_summary(record: Mapping[str, Any]) -> str:
    """The rows for the README."""
    cases = [from_json(case) for cases in record["areas"].values() for case in cases]
    lines = ["| measured | wideangle | rival | times better |", "|---|---:|---:|---:|"]
    for case in cases:
        for name, factor in case.factors().items():
            if not name.startswith(SHOWN):
                continue
            ours, theirs = _value(case, OURS), _value(case, name)
            lines.append(f"| {case.name} | {ours} | {theirs} {name} | {factor.median:.3g} |")
    return "\n".join([*lines, "", where(record)])


def put_between_marks(text: str, block: str) -> str:
    """Replace what lies between the marks."""
    begin, end = MARKS
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the text must have {begin} and {end} once each.")
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    return f"{head}{begin}\n{block}\n{end}{tail}"


def _rows(case: Case) -> Iterator[str]:
    if not case.factors():
        yield f"| {case.name} | {case.unit} | {show(case.entries[OURS].median)} | | | | |"
    for name, factor in case.factors().items():
        low, high = factor.quartiles
        least = case.targets.get(name)
        target = "" if least is None else f"≥ {least:g}"
        yield (
            f"| {case.name} | {case.unit} | {show(case.entries[OURS].median)} | {name} | "
            f"{show(case.entries[name].median)} | {factor.median:.3g} ({low:.3g} to {high:.3g}) | "
            f"{target} |"
        )


def _value(case: Case, name: str) -> str:
    value = case.entries[name].median
    if case.unit == "s":
        return f"{show(1e3 * value)} ms"
    return show(value) if case.unit == "count" else f"{show(value)} {case.unit}"


def main(arguments: list[str]) -> None:
    """Read the record, write the page, refresh the README."""
    source, page, *readme = map(Path, arguments)
    record = json.loads(source.read_text(encoding="utf-8"))
    page.write_text(render(record), encoding="utf-8")
    for path in readme:
        text = put_between_marks(path.read_text(encoding="utf-8"), render_summary(record))
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
