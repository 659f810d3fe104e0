"""What every classifier reports: probabilities, how good they are, and which rows are uncertain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, ClassVar, NamedTuple

import numpy as np

from wideangle.presentation.family import (
    MOST_ROWS,
    Presentation,
    share_interval,
    standard_error,
    with_error,
)
from wideangle.presentation.records import (
    Card,
    Chart,
    Column,
    RowTable,
    Run,
    Scored,
    Section,
)

SMALLEST = 1e-12
_LARGE_GAP = 0.1
LEVEL = 0.9
"""Coverage of the error bars of a calibration chart."""


class ClassifierPresentation(Presentation):
    """A fitted classifier: ``predict_proba`` and ``classes_``."""

    trust: ClassVar[Section] = Section(
        "Can it be trusted?",
        "Can the probabilities be trusted?",
        (
            Chart(
                "calibration",
                "Predicted and observed.",
                "Points on the dotted line are calibrated. Bars are 90 % intervals.",
            ),
            Chart(
                "confidence",
                "How sure it was.",
                "Wrong answers should be rare where it was sure.",
            ),
        ),
        table="Most uncertain rows",
        hint="Uncertainty in nats.",
    )

    def look(self, X: Any) -> dict[str, np.ndarray]:
        """Probabilities of the classes, ``proba``, and their entropy, ``total``."""
        proba = self.model.predict_proba(X)
        return super().look(X) | {"proba": proba, "total": entropy(proba)}

    def score(self, rows: Scored) -> dict[str, Any]:
        """See :func:`score_classes`."""
        assert rows.y is not None
        return score_classes(self.model.predict_proba(rows.X), rows.y, rows.class_shares)

    def score_file(self, X: Any, y: np.ndarray) -> dict[str, float]:
        """Accuracy and log-loss of the rows of known classes."""
        known = y >= 0
        if not known.any():
            return {}
        proba = self.model.predict_proba(X[known])
        shares = np.full(proba.shape[1], 1.0 / proba.shape[1])
        found = score_classes(proba, y[known], shares)
        return {name: found[name] for name in ("accuracy", "log_loss")}

    def predict(self, X: Any, classes: Sequence[Any]) -> dict[str, np.ndarray]:
        """The most probable class, the probability of each, and the entropy."""
        proba = self.model.predict_proba(X)
        return {
            "prediction": np.array(classes)[np.argmax(proba, axis=1)],
            **{probability_column(label): proba[:, i] for i, label in enumerate(classes)},
            "uncertainty": entropy(proba),
        }

    def results(self, metrics: Mapping[str, Any]) -> list[Card]:
        """Accuracy, log-loss and calibration."""
        m = metrics
        if "accuracy" not in m:
            return []
        low, high = m["accuracy_interval"]
        frequent = f"95 % interval {low:.3f} to {high:.3f}; "
        frequent += f"most frequent class: {m['accuracy_of_guess']:.3f}"
        shares = f"class frequencies: {m['log_loss_of_guess']:.3f}"
        chance = f"up to {m['calibration_error_by_chance']:.3f} by chance"
        return [
            Card("Accuracy", f"{m['accuracy']:.3f}", frequent),
            Card("Log-loss", with_error(m, "log_loss", ".3f"), shares),
            Card("Calibration error", f"{m['calibration_error']:.3f}", chance),
        ]

    def verdict_on_scores(self, metrics: Mapping[str, Any]) -> str:
        """A sentence about held-out rows, if there are any."""
        m = metrics
        if "accuracy" not in m:
            return ""
        rows = f"{m['n_test']:,} held-out row{'' if m['n_test'] == 1 else 's'}"
        low, high = m["accuracy_interval"]
        return (
            f" On {rows} the prediction is right {100 * m['accuracy']:.1f} % of the time (95 % "
            f"interval: {100 * low:.0f} to {100 * high:.0f} %); always predicting the most "
            f"frequent class would be right {100 * m['accuracy_of_guess']:.1f} % of the time."
        )

    def cautions(self, run: Run) -> list[str]:
        """Warnings about probabilities that are no better than a guess, or overconfident."""
        m, sentences = run.metrics, []
        if "accuracy" in m and m["log_loss"] >= m["log_loss_of_guess"]:
            sentences.append(
                "Probabilities are no better than the frequencies of the classes: the columns have "
                "little information about the target, or the fit failed."
            )
        chance = m.get("calibration_error_by_chance", 0.0)
        if m.get("calibration_error", 0.0) > max(_LARGE_GAP, chance):
            sentences.append(
                f"Probabilities miss the observed frequencies by {m['calibration_error']:.2f} on "
                "average: use them as scores, not as probabilities."
            )
        return sentences

    def rows_to_look_at(self, run: Run) -> RowTable:
        """The most uncertain rows."""
        sample, classes = run.sample, run.frame.classes
        proba, total = sample.values["proba"], sample.values["total"]
        order = np.argsort(-total, kind="stable")[:MOST_ROWS]
        best = np.argmax(proba, axis=1)
        truth = [] if sample.y is None else [str(classes[sample.y[i]]) for i in order]
        columns = [
            Column("true class", truth, "text"),
            Column("predicted", [str(classes[best[i]]) for i in order], "text"),
            Column("probability", [float(proba[i, best[i]]) for i in order], "percent"),
            Column("uncertainty", [float(total[i]) for i in order]),
        ]
        return RowTable(order, columns[sample.y is None :])


def probability_column(label: Any) -> str:
    """Name of the column with the probability of a class."""
    return f"p({label})"


def entropy(proba: np.ndarray) -> np.ndarray:
    """Entropy of each row, in nats."""
    return -np.sum(np.where(proba > 0, proba * np.log(np.maximum(proba, 1e-300)), 0.0), axis=1)


def score_classes(proba: np.ndarray, y: np.ndarray, frequencies: np.ndarray) -> dict[str, Any]:
    """Scores of probabilities (n, C) of rows of class ``y``.

    Parameters
    ----------
    proba, y
        Predictions and truth, as indices of classes.
    frequencies
        Shares of the classes among the training rows, for the scores of a model that uses nothing
        else.

    Returns
    -------
    dict
        ``accuracy`` with ``accuracy_interval``, which contains the true one with 95 %; ``log_loss``
        (nats) with ``log_loss_error``, its standard error; both with ``_of_guess``, that of the
        frequencies; ``brier``; ``calibration_error``, the mean gap between confidence and accuracy,
        and ``calibration_error_by_chance``, the :attr:`Reliability.by_chance` of so many rows.
    """
    right = np.argmax(proba, axis=1) == y
    losses = -np.log(np.maximum(proba[np.arange(len(y)), y], SMALLEST))
    guess = -np.log(np.maximum(frequencies[y], SMALLEST))
    truth, sure = np.eye(proba.shape[1])[y], reliability(right, proba.max(axis=1))
    return {
        "accuracy": float(right.mean()),
        "accuracy_interval": [float(end) for end in share_interval(right.sum(), len(right))],
        "accuracy_of_guess": float(np.mean(y == np.argmax(frequencies))),
        "log_loss": float(losses.mean()),
        "log_loss_error": standard_error(losses),
        "log_loss_of_guess": float(guess.mean()),
        "brier": float(np.mean(np.sum((proba - truth) ** 2, axis=1))),
        "calibration_error": sure.error,
        "calibration_error_by_chance": sure.by_chance,
    }


class Reliability(NamedTuple):
    """Rows binned by predicted probability; empty bins are left out."""

    predicted: np.ndarray
    """Mean probability of the rows of each bin."""
    observed: np.ndarray
    """Observed frequency in each bin."""
    low: np.ndarray
    high: np.ndarray
    """Interval for the true frequency: see :func:`share_interval`."""
    count: np.ndarray
    error: float
    """Mean gap between the two, weighted by rows (expected calibration error)."""
    by_chance: float
    """The error that calibrated probabilities exceed in about one case of 20."""


def reliability(happened: Any, probability: Any, n_bins: int = 10) -> Reliability:
    """Compare probabilities with frequencies in ``n_bins`` equal bins of probability."""
    happened, probability = np.asarray(happened, float), np.asarray(probability, float)
    place = np.clip((probability * n_bins).astype(int), 0, n_bins - 1)
    count = np.bincount(place, minlength=n_bins)
    kept = count > 0
    hits = np.bincount(place, happened, n_bins)[kept]
    predicted = np.bincount(place, probability, n_bins)[kept] / count[kept]
    count = count[kept]
    low, high = share_interval(hits, count, LEVEL)
    observed = hits / count
    n_rows = max(count.sum(), 1)
    error = float(np.sum(count * np.abs(observed - predicted)) / n_rows)
    # Sums over the rows of a bin are nearly Gaussian, and so are half-normal gaps added up.
    spread = np.bincount(place, probability * (1.0 - probability), n_bins)[kept]
    mean, variance = np.sqrt(2.0 / np.pi * spread).sum(), (1.0 - 2.0 / np.pi) * spread.sum()
    by_chance = float(mean + NormalDist().inv_cdf(0.95) * np.sqrt(variance)) / n_rows
    return Reliability(predicted, observed, low, high, count, error, by_chance)
