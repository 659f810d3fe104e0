"""Records: one JSON file for each finished cell, whole or not there.

Beside it lies ``<name>.npz`` with the loss of every test row, for paired comparisons.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from wideangle.paper.cells import Cell, from_json
from wideangle.storage.files import write

VERSION = 1


@dataclass(frozen=True)
class Outcome:
    """What running a cell gives."""

    metrics: dict[str, Any]
    losses: np.ndarray
    """Minus log probability of the right class of every test row."""
    seconds: dict[str, float]
    chosen: dict[str, Any] = field(default_factory=dict)
    """Settings chosen on the training part, with the scores they were chosen by."""
    diagnostics: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


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

    def losses(self) -> np.ndarray:
        """Loss of every test row."""
        with np.load(self.path.with_suffix(".npz"), allow_pickle=False) as archive:
            return archive["losses"].astype(np.float64)


def keep(folder: Path, cell: Cell, outcome: Outcome, where: Mapping[str, Any]) -> Record:
    """Write the record; losses first, so that a record never lacks them."""
    path = folder / cell.path
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    # Half precision: rounding is far below the spread between rows, and records stay small.
    np.savez_compressed(buffer, losses=np.minimum(outcome.losses, 6e4).astype(np.float16))
    write(path.with_suffix(".npz"), [buffer.getvalue()])
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


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """All or nothing, the same text for the same content; NaN becomes null."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(plain(data), indent=1, sort_keys=True, allow_nan=False)
    write(path, [text.encode() + b"\n"])


def plain(value: Any) -> Any:
    """JSON's own types, from NumPy's too."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def find(folder: Path, cell: Cell) -> Record | None:
    """The record of a cell, if it is there; an error if it was made by other settings."""
    path = folder / cell.path
    if not path.is_file():
        return None
    record = read(path)
    if record.cell != from_json(plain(cell.as_json())):
        raise ValueError(
            f"{path} was made with other settings ({_difference(record.cell, cell)}): choose "
            "another folder by --out, or delete the record."
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


def _difference(one: Cell, other: Cell) -> str:
    left, right = plain(one.as_json()), plain(other.as_json())
    flat = [key for key in left if left[key] != right[key]]
    return ", ".join(f"{key}: {left[key]} and not {right[key]}" for key in flat)
