"""The table and the notes of docs/datasets.md, from the manifest and the sources.

``python -m wideangle_lab.originals.page docs/datasets.md`` writes them between the two marks of the
page; a test compares.
"""

from __future__ import annotations

import sys
from pathlib import Path

from wideangle_lab.datasets.manifest import MANIFEST, Entry
from wideangle_lab.marks import fill_page
from wideangle_lab.originals.sources import RECIPES


def render() -> str:
    """Everything between the marks."""
    rows = [
        "| `load(...)` | in the paper | rows | columns | classes | status | get it |",
        "|---|---|---:|---:|---:|---|---|",
        *(_row(entry) for entry in MANIFEST.values()),
    ]
    return "\n".join([*rows, "", *(_section(entry) for entry in MANIFEST.values())])


def checked_by(name: str) -> str:
    """How a download is verified."""
    recipe = RECIPES.get(name)
    if recipe is None or not recipe.originals:
        return "sha256 of the canonical file"
    known = all(place.sha256 for original in recipe.originals for place in original.places)
    download = "sha256 of the download" if known else "sha256 of the first download, kept for later"
    content = "a digest of all arrays" if recipe.content else "numbers of rows, columns and classes"
    return f"{download}; then {content}"


def _row(entry: Entry) -> str:
    status = f"**{entry.status}**" if entry.status == "stand-in" else entry.status
    get = "fetch" if RECIPES.get(entry.name) and RECIPES[entry.name].originals else "by hand"
    cells = (
        f"`{entry.name}`",
        entry.paper,
        f"{entry.shape[0]:,}",
        f"{entry.shape[1]:,}",
        str(entry.n_classes or ""),
        status,
        get if entry.file else "generated",
    )
    return f"| {' | '.join(cells)} |"


def _section(entry: Entry) -> str:
    lines = [f"### {entry.title} (`{entry.name}`, {entry.status})", "", entry.note, ""]
    lines += [f"- Source: {entry.source}", f"- Licence: {entry.licence}"]
    lines += [f"- Cite: {entry.citation}"]
    if entry.file:
        lines += [
            f"- To get it: {entry.how_to_get}",
            f"- Check: {checked_by(entry.name)}",
        ]
    if entry.sha256:
        lines += [f"- Canonical file: {entry.size:,} bytes, sha256 `{entry.sha256}`"]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        fill_page(Path(argument), {"data sets": render()})
