"""A fitted mixture of regressions in words and arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from wideangle.mixture_of_experts.presentation import ExpertPresentation, options_of
from wideangle.presentation.records import Column, Option, RowTable, Run
from wideangle.presentation.regressor import RegressorPresentation

MORE, LESS_SURE = "predicts more", "is less sure"
"""What the weights of an expert do."""


class QuantityExpertPresentation(ExpertPresentation, RegressorPresentation):
    """Experts that predict a quantity."""

    help: ClassVar[
        str
    ] = """Learn to predict a quantity: a mixture of experts with calibrated intervals.

    Example: `wideangle train regression houses.csv --target price -o run`, then
    `wideangle predict run new.csv -o predicted.csv` and `wideangle report run`.

    Words become columns of zeros and ones, missing values are replaced and marked; what was done is
    said. Ctrl-C keeps the draws so far: the same command with `--resume` goes on.
    """
    alone: ClassVar[str] = "linear regression"
    options: ClassVar[tuple[Option, ...]] = options_of(
        "best intervals",
        Option(
            "--min-noise", "min_noise", float,
            "Least noise of an expert, in standard deviations of the target.", "0.01",
            least=1e-4, most=1.0,
        ),
    )  # fmt: skip

    def weights(self, classes: Sequence[Any] = ()) -> dict[str, np.ndarray]:
        """Of the mean and of the noise."""
        return {MORE: np.asarray(self.model.experts_), LESS_SURE: np.asarray(self.model.noises_)}

    def telling(self, says: Mapping[str, np.ndarray]) -> list[str]:
        """Both."""
        return [MORE, LESS_SURE]

    def about_target(self) -> tuple[str, str]:
        """Mean and standard deviation."""
        units = self.model.target_scaling_
        return "target", f"mean {units.shift:.4g}, standard deviation {units.scale:.4g}"

    def look(self, X: Any) -> dict[str, np.ndarray]:
        """Uncertainty comes in two parts."""
        found = self.model.predict_uncertainty(X)
        return super().look(X) | {"epistemic": np.sqrt(found.epistemic)}

    def predict(self, X: Any, classes: Sequence[Any]) -> dict[str, np.ndarray]:
        """Mean, interval, uncertainty, and its part that more data would remove."""
        found = self.model.predict_uncertainty(X)
        return super().predict(X, classes) | {"epistemic": np.sqrt(found.epistemic)}

    def record(self, run: Run, led: np.ndarray) -> list[str]:
        """How far off it was."""
        error, n_led = self._error(run, led)
        return [f"Off by {error:.4g} on the {n_led} rows it led."] if n_led else []

    def component_columns(self, run: Run) -> list[Column]:
        """How far off each expert is where it leads."""
        leader = np.argmax(run.sample.values["activations"], axis=1)
        found = [self._error(run, leader == k) for k in range(self.model.n_experts)]
        return [
            Column(
                "off by",
                [error if n else None for error, n in found],
                hint="Root mean squared error where it has most say",
                notes=[f"on {n} rows" if n else "" for _, n in found],
            )
        ]

    def _error(self, run: Run, led: np.ndarray) -> tuple[float, int]:
        """Root mean squared error of some rows, and their number."""
        sample = run.sample
        if sample.y is None or not led.any():
            return np.nan, 0
        square = (sample.values["prediction"] - sample.y)[led] ** 2
        return float(np.sqrt(square.mean())), int(led.sum())

    def rows_to_look_at(self, run: Run) -> RowTable:
        """Who leads them, too."""
        table, values = super().rows_to_look_at(run), run.sample.values
        total, epistemic = values["spread"][table.order], values["epistemic"][table.order]
        ignorance = ((epistemic / np.maximum(total, 1e-300)) ** 2).tolist()
        leader = np.argmax(values["activations"], axis=1)[table.order] + 1
        table.columns.append(Column("of it ignorance", ignorance, "percent"))
        table.columns.append(Column("expert", leader.tolist()))
        return table
