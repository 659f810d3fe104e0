"""From a file to a run: read, hold rows out, encode, fit, score."""

from __future__ import annotations

import datetime
import platform
import time
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from wideangle.frames.encode import encode
from wideangle.frames.encoding import Encoding, Reading, Target
from wideangle.frames.labels import LEAST_ROWS, learn_target
from wideangle.frames.learn import Plan, learn
from wideangle.frames.read import read_table
from wideangle.frames.table import Table, TableError, count
from wideangle.runs.folder import Kind, Run, estimator_of
from wideangle.runs.scores import (
    look_at_experts,
    look_at_features,
    sampled_rows,
    score_experts,
    score_features,
)
from wideangle.runs.split import split_rows

PACKAGES = ("wideangle", "jax", "numpyro", "numpy", "scipy", "scikit-learn", "pandas")


class Interrupted(Exception):
    """Ctrl-C during the fit; the message says how far it came."""


@dataclass(frozen=True)
class Job:
    """What to fit to what.

    Attributes
    ----------
    data, target, reading, plan
        The file, the column to predict (experts), how to read the file and encode its columns.
    options
        Parameters of the estimator.
    held_out
        Share of the rows that are not trained on.
    checkpoint
        Folder for the estimator to save itself to while it runs.
    """

    kind: Kind
    data: Path
    target: str | None = None
    reading: Reading = field(default_factory=Reading)
    plan: Plan = field(default_factory=lambda: Plan(fill=True))
    options: dict[str, Any] = field(default_factory=dict)
    held_out: float = 0.2
    seed: int = 0
    checkpoint: Path | None = None
    command: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rows:
    """Encoded rows of a file, some of them held out; ``test`` are their indices in the file."""

    frame: Encoding
    X: Any
    y: np.ndarray | None
    X_test: Any
    y_test: np.ndarray | None
    train: np.ndarray
    test: np.ndarray
    notes: list[str]


class Stages:
    """Seconds of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def time(self, name: str) -> Any:
        """Take the time of a block."""
        began = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - began, 3)


def train(job: Job, say: Callable[[str], None]) -> Run:
    """Fit a model to a file.

    Parameters
    ----------
    job
        What to do.
    say
        Is called with each sentence about what is done, as it is done.

    Raises
    ------
    TableError
        The file does not suit the model.
    Interrupted, KeyboardInterrupt
        Ctrl-C, with draws or before the first. A maximisation is not taken up again: what it had
        reached is the model, with a warning.
    """
    began = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    log: list[str] = []

    def tell(sentence: str) -> None:
        log.append(sentence)
        say(sentence)

    stages = Stages()
    with stages.time("read"):
        table = read_table(job.data, job.reading)
        rows = prepare(table, job)
    shape = f"{count(table.n_rows, 'row')}, {count(len(rows.frame.columns), 'column')}"
    tell(f"{job.data}: {shape} as the model sees them; {count(len(rows.test), 'row')} held out")
    for note in rows.notes:
        tell(note)
    with stages.time("fit"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = _fit(job, rows)
    sentences = list(dict.fromkeys(str(one.message) for one in caught if _ours(one)))
    with stages.time("score"):
        metrics, sample = _score(job, model, rows)
    metrics = {
        "n_train": len(rows.train),
        "n_test": len(rows.test),
        **metrics,
        **_diagnostics(model),
        "warnings": sentences,
        "notes": rows.notes,
        "facts": [list(pair) for pair in model._facts()],
        "seconds": stages.seconds,
    }
    settings = {
        "command": list(job.command),
        "options": job.options,
        "seed": job.seed,
        "held_out": job.held_out,
        "source": str(job.data),
        "n_rows": table.n_rows,
        "began": began,
        "versions": versions(),
    }
    log += [f"{name}: {value}" for name, value in model._facts()]
    log += [f"warning: {sentence}" for sentence in sentences]
    log += [f"{name}: {seconds:.1f} s" for name, seconds in stages.seconds.items()]
    text = f"began {began}\n" + "\n".join(log) + "\n"
    return Run(job.kind, model, rows.frame, settings, as_finite(metrics), sample, text)


def prepare(table: Table, job: Job) -> Rows:
    """Hold rows out, and encode: what is held out has no part in how."""
    target: Target | None = None
    y: np.ndarray | None = None
    if job.kind == "moe":
        target, y = learn_target(table, job.target)
    elif table.n_rows < LEAST_ROWS:
        raise TableError(f"{table.source} has {count(table.n_rows, 'row')}: too few to learn from.")
    split = split_rows(table.n_rows, job.held_out, job.seed, y)
    frame, notes = learn(table.take(split.train), target, job.plan)
    if (
        job.kind == "features"
        and len(frame.columns) == 1
        and job.options.get("prior") != "gaussian"
    ):
        raise TableError(
            f"{table.source}: {frame.columns[0]!r} is the only column, and directions need two; "
            "use --prior gaussian."
        )
    X = encode(table.take(split.train), frame).X
    held = encode(table.take(split.test), frame, allow_new=True)
    notes = [*table.notes, *notes, *(f"held-out rows: {note}" for note in held.notes)]
    parts = (None, None) if y is None else (y[split.train], y[split.test])
    return Rows(frame, X, parts[0], held.X, parts[1], *split, notes)


def _fit(job: Job, rows: Rows) -> Any:
    model = estimator_of(job.kind)(**job.options, checkpoint=job.checkpoint, random_state=job.seed)
    if rows.y is None:
        model.fit(rows.X)
        interrupted, draws = model.interrupted_, model.trace_
    else:
        model.fit(rows.X, np.array(rows.frame.classes)[rows.y])
        interrupted, draws = bool(model.notes_.get("interrupted")), model.posterior_
    chains = getattr(model, "inference", "mcmc") == "mcmc"
    can_go_on = job.checkpoint is not None and job.checkpoint.exists()
    # An ascent without a checkpoint has reached some model: better that one than none.
    if interrupted and (chains or can_go_on):
        far = f"after {draws.n_draws} of {model.n_draws} draws" if chains else "before the end"
        raise Interrupted(f"stopped {far}")
    # The folder moves, and the file of the model should not depend on where it was made.
    return model.set_params(checkpoint=None)


def _score(job: Job, model: Any, rows: Rows) -> tuple[dict[str, Any], Any]:
    """Metrics of the held-out rows, and a sample; of training rows when none were held out."""
    held = len(rows.test) > 0
    X, y, numbers = (rows.X_test, rows.y_test, rows.test) if held else (rows.X, rows.y, rows.train)
    kept = sampled_rows(X.shape[0], X.shape[1])
    metrics: dict[str, Any] = {"sample_held_out": held}
    if y is None:
        sample = look_at_features(model, X[kept], numbers[kept] + 1)
        if held:
            metrics |= score_features(model, X, mean_row(rows.X), job.seed)
        return metrics, sample
    assert rows.y is not None
    shares = np.bincount(rows.y, minlength=len(rows.frame.classes)) / len(rows.y)
    metrics["class_shares"] = shares.tolist()
    if held:
        metrics |= score_experts(model.predict_proba(X), y, shares)
    return metrics, look_at_experts(model, X[kept], numbers[kept] + 1, y[kept])


def mean_row(X: Any) -> np.ndarray:
    """Mean of each column over the values there are."""
    if sp.issparse(X):
        return np.asarray(X.mean(axis=0)).ravel()
    seen = ~np.isnan(X)
    return np.where(seen, X, 0.0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)


def _diagnostics(model: Any) -> dict[str, Any]:
    table = model.diagnostics_
    if table is None:
        return {"rhat": None, "ess": None}
    rhat, ess = (table[name][np.isfinite(table[name])] for name in ("rhat", "ess_bulk"))
    return {
        "rhat": float(rhat.max()) if rhat.size else None,
        "ess": float(ess.min()) if ess.size else None,
    }


def _ours(caught: warnings.WarningMessage) -> bool:
    """Sentences for the user; what libraries tell their programmers is not for them."""
    return not issubclass(caught.category, (DeprecationWarning, FutureWarning, ResourceWarning))


def as_finite(value: Any) -> Any:
    """Plain JSON, with None for numbers that are not finite."""
    if isinstance(value, dict):
        return {str(k): as_finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_finite(v) for v in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def versions() -> dict[str, str]:
    """What is needed to repeat a run."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
