"""The protocol: how a family describes a fitted model.

A family must define only :meth:`Presentation.vectors`, :meth:`~Presentation.activations` and
:meth:`~Presentation.facts`; everything else has a default that works for any model of components.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from wideangle.convergence import STACK, account
from wideangle.frames.encoding import Number
from wideangle.frames.table import count
from wideangle.presentation.records import (
    Card,
    Chart,
    Column,
    Option,
    RowTable,
    Run,
    Sample,
    Scored,
    Section,
)

INTERCEPT = "(intercept)"
CLEAR = 0.15
"""Entries below this share of the largest are left out of sentences."""
MATCHED_DRAWS, FEWEST_MATCHED = 200, 10
"""Draws used for intervals of weights, and the fewest for which there are intervals."""
MOST_ROWS = 25
"""Number of rows in a table of rows."""


class Presentation(ABC):
    """A fitted model in words and arrays.

    The estimator names its class in the attribute ``presentation``, and has in addition to
    scikit-learn's methods ``trace_`` (Draws of numbers that can be compared between chains),
    ``diagnostics_`` (their summary, None without chains), ``diversity_``, ``save`` and ``load``,
    the parameters ``verbose`` and ``random_state``, and ``checkpoint`` where it :meth:`resumes`.
    """

    title: ClassVar[str] = "a model"
    """Name of the family."""
    noun: ClassVar[str] = "component"
    """What a component is called."""
    help: ClassVar[str] = ""
    """About ``wideangle train NAME``; the first line appears in the list of commands."""
    options: ClassVar[tuple[Option, ...]] = ()
    """What the command line may set."""
    scales_tables: ClassVar[bool] = False
    """Whether numeric columns of a table are scaled to one unit before the fit, with an option
    ``--scale``."""
    words: ClassVar[Mapping[str, str]] = {}
    """Quantities of ``trace_`` in words, the most informative first."""
    max_time: ClassVar[float] = 0.0
    """Default time limit in seconds of chains that choose their length."""
    in_modes: ClassVar[str] = STACK
    """What to do about chains that are in different modes of the posterior."""
    alike: ClassVar[float] = 25.0
    """Degrees below which two components are nearly the same."""
    counted: ClassVar[str] = ""
    """The quantity of ``trace_`` that counts the components of a draw."""
    where: ClassVar[Section] = Section(
        "Which rows",
        "Which rows use which",
        (Chart("activations", "How much each row uses each.", "Rows that are alike together."),),
        "There is nothing to use.",
    )
    """Section of the report about rows and components."""
    trust: ClassVar[Section] = Section("Rows", "Rows to look at")
    """Section of the report about how reliable the model is."""

    def __init__(self, model: Any) -> None:
        check_is_fitted(model)
        self.model = model

    @classmethod
    def settings_for(cls, *, table: bool) -> dict[str, Any]:
        """Default settings for a kind of file."""
        return {}

    @classmethod
    def doubts(cls, columns: Sequence[str], X: Any) -> list[str]:
        """Why the model may not suit the columns of a table, before it is fitted."""
        return []

    @classmethod
    def resumes(cls, model: Any) -> bool:
        """Whether a fit with these settings can save a checkpoint and continue from it."""
        return True

    # ---- components

    @abstractmethod
    def vectors(self) -> np.ndarray:
        """Components as rows, (K, P)."""

    def entry_names(self, names: Sequence[str] | None = None) -> list[str]:
        """Names of the entries of a weight vector: those given, those of the fit, or numbers."""
        if names is None:
            names = getattr(self.model, "feature_names_in_", None)
        n = self.model.n_features_in_
        chosen = [f"column {i + 1}" for i in range(n)] if names is None else [str(c) for c in names]
        if len(chosen) != n:
            raise ValueError(f"names: the model has {n} columns, got {len(chosen)} names.")
        return chosen

    def weights(self, classes: Sequence[Any] = ()) -> dict[str, np.ndarray]:
        """What a component does, in words, and the weights (K, p) with which it does so."""
        return {"adds to a row": self.vectors()}

    def panels(self, classes: Sequence[Any] = ()) -> dict[str, np.ndarray]:
        """The same for the report, with further weights of a component."""
        return self.weights(classes)

    def panel_draws(self, classes: Sequence[Any] = ()) -> dict[str, np.ndarray]:
        """The same weights in some draws, (S, K, p), for intervals; NaN where a draw has none.

        Empty if there are no draws to compare.
        """
        return {}

    def training_shares(self) -> np.ndarray | None:
        """Share of the training rows that use each component, if the fit stores it."""
        return None

    def shares(self, sample: Sample) -> np.ndarray:
        """Share of the training rows, or else of the sample, that use each component."""
        known = self.training_shares()
        return sample.values["activations"].mean(axis=0) if known is None else known

    @abstractmethod
    def activations(self, X: Any) -> np.ndarray:
        """How much each row uses each component, from 0 to 1, (n, K)."""

    def posterior_vectors(self, n_draws: int) -> Iterable[np.ndarray]:
        """Components (K, P) of at most ``n_draws`` draws."""
        return [self.vectors()]

    def prior_vectors(self, n_sets: int, seed: int) -> np.ndarray:
        """Components drawn from the prior, (n_sets, K, P); by default their directions are uniform.

        Lengths do not matter.
        """
        rng = np.random.default_rng(seed)
        return rng.standard_normal((n_sets, *self.vectors().shape))

    # ---- the fit

    @property
    def interrupted(self) -> bool:
        """Whether the fit was stopped before its end."""
        return bool(getattr(self.model, "notes_", {}).get("interrupted"))

    @abstractmethod
    def facts(self) -> list[tuple[str, str]]:
        """Names and values of the main results."""

    def chain_facts(self) -> list[tuple[str, str]]:
        """How well the chains agree on predictions and other quantities; empty without chains."""
        summary = self.model.diagnostics_
        return [] if summary is None else account(summary, self.words)

    @classmethod
    def option_named(cls, setting: str, value: str) -> str | None:
        """A setting as the command line writes it; None if it offers no such option."""
        flags = [one.flag for one in cls.options if one.setting == setting]
        return f"{flags[0]} {value}" if flags else None

    # ---- rows

    def look(self, X: Any) -> dict[str, np.ndarray]:
        """What the model predicts for some rows: the values of a :class:`Sample`."""
        return {"activations": self.activations(X)}

    def score(self, rows: Scored) -> dict[str, Any]:
        """Metrics of rows that the model was not fitted to."""
        return {}

    def score_file(self, X: Any, y: np.ndarray) -> dict[str, float]:
        """Scores of a file with the target, which is -1 or NaN where unknown."""
        return {}

    def predict(self, X: Any, classes: Sequence[Any]) -> dict[str, np.ndarray]:
        """Columns of a table of predictions."""
        used = self.activations(X)
        return {f"{self.noun}_{k + 1}": used[:, k] for k in range(used.shape[1])}

    # ---- words

    def results(self, metrics: Mapping[str, Any]) -> list[Card]:
        """The scores that matter, for a terminal and for the first line of the report."""
        return []

    def verdict(self, run: Run) -> str:
        """The run in two sentences: what is predicted from what, and how well."""
        columns, target = count(len(run.columns), "column"), run.frame.target
        if target is None:
            return f"{count(len(self.vectors()), self.noun)} of {columns}."
        first = f"“{target.name}” is predicted from {columns}."
        return first + self.verdict_on_scores(run.metrics)

    def verdict_on_scores(self, metrics: Mapping[str, Any]) -> str:
        """A sentence about held-out rows, if there are any."""
        return ""

    def cards(self) -> list[Card]:
        """What the model is, for the first line of the report."""
        return [Card(f"{self.noun.capitalize()}s", str(len(self.vectors())), "")]

    def cautions(self, run: Run) -> list[str]:
        """Warnings of the report, apart from those about chains and angles."""
        return []

    def purpose(self, run: Run, k: int) -> list[str]:
        """Sentences about what component ``k`` is for."""
        vector = self.vectors()[k]
        names = self.entry_names(run.columns)
        sides = (("Raises", vector), ("Lowers", -vector))
        return [f"{verb} {words}." for verb, side in sides if (words := listed(side, names))]

    def component_columns(self, run: Run) -> list[Column]:
        """More about each component, for the table of the report."""
        return []

    def rows_to_look_at(self, run: Run) -> RowTable | None:
        """Rows of the sample worth a closer look."""
        return None


def listed(values: np.ndarray, names: Sequence[str], most: int = 4) -> str:
    """Columns with clearly positive values, strongest first."""
    order = np.argsort(-values, kind="stable").tolist()
    clear = [i for i in order if values[i] > CLEAR * max(np.abs(values).max(), 1e-300)]
    more = f" and {len(clear) - most} more" if len(clear) > most else ""
    words = [str(names[i]) for i in clear[:most]]
    return ", ".join(words) + more


def numbered(word: str, found: Sequence[int], most: int = 8) -> str:
    """``experts 1, 4``."""
    words = ", ".join(map(str, found[:most])) + (" and others" if len(found) > most else "")
    return f"{word}{'s' if len(found) > 1 else ''} {words}"


def with_error(metrics: Mapping[str, Any], key: str, form: str) -> str:
    """A metric and its standard error."""
    error = metrics[f"{key}_error"]
    return f"{metrics[key]:{form}}" + ("" if error is None else f" ± {error:{form}}")


def standard_error(values: np.ndarray) -> float | None:
    """Standard error of a mean over rows; None for fewer than two."""
    n = len(values)
    return float(np.std(values, ddof=1) / np.sqrt(n)) if n > 1 else None


def share_interval(hits: Any, cases: Any, level: float = 0.95) -> tuple[Any, Any]:
    """Wilson's interval for a share, from ``hits`` among a number of cases.

    Unlike the estimate plus or minus its standard error it stays between 0 and 1 and does not
    shrink to a point if all cases are alike.
    """
    z = NormalDist().inv_cdf(0.5 + 0.5 * level)
    middle = (hits + 0.5 * z**2) / (cases + z**2)
    half = z * np.sqrt(hits * (cases - hits) / cases + 0.25 * z**2) / (cases + z**2)
    return np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)


def interval_of(draws: np.ndarray) -> np.ndarray:
    """Medians and, around them, ends of 90 % intervals, (3, K, p), of weights (S, K, p)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a component that no draw has
        return np.nanquantile(draws, (0.05, 0.5, 0.95), axis=0)


def where_missing(name: str) -> str:
    """Name of the column that marks where entries of another are missing."""
    return Number(name, flagged=True).indicators[0]
