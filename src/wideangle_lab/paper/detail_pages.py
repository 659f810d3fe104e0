"""Details of the tables of the paper: two pages, by data set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from wideangle_lab.datasets import MANIFEST
from wideangle_lab.paper.cells import CLASSIFIERS, FEATURES, SMALL_DATA
from wideangle_lab.paper.classifier_tables import diagnostic_grid, metric_grid, small_data_grid
from wideangle_lab.paper.feature_tables import detail_grids
from wideangle_lab.paper.records import Record, read_all
from wideangle_lab.paper.tables import data_sets

PAPER_MODEL = "IMA-LFM"


def classifier_blocks(folder: Path) -> dict[str, str]:
    """Log-loss, calibration, convergence, and the study of small data."""
    records = list(read_all(folder, CLASSIFIERS))
    parts: list[str] = []
    for data in data_sets(records):
        parts += _title(data)
        for metric in ("log_loss", "calibration_error"):
            grid = metric_grid(records, data, metric)
            parts += [f"\n{grid.title.partition(': ')[2].capitalize()}:\n", grid.markdown()]
        parts.append(
            "\nConvergence, experts in use, settings, seconds (choosing included, compilation "
            "too):\n"
        )
        parts.append(diagnostic_grid(records, data).markdown())
    small, found = list(read_all(folder, SMALL_DATA)), []
    for data in data_sets(small):
        groups = sorted({g for r in small if r.cell.data == data for g in r.metrics["groups"]})
        for group in (None, *groups):
            grid = small_data_grid(small, data, group)
            found += [f"\n{grid.title}:\n", grid.markdown()]
    return {"data sets": "\n".join(parts), "little data": "\n".join(found)}


def feature_blocks(folder: Path) -> dict[str, str]:
    """Held-out rows, features and chains of every data set."""
    records = list(read_all(folder, FEATURES))
    parts: list[str] = []
    for data in data_sets(records):
        parts += _title(data)
        part = [record for record in records if record.cell.data == data]
        sizes, effort = part[0].metrics, part[0].cell.effort
        parts.append(
            f"\n{sizes['n_train']} rows to learn from, {sizes['n_test']} held out; "
            f"{effort.n_chains} chains of {effort.n_warmup} + {effort.n_draws} sweeps."
        )
        for grid in detail_grids(records, data):
            parts += [f"\n{grid.title.partition(': ')[2].capitalize()}:\n", grid.markdown()]
        parts += _rows_themselves(part)
        if any(_picture(one) for one in part):
            parts.append(f"\nFirst components of {PAPER_MODEL}, with their share of rows:\n")
            parts.append(f"![features of {data}](images/{data}-features.png)")
    return {"data sets": "\n".join(parts)}


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


def _title(data: str) -> Iterable[str]:
    entry = MANIFEST.get(data)
    yield f"\n## {entry.title if entry else data}\n"
    if entry:
        status = entry.status.capitalize()
        yield entry.note if entry.note.startswith(status) else f"{status}. {entry.note}"


def _rows_themselves(records: Sequence[Record]) -> list[str]:
    """k-means without any features, on the same rows."""
    first = records[0].metrics
    if "nmi_of_rows" not in first:
        return []
    return [
        f"\nk-means on the held-out rows themselves (seed {records[0].cell.seed}): accuracy "
        f"{first['clustering_accuracy_of_rows']:.1f} %, NMI {first['nmi_of_rows']:.1f} %."
    ]
