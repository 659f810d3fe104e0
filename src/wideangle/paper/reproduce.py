"""``wideangle reproduce``: run, then show the tables of what there is."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sklearn
from rich.console import Console

from wideangle.checks import check_choice
from wideangle.datasets import MANIFEST, NAMES, locate
from wideangle.paper.cells import Cell
from wideangle.paper.feature_methods import SUITE as FEATURES
from wideangle.paper.feature_tables import feature_grids
from wideangle.paper.records import read_all
from wideangle.paper.run import Report, run
from wideangle.paper.suites import SUITES, Choice, cells_of
from wideangle.paper.tables import (
    Grid,
    data_sets,
    diagnostic_grid,
    metric_grid,
    small_data_grid,
)

__all__ = ["FOLDER", "SUITES", "Choice", "grids", "reproduce"]

FOLDER = Path("results") / "paper"


def reproduce(
    names: Sequence[str],
    choice: Choice,
    folder: Path,
    where: Mapping[str, Any],
    *,
    jobs: int = 1,
    budget: float | None = None,
) -> Report:
    """Run the cells of some tables and print every table of the folder."""
    cells = cells_of(names, choice)
    check_data(cells)
    versions = {**where["versions"], "scikit-learn": sklearn.__version__}
    where = {**where, "versions": versions}
    report = run(cells, folder, where, jobs=jobs, budget=budget)
    console = Console(width=None if sys.stdout.isatty() else 180)
    for suite in dict.fromkeys(cell.suite for cell in cells):
        for grid in grids(folder, suite):
            console.print(grid.rich())
    return report


def check_data(cells: Sequence[Cell]) -> None:
    """Say before the first cell, and once, that a file is not there."""
    for name in sorted({cell.data.partition(".")[0] for cell in cells}):
        check_choice("data", name, NAMES)
        if name in MANIFEST and MANIFEST[name].file:
            locate(MANIFEST[name])


def grids(folder: Path, suite: str) -> list[Grid]:
    """The tables of a suite, from all records of the folder."""
    records = list(read_all(folder, suite))
    found: list[Grid] = []
    for data in data_sets(records):
        if suite == FEATURES:
            found += feature_grids(records, data)
            continue
        if suite == "small-data":
            found.append(small_data_grid(records, data, None))
            continue
        metrics = ("accuracy", "log_loss", "calibration_error")
        found += [metric_grid(records, data, metric, paper=True) for metric in metrics]
        found.append(diagnostic_grid(records, data))
    return found
