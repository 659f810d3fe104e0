"""The loop over areas: measure, print, keep.

Every comparison is a ratio of two things measured in turns within one run, so that a busy or slow
machine disturbs both sides; repeats give its spread. Compilation is left out by one untimed call.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import jax
from rich.console import Console
from rich.table import Table

from wideangle.bench.machine import describe
from wideangle.bench.record import OURS, Case, Series, show, to_json

FOLDER = Path("results") / "bench"

AREAS = {
    "vMF": "wideangle.bench.von_mises_fisher",
    "priors": "wideangle.bench.priors",
    "sampling": "wideangle.bench.sampling",
    "experts": "wideangle.bench.experts",
    "features": "wideangle.bench.features",
    "import": "wideangle.bench.imports",
}
"""Area to module; a new area is a module with ``measure(settings) -> list[Case]`` and a line."""


class Settings(NamedTuple):
    """What an area is asked for."""

    quick: bool
    seed: int
    repeats: int


def run(output: Path | None, quick: bool, seed: int) -> dict[str, Any]:
    """Measure every area, print a table, write the record; returns the record."""
    name = "quick" if quick else "full"
    output = output or FOLDER / f"{name}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    settings = Settings(quick, seed, repeats=3 if quick else 5)
    console = Console(width=None if sys.stdout.isatty() else 160)
    start = time.perf_counter()
    areas: dict[str, list[Case]] = {}
    head = {"name": name, "settings": settings._asdict(), **describe()}
    for area, module in AREAS.items():
        console.print(f"measuring: {area} ...", highlight=False)
        areas[area] = import_module(module).measure(settings)
    record = {
        **head,
        "seconds": round(time.perf_counter() - start, 1),
        "areas": {area: [to_json(case) for case in cases] for area, cases in areas.items()},
    }
    console.print(make_table(areas))
    output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    console.print(f"Record: {output} ({record['seconds']:.0f} s)", soft_wrap=True, highlight=False)
    return record


def in_turns(
    functions: Mapping[str, Callable[[int], Any]], repeats: int, calls: int = 1
) -> dict[str, Series]:
    """Seconds per call of each function, called in turns with the number of the repeat.

    The first, untimed turn compiles. ``calls`` in a row are timed together where one is too short
    for the clock.
    """
    for function in functions.values():
        jax.block_until_ready(function(0))
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for repeat in range(1, repeats + 1):
        for name, function in functions.items():
            start = time.perf_counter()
            for _ in range(calls):
                jax.block_until_ready(function(repeat))
            seconds[name].append((time.perf_counter() - start) / calls)
    return {name: Series(tuple(values)) for name, values in seconds.items()}


def make_table(areas: Mapping[str, list[Case]]) -> Table:
    """One line per rival of every case."""
    table = Table(title="wideangle against others", caption="Median (middle half of the repeats).")
    for column in ("case", "unit", OURS, "rival", "its value", "times better", "target"):
        table.add_column(column, justify="left" if column in ("case", "rival") else "right")
    for cases in areas.values():
        for case in cases:
            missed = case.missed()
            if not case.factors():
                table.add_row(case.name, case.unit, show(case.entries[OURS].median))
            for name, factor in case.factors().items():
                low, high = factor.quartiles
                least = case.targets.get(name)
                verdict = "" if least is None else f"{least:g}" + (" missed" * (name in missed))
                table.add_row(
                    case.name,
                    case.unit,
                    show(case.entries[OURS].median),
                    name,
                    show(case.entries[name].median),
                    f"{factor.median:.3g} ({low:.3g} to {high:.3g})",
                    verdict,
                )
        table.add_section()
    return table
