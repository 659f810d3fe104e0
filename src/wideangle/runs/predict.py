"""Apply a run to the rows of a file."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wideangle.frames.encode import encode
from wideangle.frames.labels import targets_of
from wideangle.frames.read import read_table
from wideangle.frames.table import TableError
from wideangle.presentation.records import Run
from wideangle.storage.files import write

FORMATS = (".csv", ".tsv", ".parquet", ".json", ".jsonl")


@dataclass(frozen=True)
class Predicted:
    """Predictions of the rows of a file, in their order."""

    frame: Any
    """A pandas DataFrame."""
    notes: list[str]
    scores: dict[str, float]
    """Such as accuracy and log-loss, where the file has the target."""


def predict_file(run: Run, data: Path, *, keep: tuple[str, ...] = ()) -> Predicted:
    """Predict the rows of a file; ``keep`` are columns to copy in front of the predictions."""
    import pandas as pd

    n_columns = None if run.frame.sources is not None else len(run.frame.columns)
    table = read_table(data, run.frame.reading, like=n_columns)
    copied = {name: table.column(name).to_numpy() for name in keep}
    encoded = encode(table, run.frame)
    values = run.presentation.predict(encoded.X, run.frame.classes)
    twice = [name for name in values if name in copied]
    if twice:
        raise TableError(f"{data}: column {twice[0]!r} has the name of a prediction; rename it.")
    target = run.frame.target
    y = None if target is None else targets_of(table, target)
    scores = {} if y is None else run.presentation.score_file(encoded.X, y)
    return Predicted(pd.DataFrame(copied | values), encoded.notes, scores)


def write_predictions(frame: Any, output: Path | None, *, source: Path) -> None:
    """Write predictions to a file, whole or not at all; CSV on standard output without one."""
    if output is None:
        frame.to_csv(sys.stdout, index=False)
        return
    suffix = output.suffix.lower()
    if suffix not in FORMATS:
        raise ValueError(f"{output}: the name must end in one of {', '.join(FORMATS)}.")
    if output.exists() and output.samefile(source):
        raise ValueError(f"{output} is the file that is read: choose another -o.")
    write(output, [_as_bytes(frame, suffix)])


def _as_bytes(frame: Any, suffix: str) -> bytes:
    """A table in the format that the ending of a name stands for."""
    if suffix == ".parquet":
        return frame.to_parquet(index=False)
    if suffix in (".csv", ".tsv"):
        return frame.to_csv(index=False, sep="," if suffix == ".csv" else "\t").encode()
    text = frame.to_json(orient="records", lines=suffix == ".jsonl", double_precision=15)
    if suffix == ".json":
        text = json.dumps(json.loads(text), indent=1) + "\n"
    return text.encode()
