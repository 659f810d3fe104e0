"""What every regressor reports: predictions, their intervals, and how good both are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

LEVEL = 0.9
"""Level of the interval of a prediction."""
LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Levels of the intervals that are compared with the targets."""
N_SAMPLES = 200
"""Draws per row for the continuous ranked probability score."""
_FAR, _GAP = 3.0, 0.05
"""Standard errors, and share of rows, by which coverage may be off before it is mentioned."""


class RegressorPresentation(Presentation):
    """A fitted regressor with ``predict``, ``predict_quantiles``, ``score_samples``, ``sample``."""

    trust: ClassVar[Section] = Section(
        "Can it be trusted?",
        "Can the intervals be trusted?",
        (
            Chart(
                "intervals",
                "How often intervals contain the observed value.",
                "On the dotted line they contain as many rows as they should. Bars are 90 % "
                "intervals.",
            ),
            Chart(
                "predicted",
                "Predicted and observed.",
                "Bars are 90 % intervals; 90 % of them should cross the dotted line.",
            ),
        ),
        table="Rows farthest from their prediction",
        hint="Their distance is in standard deviations of the prediction.",
    )

    def look(self, X: Any) -> dict[str, np.ndarray]:
        """``prediction``, its standard deviation ``spread``, ends of intervals, ``low, high``."""
        mean, spread = self.model.predict(X, return_std=True)
        ends = self.model.predict_quantiles(X, levels_of(LEVELS))
        low, high = ends[:, : len(LEVELS)], ends[:, len(LEVELS) :]
        return super().look(X) | {"prediction": mean, "spread": spread, "low": low, "high": high}

    def score(self, rows: Scored) -> dict[str, Any]:
        """See :func:`score_quantity`."""
        assert rows.y is not None
        model, X = self.model, rows.X
        return score_quantity(
            rows.y,
            model.predict(X),
            model.score_samples(X, rows.y),
            model.predict_quantiles(X, levels_of(LEVELS)),
            model.sample(X, N_SAMPLES, random_state=rows.seed),
            rows.target_moments,
        )

    def score_file(self, X: Any, y: np.ndarray) -> dict[str, float]:
        """Scores of the rows of a file with the target."""
        known = np.isfinite(y)
        if not known.any():
            return {}
        error = self.model.predict(X[known]) - y[known]
        density = self.model.score_samples(X[known], y[known])
        return {"rmse": float(np.sqrt(np.mean(error**2))), "log_density": float(density.mean())}

    def predict(self, X: Any, classes: Sequence[Any]) -> dict[str, np.ndarray]:
        """Mean, ends of the interval of 90 %, and standard deviation."""
        mean, spread = self.model.predict(X, return_std=True)
        low, high = self.model.predict_interval(X, LEVEL).T
        return {"prediction": mean, "low": low, "high": high, "uncertainty": spread}

    def results(self, metrics: Mapping[str, Any]) -> list[Card]:
        """Error, log density and coverage."""
        m = metrics
        if "rmse" not in m:
            return []
        mean = f"mean of the training rows: {m['rmse_of_guess']:.4g}"
        normal = f"a Gaussian for all rows: {m['log_density_of_guess']:.3f}"
        low, high = share_interval(m["coverage_90"] * m["n_test"], m["n_test"])
        truth = f"95 % interval {100 * low:.0f} to {100 * high:.0f} %"
        return [
            Card("Root mean squared error", f"{m['rmse']:.4g}", mean),
            Card("Log density", with_error(m, "log_density", ".3f"), normal),
            Card("Rows in their 90 % interval", f"{100 * m['coverage_90']:.0f} %", truth),
        ]

    def verdict_on_scores(self, metrics: Mapping[str, Any]) -> str:
        """A sentence about held-out rows, if there are any."""
        m = metrics
        if "rmse" not in m:
            return ""
        rows = f"{m['n_test']:,} held-out row{'' if m['n_test'] == 1 else 's'}"
        return (
            f" On {rows} the prediction is off by {m['rmse']:.4g} (root mean square); the "
            f"mean of the training rows alone would be off by {m['rmse_of_guess']:.4g}."
        )

    def cautions(self, run: Run) -> list[str]:
        """Warn of predictions no better than the mean, and of too short or too long intervals."""
        m, sentences = run.metrics, []
        if "rmse" in m and m["log_density"] <= m["log_density_of_guess"]:
            sentences.append(
                "Predictions are no better than one Gaussian for all rows: the columns have "
                "little information about the target, or the fit failed."
            )
        for level in LEVELS:
            if f"coverage_{100 * level:.0f}" not in m:
                continue
            found = m[f"coverage_{100 * level:.0f}"]
            error = np.sqrt(level * (1.0 - level) / max(m["n_test"], 1))
            if abs(found - level) > max(_GAP, _FAR * error):
                words = "short" if found < level else "long"
                sentences.append(
                    f"Intervals of {100 * level:.0f} % hold {100 * found:.0f} % of the held-out "
                    f"rows: they are too {words}."
                )
        return sentences

    def rows_to_look_at(self, run: Run) -> RowTable:
        """Rows with the worst predictions; without a target, those with the widest."""
        sample, place = run.sample, LEVELS.index(LEVEL)
        mean, spread = sample.values["prediction"], sample.values["spread"]
        low, high = (sample.values[name][:, place] for name in ("low", "high"))
        far = None if sample.y is None else (sample.y - mean) / np.maximum(spread, 1e-300)
        order = np.argsort(-(spread if far is None else np.abs(far)), kind="stable")[:MOST_ROWS]
        columns = [
            Column("predicted", mean[order].tolist()),
            Column("from", low[order].tolist(), hint="Lower end of the 90 % interval"),
            Column("to", high[order].tolist(), hint="Upper end of the 90 % interval"),
            Column("uncertainty", spread[order].tolist(), hint="Standard deviation"),
        ]
        if far is not None:
            assert sample.y is not None
            columns.insert(0, Column("observed", sample.y[order].tolist()))
            hint = "Distance from the prediction in its standard deviations"
            columns.append(Column("distance", far[order].tolist(), hint=hint))
        return RowTable(order, columns)


def levels_of(intervals: Sequence[float]) -> list[float]:
    """Levels of the lower ends of central intervals, then those of the upper ends."""
    return [0.5 * (1.0 - level) for level in intervals] + [0.5 * (1.0 + v) for v in intervals]


def score_quantity(
    y: np.ndarray,
    mean: np.ndarray,
    log_density: np.ndarray,
    ends: np.ndarray,
    samples: np.ndarray,
    guess: tuple[float, float],
) -> dict[str, Any]:
    """Scores of predictive distributions of rows whose target is ``y``.

    Parameters
    ----------
    y, mean, log_density
        Truth, predicted means, and log densities of the truth.
    ends
        Quantiles at :func:`levels_of` ``LEVELS``, (n, 8).
    samples
        Draws from the predictive distribution of each row, (n, m).
    guess
        Mean and standard deviation of the training targets, for the scores of a model that uses
        nothing else.

    Returns
    -------
    dict
        ``rmse`` and ``log_density`` (nats), with ``_error``, the standard error, and ``_of_guess``,
        that of one Gaussian for all rows; ``r2``, ``crps``, and ``coverage_50`` to ``coverage_95``.
    """
    square, centre, scale = (y - mean) ** 2, *guess
    scale = max(scale, 1e-300)
    normal = -0.5 * ((y - centre) / scale) ** 2 - np.log(scale) - 0.5 * np.log(2.0 * np.pi)
    rmse = float(np.sqrt(square.mean()))
    spread_of_square = standard_error(square)
    covered = coverage(y, ends).observed
    variance = float(np.var(y))
    return {
        "rmse": rmse,
        "rmse_error": None if spread_of_square is None else spread_of_square / (2 * rmse or 1.0),
        "rmse_of_guess": float(np.sqrt(np.mean((y - centre) ** 2))),
        "log_density": float(log_density.mean()),
        "log_density_error": standard_error(log_density),
        "log_density_of_guess": float(normal.mean()),
        "r2": 1.0 - float(square.mean()) / variance if variance > 0 else None,
        "crps": float(crps(samples, y).mean()),
        **{f"coverage_{100 * v:.0f}": float(c) for v, c in zip(LEVELS, covered, strict=True)},
    }


def crps(samples: np.ndarray, y: np.ndarray) -> np.ndarray:
    r"""Continuous ranked probability score of each row, :math:`E|Y-y| - E|Y-Y'|/2`.

    Unbiased: it averages over pairs :math:`Y, Y'` of different draws (n, m).
    """
    ordered = np.sort(samples, axis=1)
    m = ordered.shape[1]
    apart = ordered @ (2.0 * np.arange(m) - m + 1.0) / (m * max(m - 1, 1))
    return np.abs(samples - y[:, None]).mean(axis=1) - apart


class Coverage(NamedTuple):
    """Share of rows inside central intervals, by level."""

    observed: np.ndarray
    low: np.ndarray
    high: np.ndarray
    """Interval for the true share, as in :func:`share_interval`."""


def coverage(y: np.ndarray, ends: np.ndarray) -> Coverage:
    """Share of rows inside the intervals whose lower ends, then upper ends, are ``ends``."""
    n_levels = ends.shape[1] // 2
    low, high = ends[:, :n_levels], ends[:, n_levels:]
    inside = ((y[:, None] >= low) & (y[:, None] <= high)).sum(axis=0)
    n_rows = max(len(y), 1)
    return Coverage(inside / n_rows, *share_interval(inside, n_rows, LEVEL))
