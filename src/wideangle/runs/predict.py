"""Apply a run to the rows of a file."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from wideangle.frames.encode import encode
from wideangle.frames.labels import codes, labels_of
from wideangle.frames.read import read_table
from wideangle.frames.table import TableError
from wideangle.runs.folder import Run
from wideangle.runs.scores import score_experts
from wideangle.storage.files import write

CHUNK = 2**22
"""Entries of reconstructed rows at once."""
FORMATS = (".csv", ".tsv", ".parquet", ".json", ".jsonl")


@dataclass(frozen=True)
class Predicted:
    """Predictions of the rows of a file, in their order."""

    frame: Any
    """A pandas DataFrame."""
    notes: list[str]
    scores: dict[str, float]
    """Accuracy and log-loss where the file has the target."""


def predict_file(
    run: Run, data: Path, *, keep: tuple[str, ...] = (), allow_new: bool = False
) -> Predicted:
    """Predict the rows of a file.

    Parameters
    ----------
    run
        A fitted model with its encoding.
    data
        A file with the columns of the training file.
    keep
        Columns to copy in front of the predictions.
    allow_new
        Whether words that were not there in training are let through.
    """
    import pandas as pd

    n_columns = None if run.frame.sources is not None else len(run.frame.columns)
    table = read_table(data, run.frame.reading, like=n_columns)
    copied = {name: table.column(name).to_numpy() for name in keep}
    encoded = encode(table, run.frame, allow_new=allow_new)
    values, scores = (_experts if run.kind == "moe" else _features)(run, encoded.X, table)
    twice = [name for name in values if name in copied]
    if twice:
        raise TableError(f"{data}: column {twice[0]!r} has the name of a prediction; rename it.")
    return Predicted(pd.DataFrame(copied | values), encoded.notes, scores)


def _experts(run: Run, X: Any, table: Any) -> tuple[dict[str, Any], dict[str, float]]:
    proba = run.model.predict_proba(X)
    uncertainty = run.model.predict_uncertainty(X)
    classes = np.array(run.frame.classes)
    values = {
        "prediction": classes[np.argmax(proba, axis=1)],
        **{f"p({label})": proba[:, i] for i, label in enumerate(run.frame.classes)},
        "uncertainty": uncertainty.total,
        "epistemic": uncertainty.epistemic,
    }
    target = run.frame.target
    labels = None if target is None else labels_of(table, target)
    if target is None or labels is None:
        return values, {}
    y = codes(target, labels)
    known = y >= 0
    if not known.any():
        return values, {}
    shares = np.full(len(classes), 1.0 / len(classes))
    found = score_experts(proba[known], y[known], shares)
    return values, {name: found[name] for name in ("accuracy", "log_loss")}


def _features(run: Run, X: Any, _table: Any) -> tuple[dict[str, Any], dict[str, float]]:
    model = run.model
    activations = model.transform(X)
    size = max(1, CHUNK // X.shape[1])
    errors = [_distances(model, X[i : i + size]) for i in range(0, X.shape[0], size)]
    values = {f"feature_{k + 1}": activations[:, k] for k in range(activations.shape[1])}
    values["log_density"] = model.score_samples(X)
    values["error"] = np.concatenate(errors)
    return values, {}


def _distances(model: Any, X: Any) -> np.ndarray:
    """Root mean square of each row's difference from its reconstruction, over seen entries."""
    dense = np.asarray(X.toarray() if sp.issparse(X) else X, np.float64)
    seen = ~np.isnan(dense)
    squares = np.where(seen, (model.reconstruct(X) - dense) ** 2, 0.0).sum(axis=1)
    n_seen = seen.sum(axis=1)
    return np.sqrt(np.where(n_seen > 0, squares / np.maximum(n_seen, 1), np.nan))


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
    write(output, [as_bytes(frame, suffix)])


def as_bytes(frame: Any, suffix: str) -> bytes:
    """A table in the format that the ending of a name stands for."""
    if suffix == ".parquet":
        return frame.to_parquet(index=False)
    if suffix in (".csv", ".tsv"):
        return frame.to_csv(index=False, sep="," if suffix == ".csv" else "\t").encode()
    text = frame.to_json(orient="records", lines=suffix == ".jsonl", double_precision=15)
    if suffix == ".json":
        text = json.dumps(json.loads(text), indent=1) + "\n"
    return text.encode()
