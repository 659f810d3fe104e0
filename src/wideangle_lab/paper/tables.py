"""Every table of the paper by its number: from records to text, and into ``table-NN``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from wideangle.storage.files import write
from wideangle_lab.datasets import MANIFEST, DataNotFoundError, locate
from wideangle_lab.paper import classifier_tables as classes
from wideangle_lab.paper import feature_tables as features
from wideangle_lab.paper import printed
from wideangle_lab.paper.cells import CLASSIFIERS, FEATURES
from wideangle_lab.paper.compare import by_key, largest
from wideangle_lab.paper.grid import Grid
from wideangle_lab.paper.records import Record, read_all, write_json
from wideangle_lab.paper.suites import TABLES

CELLS = "cells"
"""Folder of the records, below that of the results."""


BY_DATA: dict[int, list[tuple[str, features.Number, str, printed.Three]]] = {
    7: [
        ("L2 error", features.metric("l2_error"), ".4g", printed.L2_ERROR),
        ("Root mean square error of hidden entries", features.metric("hidden_rms"), ".4g", {}),
    ],
    8: [
        ("Log-likelihood of a row, assignments summed out", features.metric("log_likelihood"),
         ".2f", printed.LIKELIHOOD),
        ("Log density of hidden entries, predicted from the rest of their rows",
         features.metric("hidden_log_density"), ".4f", {}),
    ],
    9: [("Clustering accuracy, %", features.metric("clustering_accuracy"), ".1f",
         printed.CLUSTERING)],
    10: [("NMI, %", features.metric("nmi"), ".1f", printed.NMI)],
    11: [
        ("Features per draw", features.diagnostic("n_raw"), ".1f", printed.N_FEATURES),
        ("Components: features that matter and that most draws have",
         features.diagnostic("n_components"), ".1f", {}),
    ],
}  # fmt: skip
"""Title, number, form, and the printed values. Some tables have a second number that cannot be
improved by fitting noise or by unused features."""


def statistics_grid() -> Grid:
    """Table 6: sizes of the data sets in the paper and here, and whether files are found."""
    rows = []
    for name, (n_rows, dim, n_classes) in printed.STATISTICS.items():
        entry = MANIFEST[name]
        theirs = f"{n_rows} x {dim}" + (f", {n_classes} classes" if n_classes else "")
        ours = f"{entry.shape[0]} x {entry.shape[1]}"
        ours += f", {entry.n_classes} classes" if entry.n_classes else ""
        rows.append((entry.title, theirs, ours, entry.status, "yes" if _at_hand(name) else "no"))
    columns = ("data", "paper", "here", "status", "at hand")
    return Grid("Statistics of the data sets", columns, rows)


def _at_hand(name: str) -> bool:
    if not MANIFEST[name].file:
        return True
    try:
        locate(MANIFEST[name])
    except DataNotFoundError:
        return False
    return True


def table_grids(number: int, records: Sequence[Record], data: Sequence[str]) -> list[Grid]:
    """One table of the paper from the records of its cells."""
    first = data[0] if data else ""
    make: dict[int, Callable[[], list[Grid]]] = {
        1: lambda: classes.all_grids(records, first),
        2: lambda: classes.all_grids(records, first),
        3: lambda: [classes.nine_grid(records), classes.diagnostic_grid(records, first)],
        4: lambda: [classes.against_grid(records, data)],
        5: lambda: [classes.time_grid(records, data)],
        6: lambda: [statistics_grid()],
        12: lambda: [features.precision_grid(records, first)],
        13: lambda: [features.word_grid(records, first)],
    }
    if number in make:
        return make[number]()
    grids = [
        features.data_grid(records, title, data, number_of, form, table)
        for title, number_of, form, table in BY_DATA[number]
    ]
    if number == max(BY_DATA):
        grids += [
            grid for name in data for grid in features.detail_grids(records, name) if grid.rows
        ]
    return grids


def table_records(
    number: int, folder: Path, among: Collection[str] = ()
) -> tuple[list[Record], list[str]]:
    """Records that a table is made of, and its data sets.

    For a run on ``among``, which may be generated rows, a table has the data sets with records;
    otherwise all data sets.
    """
    table = TABLES[number]
    if table.suite is None:
        return [], []
    wanted = list(table.choice.data)
    wanted += [table.made] if table.made in among and table.made not in wanted else []
    methods, sizes = table.choice.methods, table.choice.experts
    found = [
        record
        for record in read_all(folder / CELLS, table.suite)
        if record.cell.data.partition(".")[0] in wanted
        and (not methods or record.cell.method in methods)
    ]
    if sizes:  # if the K of the table was not run, use the largest
        cells = by_key(found)
        kept = {
            (name, method, k)
            for name, method, k in cells
            if k in sizes or (k == largest(cells, name, method) and k < min(sizes))
        }
        found = [record for key in sorted(kept) for record in cells[key]]
    present = data_sets(found)
    return found, [name for name in wanted if not among or name in present]


def write_table(number: int, folder: Path, among: Collection[str] = ()) -> list[Grid]:
    """Make a table and write it to ``table-NN/table.json`` and ``table.md``."""
    records, data = table_records(number, folder, among)
    grids = table_grids(number, records, data)
    target = folder / f"table-{number:02d}"
    content = {
        "number": number,
        "title": TABLES[number].title,
        "grids": [grid.as_json() for grid in grids],
        "records": [record.path.relative_to(folder).as_posix() for record in records],
    }
    write_json(target / "table.json", content)
    lines = [f"# Table {number}: {TABLES[number].title}"]
    for grid in grids:
        lines += [f"\n{grid.title}\n", grid.markdown()]
    write(target / "table.md", ["\n".join([*lines, ""]).encode()])
    return grids


def suite_grids(suite: str, folder: Path, data: Collection[str]) -> list[Grid]:
    """The tables of a suite, by data set."""
    records = [r for r in read_all(folder, suite) if r.cell.data.partition(".")[0] in data]
    found: list[Grid] = []
    for name in data_sets(records):
        if suite == FEATURES:
            found += features.detail_grids(records, name)
        if suite == CLASSIFIERS:
            found += [classes.metric_grid(records, name, metric) for metric in classes.FORMS]
            found.append(classes.diagnostic_grid(records, name))
    return found


def data_sets(records: Sequence[Record]) -> list[str]:
    """Data sets that occur, in order."""
    return sorted({record.cell.data.partition(".")[0] for record in records})
