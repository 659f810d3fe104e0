"""Records: one JSON file for each finished cell, written atomically.

Settings chosen for all K and splits of a row on a data set are under ``tuning``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wideangle.storage.files import as_finite, write
from wideangle_lab.paper.baselines import BASELINES
from wideangle_lab.paper.cells import CLASSIFIERS, Cell, from_json
from wideangle_lab.paper.efforts import CHAINS, identity

VERSION = 2
TUNING = "tuning"
Tunings = Mapping[str, Mapping[str, Any]]
"""Earlier choices, by name: see :func:`wideangle_lab.paper.tuning.tuned`."""


@dataclass(frozen=True)
class Outcome:
    """Result of a cell; the process that runs it writes nothing."""

    metrics: dict[str, Any]
    seconds: dict[str, float]
    chosen: dict[str, Any] = field(default_factory=dict)
    """Settings chosen on the training part, and their scores."""
    diagnostics: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    tunings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """New choices that other cells can use."""
    picture: bytes | None = None
    """A PNG of the result."""


@dataclass(frozen=True)
class Record:
    """A finished cell, read back."""

    cell: Cell
    data: Mapping[str, Any]
    """Everything in the file."""
    path: Path

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Accuracy, log-loss, calibration, and those of groups."""
        return self.data["metrics"]

    @property
    def diagnostics(self) -> Mapping[str, Any]:
        """Convergence, experts in use."""
        return self.data["diagnostics"]


def keep(folder: Path, cell: Cell, outcome: Outcome, where: Mapping[str, Any]) -> Record:
    """Write the record, after its other files, so that a record is never incomplete."""
    path = folder / cell.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if outcome.picture is not None:
        write(path.with_suffix(".png"), [outcome.picture])
    for name, chosen in outcome.tunings.items():
        write_json(folder / TUNING / f"{name}.json", chosen)
    data = {
        "version": VERSION,
        "cell": cell.as_json(),
        "metrics": outcome.metrics,
        "chosen": outcome.chosen,
        "diagnostics": outcome.diagnostics,
        "warnings": list(outcome.warnings),
        "seconds": outcome.seconds,
        **where,
    }
    write_json(path, data)
    return Record(cell, data, path)


def known_tunings(folder: Path, data: str) -> dict[str, dict[str, Any]]:
    """Choices on a data set so far; that of a baseline is in its own record of split 0."""
    found = sorted((folder / TUNING / data).glob("*.json"))
    known = {f"{data}/{path.stem}": json.loads(path.read_text(encoding="utf-8")) for path in found}
    for method in BASELINES:
        path = folder / CLASSIFIERS / data / f"{method}.seed0.json"
        if path.is_file():
            known[f"{data}/{path.stem}"] = {"settings": read(path).data["chosen"]}
    return known


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Write atomically, with the same text for the same content; NaN becomes null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(as_finite(data), indent=1, sort_keys=True, allow_nan=False)
    write(path, [text.encode() + b"\n"])


def find(folder: Path, cell: Cell) -> Record | None:
    """The record of a cell, if it exists; an error if it was made with other settings.

    Longer chains than asked for are no other settings: rows that mix slowly need them.
    """
    path = folder / cell.path
    if not path.is_file():
        return None
    record = read(path)
    kept, asked = (as_finite(identity(one)) for one in (record.cell, cell))
    for name in CHAINS & set(asked["effort"]):
        kept["effort"][name] = min(kept["effort"][name], asked["effort"][name])
    if kept != asked:
        differing = [key for key in asked if kept[key] != asked[key]]
        changes = ", ".join(f"{key}: {kept[key]} and not {asked[key]}" for key in differing)
        raise ValueError(
            f"{path} was made with other settings ({changes}): choose another folder by --out, or "
            "delete the record."
        )
    return record


def read(path: Path) -> Record:
    """One record."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Record(from_json(data["cell"]), data, path)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is no record of a cell: {error}") from error


def read_all(folder: Path, suite: str) -> Iterator[Record]:
    """All records of a suite, in the order of their names."""
    for path in sorted((folder / suite).rglob("*.json")):
        yield read(path)
