"""Small records passed between families and the code that displays them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wideangle.frames.encoding import Encoding
from wideangle.posterior import evenly

if TYPE_CHECKING:
    from wideangle.presentation.family import Presentation

MODEL, LENGTH = "The model", "How long to run"
"""Headings of options in the help of a command."""
_MOST_ROWS = 2000
_MOST_ENTRIES = 2_000_000
"""Largest number of entries in a sample, since reconstructions are dense."""


@dataclass(frozen=True)
class Sample:
    """Some rows, held-out ones if there are any, in the order of the file.

    Attributes
    ----------
    X
        Encoded rows (n, p), dense (NaN is missing) or CSR.
    rows
        Their numbers in the file: the first row below the header is 1.
    y
        Class of each as an index into ``run.frame.classes``, or the number to predict; None without
        a target.
    values
        What the model predicts for each row, arrays of length n by name. Every family gives
        ``activations`` (n, K), how much a row uses each component, from 0 to 1. Charts of the
        report know ``proba`` (n, C), ``log_density`` (n,), ``prediction`` (n,), ``low`` and
        ``high`` (n, L) where they are given.
    """

    X: Any
    rows: np.ndarray
    y: np.ndarray | None = None
    values: dict[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)


def sampled_rows(n_rows: int, n_columns: int) -> np.ndarray:
    """Indices of the rows of a sample, evenly spread."""
    return evenly(n_rows, min(_MOST_ROWS, max(50, _MOST_ENTRIES // n_columns)))


@dataclass(frozen=True)
class Run:
    """A fitted model with everything needed to predict, report and repeat the fit.

    Attributes
    ----------
    kind
        Name of the family in :data:`wideangle.registry.FAMILIES`.
    model
        The fitted estimator.
    frame
        Maps the columns of the user's file to those of the model; ``frame.classes`` are the
        labels in the order of predicted probabilities.
    settings
        ``command`` (list of words), ``options`` (setting to value), ``seed``, ``source`` (the
        file), ``n_rows``, ``versions`` (package to version), ``began`` (ISO time, UTC).
    metrics
        The scores of the family on held-out rows; in every run ``n_train``, ``n_test``,
        ``sample_held_out``, ``warnings`` and ``notes`` (plain sentences), ``facts``, ``seconds``
        (stage to time), ``rhat`` and ``ess`` (worst of what predictions need, or None).
    sample
        Rows for the report.
    """

    kind: str
    model: Any
    frame: Encoding
    settings: dict[str, Any]
    metrics: dict[str, Any]
    sample: Sample
    log: str = ""
    path: Path | None = field(default=None, compare=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the encoded columns; they come from the user's data and are not trusted."""
        return self.frame.columns

    @property
    def presentation(self) -> Presentation:
        """How the family presents the model."""
        return self.model.presentation(self.model)


class Scored(NamedTuple):
    """Rows to score a model on, and what a model without columns would predict."""

    X: Any
    y: np.ndarray | None
    """Indices of classes, or numbers."""
    mean_row: np.ndarray
    """Mean of the training rows."""
    class_shares: np.ndarray
    """Shares of the classes among the training rows; empty without classes."""
    seed: int
    target_moments: tuple[float, float] = (0.0, 1.0)
    """Mean and standard deviation of the training targets, if they are numbers."""


class Option(NamedTuple):
    """A setting of the estimator that ``wideangle train`` offers."""

    flag: str
    """Such as ``--experts``, or ``--centre/--no-centre`` for a switch."""
    setting: str
    """Parameter of the estimator; ``inference__n_draws`` for one of a nested object."""
    type: type
    help: str
    default: str = ""
    """The default, in words."""
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    value: Any = None
    """Value that a flag without an opposite sets; True if None."""
    panel: str = MODEL


def prior_options(of: str, cosine: str, names: tuple[str, ...]) -> tuple[Option, ...]:
    """Which prior, and how strong the repulsion is."""
    repulsion = "mutual-angular: strength of the repulsion"
    return (
        Option("--prior", "prior", str, f"Prior of the {of}.", names[0], names),
        Option(
            "--cosine", "prior__cosine", float,
            f"{repulsion}, the same in every dimension; 0 is none.", cosine, least=0, most=0.999,
        ),
        Option(
            "--concentration", "prior__concentration", float,
            f"{repulsion} as kappa, instead of --cosine.", least=0,
        ),
    )  # fmt: skip


def sampling_options(
    n_warmup: int | str, n_draws: str, thin: int, max_time: str
) -> tuple[Option, ...]:
    """Length and number of chains, how they are combined, and the threads of any fit."""
    rows = (
        ("--warmup", "n_warmup", "Steps of a chain before its draws.", n_warmup, 0),
        ("--draws", "n_draws", "Draws of a chain that are kept.", n_draws, 1),
        ("--thin", "thin", "Steps of a chain for each draw.", thin, 1),
        ("--chains", "n_chains", "Independent chains; two or more show disagreement.", 4, 1),
    )
    counts = (
        Option(flag, f"inference__{name}", int, words, str(default), least=least, panel=LENGTH)
        for flag, name, words, default, least in rows
    )
    return (
        *counts,
        Option(
            "--max-time", "inference__max_time", float,
            "Time limit in seconds of chains that run until predictions are accurate.", max_time,
            least=1e-3, panel=LENGTH,
        ),
        Option(
            "--jobs", "n_jobs", int, "Threads of the fit.", "all cores", least=1,
            panel=LENGTH,
        ),
        Option(
            "--combine", "inference__combine", str,
            "Weights of chains in predictions; stacking is for chains that do not agree.", "equal",
            ("equal", "stacking"), panel=LENGTH,
        ),
    )  # fmt: skip


class Card(NamedTuple):
    """One number with a value to compare it to."""

    title: str
    value: str
    note: str


class Column(NamedTuple):
    """A column of a table of the report; None is an unknown value."""

    title: str
    values: Sequence[Any]
    form: str = "number"
    """``"number"``, ``"percent"`` or ``"text"``."""
    hint: str = ""
    notes: Sequence[str] = ()
    """Small print below each value."""


class RowTable(NamedTuple):
    """Rows of the sample worth a closer look."""

    order: np.ndarray
    """Indices into the sample, the most striking first."""
    columns: list[Column]
    """One value for each of them."""


class Chart(NamedTuple):
    """A chart of the report: its name in :data:`wideangle.report.charts.CHARTS`, and its text."""

    name: str
    title: str
    caption: str


class Section(NamedTuple):
    """A section of the report."""

    link: str
    """Title in the list of sections."""
    title: str
    charts: tuple[Chart, ...] = ()
    empty: str = ""
    """Shown if none of the charts applies."""
    table: str = ""
    """Heading above a table of rows."""
    hint: str = ""
    """What the table shows."""
