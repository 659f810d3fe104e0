"""``wideangle reproduce``: run missing cells, then write and show the tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from wideangle.checks import check_choice
from wideangle_lab.datasets import MANIFEST, locate
from wideangle_lab.paper.cells import Cell
from wideangle_lab.paper.made import NAMES
from wideangle_lab.paper.run import Report, run
from wideangle_lab.paper.suites import SUITES, Choice, cells_of, numbers_of
from wideangle_lab.paper.tables import CELLS, suite_grids, write_table

__all__ = ["FOLDER", "Choice", "reproduce"]

FOLDER = Path("results")


def reproduce(
    names: Sequence[str],
    choice: Choice,
    folder: Path,
    *,
    jobs: int = 1,
    dask: str | None = None,
    budget: float | None = None,
) -> Report:
    """Run the cells of some tables, write these tables and print them."""
    cells = cells_of(names, choice)
    check_data(cells)
    report = run(cells, folder / CELLS, jobs=jobs, dask=dask, budget=budget)
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
    """Report missing files once, before the first cell."""
    for name in sorted({cell.data.partition(".")[0] for cell in cells}):
        check_choice("data", name, NAMES)
        if name in MANIFEST and MANIFEST[name].file:
            locate(MANIFEST[name])
