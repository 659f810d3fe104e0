"""``wideangle reproduce``: run what is missing, then write and show the tables of what there is."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sklearn
from rich.console import Console

from wideangle.checks import check_choice
from wideangle.datasets import MANIFEST, locate
from wideangle_lab.paper.cells import Cell
from wideangle_lab.paper.made import NAMES
from wideangle_lab.paper.run import Describe, Report, run
from wideangle_lab.paper.suites import SUITES, Choice, cells_of, numbers_of
from wideangle_lab.paper.tables import CELLS, suite_grids, write_table

__all__ = ["FOLDER", "Choice", "reproduce"]

FOLDER = Path("results")


class WithVersions:
    """A description of the machine that knows scikit-learn's version too; can be sent away."""

    def __init__(self, describe: Describe) -> None:
        self.describe = describe

    def __call__(self) -> Mapping[str, Any]:
        """Describe the machine that this is called on."""
        where = self.describe()
        versions = {**where["versions"], "scikit-learn": sklearn.__version__}
        return {**where, "versions": versions}


def reproduce(
    names: Sequence[str],
    choice: Choice,
    folder: Path,
    describe: Describe,
    *,
    jobs: int = 1,
    dask: str | None = None,
    budget: float | None = None,
) -> Report:
    """Run the cells of some tables, write these tables and print them."""
    cells = cells_of(names, choice)
    check_data(cells)
    report = run(cells, folder / CELLS, WithVersions(describe), jobs=jobs, dask=dask, budget=budget)
    console = Console(width=None if sys.stdout.isatty() else 180)
    data = {cell.data.partition(".")[0] for cell in cells}
    for number in numbers_of(names):
        for grid in write_table(number, folder, data):
            console.print(grid.rich())
    for suite in (name for name in names if name in SUITES):
        for grid in suite_grids(suite, folder / CELLS, data):
            console.print(grid.rich())
    return report


def check_data(cells: Sequence[Cell]) -> None:
    """Say before the first cell, and once, that a file is not there."""
    for name in sorted({cell.data.partition(".")[0] for cell in cells}):
        check_choice("data", name, NAMES)
        if name in MANIFEST and MANIFEST[name].file:
            locate(MANIFEST[name])
