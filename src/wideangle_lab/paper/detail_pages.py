"""Overviews of the records: one page for classifiers and one for latent features."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from wideangle_lab.datasets import MANIFEST
from wideangle_lab.paper.cells import CLASSIFIERS, FEATURES
from wideangle_lab.paper.claims import COLUMNS, AnyClaim, Claim
from wideangle_lab.paper.classifier_claims import ablations, classifier_claims
from wideangle_lab.paper.classifier_tables import overview_grid as of_classifiers
from wideangle_lab.paper.feature_claims import feature_ablations, feature_claims
from wideangle_lab.paper.feature_tables import overview_grid as of_features
from wideangle_lab.paper.grid import Grid, listed
from wideangle_lab.paper.records import Record, read_all
from wideangle_lab.paper.tables import data_sets

PAPER_MODEL = "IMA-LFM"
FIRST_OF_FEATURES = 8
"""Number of the first claim about latent features."""


def classifier_blocks(folder: Path) -> dict[str, str]:
    """Accuracy, log-loss and calibration on every data set."""
    records = list(read_all(folder, CLASSIFIERS))
    parts: list[str] = []
    for data in data_sets(records):
        parts.append(f"\n## {_title(data)}\n\n{_note(data)}\n")
        parts.append(of_classifiers(records, data).markdown())
    found = [*enumerate(classifier_claims(records), 1), *((0, one) for one in ablations(records))]
    return {"data sets": "\n".join(parts), "comparisons": "\n".join(comparisons(found))}


def feature_blocks(folder: Path) -> dict[str, str]:
    """Held-out rows and features of every data set, and pictures of features."""
    records = list(read_all(folder, FEATURES))
    data = data_sets(records)
    parts = [of_features(records, data).markdown(), "\nThe data sets:\n"]
    parts += listed(f"**{_title(name)}.** {_note(name)}" for name in data)
    drawn = [one.cell.data for one in records if one.cell.seed == 0 and _picture(one)]
    for name in dict.fromkeys(drawn):
        parts.append(
            f"\nFirst components of {PAPER_MODEL}, {_title(name)}, with their share of rows:\n"
        )
        parts.append(f"![features of {name}](images/{name}-features.png)")
    found = [(n, one) for n, one in enumerate(feature_claims(records), FIRST_OF_FEATURES)]
    found += [(0, one) for one in feature_ablations(records)]
    return {"data sets": "\n".join(parts), "comparisons": "\n".join(comparisons(found))}


def comparisons(claims: Iterable[tuple[int, AnyClaim]]) -> Iterable[str]:
    """Every comparison that has fits, by claim."""
    for place, claim in claims:
        lines = list(claim.lines())
        if not lines:
            continue
        yield f"\n### {place}. {claim.title}\n" if place else f"\n### {claim.title}\n"
        unit = f"Gains in{claim.unit}. " if isinstance(claim, Claim) else ""
        yield f"{unit}{claim.remark}".strip() + "\n"
        grid = Grid("", COLUMNS, lines)
        yield grid.markdown() if place else grid.without(("in the paper", "verdict")).markdown()


def copy_pictures(folder: Path, images: Path) -> None:
    """One picture for each data set, from the first seed."""
    shown: set[str] = set()
    for record in read_all(folder, FEATURES):
        if record.cell.data not in shown and (picture := _picture(record)):
            images.mkdir(parents=True, exist_ok=True)
            target = images / f"{record.cell.data}-features.png"
            target.write_bytes(picture.read_bytes())
            shown.add(record.cell.data)


def _picture(record: Record) -> Path | None:
    path = record.path.with_suffix(".png")
    return path if record.cell.method == PAPER_MODEL and path.is_file() else None


def _title(data: str) -> str:
    return MANIFEST[data].title if data in MANIFEST else data


def _note(data: str) -> str:
    entry = MANIFEST.get(data)
    if entry is None:
        return ""
    status = entry.status.capitalize()
    return entry.note if entry.note.startswith(status) else f"{status}. {entry.note}"
