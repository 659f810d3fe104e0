"""``wideangle datasets``: the known data sets and their files."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from wideangle_lab.datasets.files import file_state, folders
from wideangle_lab.datasets.manifest import MANIFEST, Entry


def run(as_json: bool) -> None:
    """Print the list, as a table or as JSON."""
    found = [describe(entry) for entry in MANIFEST.values()]
    if as_json:
        where = [str(folder) for folder in folders()]
        sys.stdout.write(json.dumps({"folders": where, "datasets": found}, indent=1) + "\n")
        return
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(make_table(found))
    places = " and ".join(str(folder) for folder in folders())
    console.print(f"Files are looked for in {places}.", soft_wrap=True, highlight=False)
    missing = [one for one in found if one["file"] in ("missing", "other bytes")]
    if missing:
        console.print("To get the rest:")
    for one in missing:
        line = f"  {one['name']}: {one['get']}"
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def describe(entry: Entry) -> dict[str, Any]:
    """One data set and the state of its file."""
    state, path = file_state(entry) if entry.file else ("generated", None)
    return {
        "name": entry.name,
        "title": entry.title,
        "rows": entry.shape[0],
        "columns": entry.shape[1],
        "classes": entry.n_classes,
        "status": entry.status,
        "file": state,
        "path": str(path) if path else None,
        "note": entry.note,
        "paper": entry.paper,
        "source": entry.source,
        "licence": entry.licence,
        "citation": entry.citation,
        "get": entry.how_to_get,
    }


def make_table(found: list[dict[str, Any]]) -> Table:
    """One line for each data set."""
    table = Table(title="Data sets of the paper", caption="A stand-in is other data of its kind.")
    for column in ("name", "rows", "columns", "classes", "file", "status", "licence"):
        right = column in ("rows", "columns", "classes")
        table.add_column(column, justify="right" if right else "left")
    for one in found:
        table.add_row(
            one["name"],
            f"{one['rows']:,}",
            f"{one['columns']:,}",
            str(one["classes"] or ""),
            one["file"],
            one["status"],
            one["licence"],
        )
    return table
