"""From a file to a run: read, hold rows out, encode, fit, score."""

from __future__ import annotations

import datetime
import platform
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import is_classifier, is_regressor
from sklearn.utils import get_tags

from wideangle.base import present
from wideangle.convergence import ConvergenceWarning, agreement
from wideangle.frames.encode import encode
from wideangle.frames.encoding import Encoding, Reading, Target
from wideangle.frames.labels import LEAST_ROWS, learn_quantity, learn_target
from wideangle.frames.learn import Plan, learn
from wideangle.frames.read import read_table
from wideangle.frames.table import Table, TableError, count
from wideangle.presentation.records import Run, Sample, Scored, sampled_rows
from wideangle.registry import estimator_of
from wideangle.storage.files import as_finite

PACKAGES = ("wideangle", "jax", "numpyro", "numpy", "scipy", "scikit-learn", "pandas")
WARNING = "warning: "
_NOT_REFITTED = "Interrupted: the model is the one that was fitted without the held-out rows."


class Interrupted(Exception):
    """Ctrl-C during the fit; the message has how far it came."""


@dataclass(frozen=True)
class Job:
    """What to fit to what.

    Attributes
    ----------
    kind
        Family of the model, as in :data:`wideangle.registry.FAMILIES`.
    data, target, reading, plan
        The file, the column to predict, how to read the file and encode its columns; whether
        missing values are filled is up to the model.
    options
        Settings of the estimator by name, nested ones as ``inference__n_draws``.
    held_out
        Share of the rows that are not trained on.
    refit
        Fit again to all rows after the held-out ones were scored, and keep that model.
    checkpoint
        Folder for the estimator to save itself to while it runs.
    """

    kind: str
    data: Path
    target: str | None = None
    reading: Reading = field(default_factory=Reading)
    plan: Plan = field(default_factory=Plan)
    options: dict[str, Any] = field(default_factory=dict)
    held_out: float = 0.2
    refit: bool = False
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
    """When a run began, and the seconds of each stage."""

    def __init__(self) -> None:
        self.began = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        self.seconds: dict[str, float] = {}

    @contextmanager
    def time(self, name: str) -> Any:
        """Take the time of a block."""
        began = time.monotonic()
        yield
        before = self.seconds.get(name, 0.0)
        self.seconds[name] = round(before + time.monotonic() - began, 3)


def train(
    job: Job, say: Callable[[str], None], keep: Callable[[Run], None] = lambda _: None
) -> Run:
    """Fit a model to a file.

    Parameters
    ----------
    job
        What to do.
    say
        Is called with each sentence about what is done, as it is done.
    keep
        Is called with the run before the model is fitted again to all rows, so that it is not lost
        with a process that is killed on the way.

    Raises
    ------
    TableError
        The file does not suit the model.
    Interrupted, KeyboardInterrupt
        Ctrl-C, with draws or before the first. A maximisation is not taken up again: what it had
        reached is the model, with a warning.
    """
    log: list[str] = []

    def tell(sentence: str) -> None:
        log.append(sentence)
        say(sentence)

    stages = Stages()
    model = _make_model(job)
    with stages.time("read"):
        table = read_table(job.data, job.reading)
        rows = prepare(table, job, model)
    shape = f"{count(table.n_rows, 'row')}, {count(len(rows.frame.columns), 'column')}"
    tell(f"{job.data}: {shape} as the model sees them; {count(len(rows.test), 'row')} held out")
    doubts = [] if table.uniform else model.presentation.doubts(rows.frame.columns, rows.X)
    for note in (*rows.notes, *(f"{WARNING}{doubt}" for doubt in doubts)):
        tell(note)
    with stages.time("fit"):
        sentences = [*doubts, *_fit(model, job, rows)]
    settings = {
        "command": list(job.command),
        "options": job.options,
        "seed": job.seed,
        "held_out": job.held_out,
        "source": str(job.data),
        "n_rows": table.n_rows,
    }
    run = make_run(job.kind, model, rows, settings, sentences, stages, log)
    if not job.refit or len(rows.test) == 0:
        return run
    first = replace(run, metrics={**run.metrics, "warnings": [*sentences, _NOT_REFITTED]})
    keep(first)
    tell(f"fitting again to all {count(table.n_rows, 'row')}: this model is kept")
    return _refitted(run, job, table, rows, doubts, stages) or first


def _refitted(
    run: Run, job: Job, table: Table, rows: Rows, doubts: list[str], stages: Stages
) -> Run | None:
    """The run with a model of all rows; scores and predictions of the sample stay held out.

    None if Ctrl-C ended it.
    """
    job = replace(job, checkpoint=None)
    model, y = _make_model(job), None
    if rows.y is not None and rows.y_test is not None:
        y = np.concatenate([rows.y, rows.y_test])[np.argsort([*rows.train, *rows.test])]
    X = encode(table, rows.frame).X
    everything = replace(rows, X=X, y=y, train=np.arange(table.n_rows))
    try:
        with stages.time("refit"):
            sentences = [*doubts, *_fit(model, job, everything)]
        if present(model).interrupted:
            raise Interrupted
    except (Interrupted, KeyboardInterrupt):
        return None
    shown, part = present(model), X[run.sample.rows - 1]
    # Components are those of the new model, and so is who uses them.
    values = run.sample.values | {"activations": shown.activations(part)}
    facts = [list(pair) for pair in shown.facts()]
    metrics = run.metrics | _diagnostics(model) | {"warnings": sentences, "facts": facts}
    log = f"{run.log}fitted again to all {count(table.n_rows, 'row')}\n"
    return replace(
        run,
        model=model,
        settings=run.settings | {"refit": True},
        metrics=as_finite(metrics | {"seconds": stages.seconds}),
        sample=replace(run.sample, X=part, values=values),
        log=log + "".join(f"{WARNING}{sentence}\n" for sentence in sentences),
    )


def _make_model(job: Job) -> Any:
    model = estimator_of(job.kind)(random_state=job.seed).set_params(**job.options)
    if job.checkpoint is not None and model.presentation.resumes(model):
        model.set_params(checkpoint=job.checkpoint)
    return model


def prepare(table: Table, job: Job, model: Any) -> Rows:
    """Hold rows out, and encode: what is held out has no part in the encoding."""
    target: Target | None = None
    y: np.ndarray | None = None
    if is_classifier(model):
        target, y = learn_target(table, job.target)
    elif is_regressor(model):
        target, y = learn_quantity(table, job.target)
    elif table.n_rows < LEAST_ROWS:
        raise TableError(f"{table.source} has {count(table.n_rows, 'row')}: too few to learn from.")
    classes = y if is_classifier(model) else None
    split = split_rows(table.n_rows, job.held_out, job.seed, classes)
    # Filled in here where there is a target: a missing word is then one category, not many columns.
    fill = target is not None or not get_tags(model).input_tags.allow_nan
    plan = replace(job.plan, fill=fill)
    frame, notes = learn(table.take(split.train), target, plan)
    X = encode(table.take(split.train), frame).X
    held = encode(table.take(split.test), frame)
    notes = [*table.notes, *notes, *(f"held-out rows: {note}" for note in held.notes)]
    parts = (None, None) if y is None else (y[split.train], y[split.test])
    return Rows(frame, X, parts[0], held.X, parts[1], *split, notes)


class Split(NamedTuple):
    """Indices of rows, ascending."""

    train: np.ndarray
    test: np.ndarray


def split_rows(n_rows: int, share: float, seed: int, classes: np.ndarray | None = None) -> Split:
    """Hold out about ``share`` of the rows.

    With ``classes`` the share is that of every class, rounded, and at least one row of each stays
    to learn from; so a class of one row is never held out.
    """
    rng = np.random.default_rng((seed, 0x5711))
    groups = np.zeros(n_rows, np.int64) if classes is None else classes
    chosen = []
    for group in np.unique(groups):
        rows = rng.permutation(np.flatnonzero(groups == group))
        wanted = share * len(rows)
        n_held = round(wanted) if classes is None else int(wanted + rng.random())
        chosen.append(rows[: min(n_held, len(rows) - 1)])
    test = np.sort(np.concatenate(chosen))
    return Split(np.setdiff1d(np.arange(n_rows), test), test)


def _fit(model: Any, job: Job, rows: Rows) -> list[str]:
    """Fit, and return what the fit warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if rows.y is None:
            model.fit(rows.X)
        else:
            classes = np.array(rows.frame.classes)
            model.fit(rows.X, classes[rows.y] if len(classes) else rows.y)
    chains = model.diagnostics_ is not None and model.presentation.resumes(model)
    can_go_on = job.checkpoint is not None and job.checkpoint.exists()
    # An ascent without a checkpoint has reached some model: better that one than none.
    if present(model).interrupted and (chains or can_go_on):
        done = f"after {count(model.trace_.n_draws, 'draw')}" if chains else "before the end"
        raise Interrupted(f"stopped {done}")
    # The folder moves, and the file of the model should not depend on where it was made.
    if model.presentation.resumes(model):
        model.set_params(checkpoint=None)
    return list(dict.fromkeys(_said(one.message, model) for one in caught if _ours(one)))


def make_run(
    kind: str,
    model: Any,
    rows: Rows,
    settings: dict[str, Any],
    sentences: list[str],
    stages: Stages,
    log: Sequence[str] = (),
) -> Run:
    """Score a fitted model and put together what its folder will hold.

    Time and versions are added to the ``settings`` of :class:`Run`; ``sentences`` are warnings of
    the fit.
    """
    facts = present(model).facts()
    with stages.time("score"):
        scores, sample = _score(model, rows, settings["seed"])
    metrics = {
        "n_train": len(rows.train),
        "n_test": len(rows.test),
        **scores,
        **_diagnostics(model),
        "warnings": sentences,
        "notes": rows.notes,
        "facts": [list(pair) for pair in facts],
        "seconds": stages.seconds,
    }
    lines = [
        f"began {stages.began}",
        *log,
        *(f"{name}: {value}" for name, value in facts),
        *(f"{WARNING}{s}" for s in sentences if f"{WARNING}{s}" not in log),
        *(f"{name}: {seconds:.1f} s" for name, seconds in stages.seconds.items()),
    ]
    settings = {**settings, "began": stages.began, "versions": versions()}
    text = "\n".join(lines) + "\n"
    return Run(kind, model, rows.frame, settings, as_finite(metrics), sample, text)


def _score(model: Any, rows: Rows, seed: int) -> tuple[dict[str, Any], Sample]:
    """Metrics of the held-out rows, and a sample; of training rows when none were held out."""
    held = len(rows.test) > 0
    X, y, numbers = (rows.X_test, rows.y_test, rows.test) if held else (rows.X, rows.y, rows.train)
    metrics: dict[str, Any] = {"sample_held_out": held}
    shares, moments = np.zeros(0), (0.0, 1.0)
    if rows.y is not None and rows.frame.classes:
        shares = np.bincount(rows.y, minlength=len(rows.frame.classes)) / len(rows.y)
        metrics["class_shares"] = shares.tolist()
    elif rows.y is not None:
        moments = float(rows.y.mean()), float(rows.y.std())
    shown = present(model)
    if held:
        metrics |= shown.score(Scored(X, y, mean_row(rows.X), shares, seed, moments))
    kept = sampled_rows(*X.shape)
    targets = None if y is None else y[kept]
    return metrics, Sample(X[kept], numbers[kept] + 1, targets, shown.look(X[kept]))


def mean_row(X: Any) -> np.ndarray:
    """Mean of each column over the values there are."""
    if sp.issparse(X):
        return np.asarray(X.mean(axis=0)).ravel()
    observed = ~np.isnan(X)
    return np.where(observed, X, 0.0).sum(axis=0) / np.maximum(observed.sum(axis=0), 1)


def _diagnostics(model: Any) -> dict[str, Any]:
    if model.diagnostics_ is None:
        return {"rhat": None, "ess": None}
    found = agreement(model.diagnostics_)
    return {"rhat": found.rhat, "ess": found.ess}  # unknown ones become None with the others


def _said(message: Any, model: Any) -> str:
    """A warning in the words of the command line."""
    if isinstance(message, ConvergenceWarning):
        return message.said(model.presentation.option_named)
    return str(message)


def _ours(caught: warnings.WarningMessage) -> bool:
    """Sentences for the user; warnings that libraries address to programmers are left out."""
    return not issubclass(caught.category, (DeprecationWarning, FutureWarning, ResourceWarning))


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Of Python and of those packages that are installed."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
