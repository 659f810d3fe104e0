"""The loop over areas: measure, print, save.

Every comparison is the ratio of two medians, measured alternately within one run, so that a busy or
slow machine affects both sides. A first, untimed call excludes compilation.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import jax
from rich.console import Console
from rich.table import Table

from wideangle_lab.bench.record import OURS, Case, Series, from_json, show, show_factor, to_json
from wideangle_lab.machine import describe

FOLDER = Path("results") / "bench"

AREAS = {
    "vMF": "wideangle_lab.bench.von_mises_fisher",
    "priors": "wideangle_lab.bench.priors",
    "sampling": "wideangle_lab.bench.sampling",
    "experts": "wideangle_lab.bench.experts",
    "sweeps": "wideangle_lab.bench.features",
    "features": "wideangle_lab.bench.feature_quality",
    "growth": "wideangle_lab.bench.growth",
    "import": "wideangle_lab.bench.imports",
}
"""Area to module; a new area is a module with ``measure(settings) -> list[Case]`` and a line."""

PANELS = {
    "defaults": "wideangle_lab.bench.defaults.loop",
    "regression": "wideangle_lab.bench.defaults.loop",
    "clusters": "wideangle_lab.bench.clusters.study",
}
"""Slow areas, measured only if named; each has a separate record of cells."""


class Size(NamedTuple):
    """Rows, columns, and experts or features."""

    rows: int
    columns: int
    components: int


class Settings(NamedTuple):
    """Settings of a measurement."""

    quick: bool
    seed: int
    repeats: int


def run(
    output: Path | None,
    quick: bool,
    seed: int,
    areas: Sequence[str] = (),
    **of_panels: Any,
) -> dict[str, Any]:
    """Measure every area, or the named ones; print a table, write the record and return it.

    The record is written after every area, so a crash does not lose earlier areas. Named areas
    replace those in an existing record; each area has the date and machine of its measurement.
    Further settings are those of the panels of default fits, :mod:`wideangle_lab.bench.defaults`.
    """
    if len(areas) == 1 and areas[0] in PANELS:
        panel = areas[0]
        output = output or FOLDER / f"{panel}{'-quick' * quick}.json"
        if panel != "clusters":
            of_panels["panel"] = panel
        return import_module(PANELS[panel]).run(output, quick=quick, seed=seed, **of_panels)
    if any(panel in areas for panel in PANELS) or any(of_panels.values()):
        raise ValueError(
            f"the areas {', '.join(PANELS)} are measured by themselves, and have --only, "
            "--again, --part and --jobs."
        )
    if unknown := [area for area in areas if area not in AREAS]:
        raise ValueError(f"no area {unknown[0]!r}; the areas are {', '.join((*AREAS, *PANELS))}.")
    name = "quick" if quick else "full"
    output = output or FOLDER / f"{name}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    settings = Settings(quick, seed, repeats=3 if quick else 5)
    record: dict[str, Any] = {"name": name, "settings": settings._asdict(), "areas": {}}
    if areas and output.exists():
        record["areas"] = _areas_of(output, record["settings"])
    console = Console(width=None if sys.stdout.isatty() else 160)
    for area in areas or AREAS:
        console.print(f"measuring: {area} ...", highlight=False)
        measured = stamped(area, settings)
        cases = {area: [from_json(case) for case in measured["cases"]]}
        console.print(make_table(cases))
        console.print(f"{area}: {measured['stamp']['seconds']:.0f} s", highlight=False)
        kept = record["areas"] | {area: measured}
        record["areas"] = {known: kept[known] for known in AREAS if known in kept}
        output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    console.print(f"Record: {output}", soft_wrap=True, highlight=False)
    return record


def stamped(area: str, settings: Settings) -> dict[str, Any]:
    """The cases of one area, with time, machine, versions and commit."""
    stamp = describe()
    start = time.perf_counter()
    cases: list[Case] = import_module(AREAS[area]).measure(settings)
    stamp["seconds"] = round(time.perf_counter() - start, 1)
    stamp["finished"] = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return {"stamp": stamp, "cases": [to_json(case) for case in cases]}


def _areas_of(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Areas of an earlier run with the same settings."""
    earlier = json.loads(path.read_text(encoding="utf-8"))
    if earlier["settings"] != settings:
        raise ValueError(
            f"{path} was measured with {earlier['settings']}, not {settings}; "
            "name another --output."
        )
    return earlier["areas"]


def in_turns(
    functions: Mapping[str, Callable[[int], Any]],
    repeats: int,
    calls: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Series]:
    """Seconds per call of each function, called alternately with the number of the repeat.

    The first, untimed call compiles. ``calls`` in a row are timed together if one is too short
    for the clock.
    """
    for function in functions.values():
        jax.block_until_ready(function(0))
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for repeat in range(1, repeats + 1):
        for name, function in functions.items():
            start = clock()
            for _ in range(calls):
                jax.block_until_ready(function(repeat))
            seconds[name].append((clock() - start) / calls)
    return {name: Series(tuple(values)) for name, values in seconds.items()}


def make_table(areas: Mapping[str, list[Case]]) -> Table:
    """One line per rival of every case."""
    table = Table(title="wideangle against others", caption="Medians, and their ratio.")
    for column in ("case", "unit", OURS, "rival", "its value", "times better", "target"):
        table.add_column(column, justify="left" if column in ("case", "rival") else "right")
    for cases in areas.values():
        for case in cases:
            missed = case.missed()
            if not case.factors():
                table.add_row(case.name, case.unit, show(case.entries[OURS].median))
            for name, factor in case.factors().items():
                least = case.targets.get(name)
                verdict = "" if least is None else f"{least:g}" + (" missed" * (name in missed))
                table.add_row(
                    case.name,
                    case.unit,
                    show(case.entries[OURS].median),
                    name,
                    show(case.entries[name].median),
                    show_factor(factor),
                    verdict,
                )
        table.add_section()
    return table
