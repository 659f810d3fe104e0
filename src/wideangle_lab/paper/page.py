"""Write the pages about the paper, and its tables, from the records.

``python -m wideangle_lab.paper.page results docs`` fills ``reproduction.md`` with a verdict on
every claim, ``results.md`` and ``feature-results.md`` with an overview, and writes the tables.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from wideangle_lab.marks import fill_page
from wideangle_lab.paper.cells import CLASSIFIERS, FEATURES
from wideangle_lab.paper.claims import summary
from wideangle_lab.paper.classifier_claims import ablations, classifier_claims
from wideangle_lab.paper.detail_pages import classifier_blocks, copy_pictures, feature_blocks
from wideangle_lab.paper.feature_claims import feature_ablations, feature_claims
from wideangle_lab.paper.grid import Grid, listed
from wideangle_lab.paper.records import Record, read_all
from wideangle_lab.paper.suites import TABLES
from wideangle_lab.paper.tables import CELLS, write_table


def reproduction_blocks(folder: Path) -> dict[str, str]:
    """The verdicts, and the comparisons behind each of them."""
    mixtures = list(read_all(folder / CELLS, CLASSIFIERS))
    features = list(read_all(folder / CELLS, FEATURES))
    claims = [*classifier_claims(mixtures), *feature_claims(features)]
    columns = ("claim", "verdict", "effect, 95 % interval", "in the paper")
    alone = [
        (
            one.title,
            ", ".join(dict.fromkeys(part.data for part in one.used)),
            one.effect.text(one.form) + one.unit,
        )
        for one in (*ablations(mixtures), *feature_ablations(features))
        if one.effect is not None
    ]
    return {
        "verdicts": Grid("", columns, list(summary(claims))).markdown(),
        "angles": Grid("", ("rows that are compared", "data", "gain"), alone).markdown(),
        "machines": "\n".join(listed(machines([*mixtures, *features]))),
    }


def machines(records: Sequence[Record]) -> list[str]:
    """Where the records were made, with the number of cells."""
    counts: dict[str, int] = {}
    for record in records:
        machine, versions = record.data["machine"], record.data["versions"]
        used = f"Python {versions.get('python')}, JAX {versions.get('jax')}"
        place = f"{machine['cores']} cores of {machine['processor']}"
        device = record.data.get("device")
        place += f" and {device}" if device != "cpu" else ""
        line = f"{place}; {used}"
        counts[line] = counts.get(line, 0) + 1
    return [f"{line}: {count} cells" for line, count in counts.items()]


def main(arguments: list[str]) -> None:
    """Read the records, fill the pages and write the tables."""
    folder, pages = map(Path, arguments)
    for number in TABLES:
        write_table(number, folder)
    copy_pictures(folder / CELLS, pages / "images")
    fill_page(pages / "reproduction.md", reproduction_blocks(folder))
    fill_page(pages / "results.md", classifier_blocks(folder / CELLS))
    fill_page(pages / "feature-results.md", feature_blocks(folder / CELLS))


if __name__ == "__main__":
    main(sys.argv[1:])
