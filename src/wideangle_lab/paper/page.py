"""Write the pages about the paper from the records.

``python -m wideangle_lab.paper.page results docs`` fills ``reproduction.md`` with every table and a
verdict on every claim, and ``results.md`` and ``feature-results.md`` with the details.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from wideangle_lab.marks import fill_page
from wideangle_lab.paper.cells import CLASSIFIERS, FEATURES
from wideangle_lab.paper.claims import Claim, summary
from wideangle_lab.paper.classifier_claims import ablations, classifier_claims
from wideangle_lab.paper.classifier_tables import sweep_grid, used_grid
from wideangle_lab.paper.detail_pages import classifier_blocks, copy_pictures, feature_blocks
from wideangle_lab.paper.feature_claims import feature_ablations, feature_claims
from wideangle_lab.paper.grid import Grid, listed
from wideangle_lab.paper.records import Record, all_tunings, read_all
from wideangle_lab.paper.suites import TABLES
from wideangle_lab.paper.tables import CELLS, data_sets, write_table


def reproduction_blocks(folder: Path) -> dict[str, str]:
    """Every claim and every table."""
    mixtures = list(read_all(folder / CELLS, CLASSIFIERS))
    features = list(read_all(folder / CELLS, FEATURES))
    claims = [*classifier_claims(mixtures), *feature_claims(features)]
    columns = ("claim", "verdict", "gains", "why")
    parts = ["## Summary of the claims\n", Grid("", columns, list(summary(claims))).markdown()]
    parts.append("\n## Claim by claim")
    for place, claim in enumerate(claims, 1):
        parts += _claim(claim, f"{place}. {claim.title}: {claim.verdict}")
    parts.append("\n## Effect of the angles alone")
    for claim in (*ablations(mixtures), *feature_ablations(features)):
        if any(c.effect for c in claim.comparisons):
            parts += _claim(claim, claim.title)
    parts += _strengths(folder, mixtures)
    tables = []
    for number, table in TABLES.items():
        tables.append(f"\n### Table {number}: {table.title}")
        for grid in write_table(number, folder):
            tables += [f"\n{grid.title}:\n", grid.markdown()]
    tables += ["\n## Where it was run\n", *listed(where([*mixtures, *features]))]
    return {"claims": "\n".join(parts), "tables": "\n".join(tables)}


def _claim(claim: Claim, title: str) -> Iterable[str]:
    yield f"\n### {title}\n"
    yield f"{claim.where[:1].upper()}{claim.where[1:]}; {claim.why}. {claim.remark}".rstrip() + "\n"
    columns = ("comparison", "gain", "in the paper", "fits", "verdict")
    if any(c.effect for c in claim.comparisons):
        yield Grid("", columns, [c.line() for c in claim.comparisons if c.effect]).markdown()
    missing = [c.what for c in claim.comparisons if c.effect is None]
    if missing:
        yield f"\nNot run: {'; '.join(missing)}."


def _strengths(folder: Path, mixtures: Sequence[Record]) -> Iterable[str]:
    """Log-loss by strength of the repulsion, and the number of experts in use."""
    sweep = sweep_grid(all_tunings(folder / CELLS))
    if sweep.rows:
        yield "\n### Strength of the repulsion in mixtures\n"
        yield (
            "Log-loss on the fifth of the training rows that is used to choose settings, at "
            "K = 10. A cosine is a strength with the same meaning in every dimension; `none` is "
            "the row without repulsion, whose settings the other rows share.\n"
        )
        yield sweep.markdown()
    for data in data_sets(mixtures):
        grid = used_grid(mixtures, data)
        if grid.rows:
            yield f"\n### Experts in use, {data}\n"
            yield "Experts with more than 1 % of the gate's mass.\n"
            yield grid.markdown()


def where(records: Sequence[Record]) -> list[str]:
    """Machines, versions and commits of the records, without repeats."""
    lines = {}
    names = {"python": "Python", "jax": "JAX", "numpy": "NumPy", "scikit-learn": "scikit-learn"}
    for record in records:
        machine, versions = record.data["machine"], record.data["versions"]
        used = ", ".join(f"{name} {versions.get(key)}" for key, name in names.items())
        place = f"{machine['cores']} cores of {machine['processor']}, {record.data.get('device')}"
        lines[f"{place}; {used}; commit {record.data.get('commit') or 'unknown'}."] = None
    return list(lines)


def main(arguments: list[str]) -> None:
    """Read the records, fill the pages and write the tables."""
    folder, pages = map(Path, arguments)
    copy_pictures(folder / CELLS, pages / "images")
    fill_page(pages / "reproduction.md", reproduction_blocks(folder))
    fill_page(pages / "results.md", classifier_blocks(folder / CELLS))
    fill_page(pages / "feature-results.md", feature_blocks(folder / CELLS))


if __name__ == "__main__":
    main(sys.argv[1:])
