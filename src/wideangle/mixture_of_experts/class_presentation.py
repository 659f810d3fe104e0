"""A fitted mixture of classifiers in words and arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from wideangle.mixture_of_experts.presentation import ExpertPresentation, options_of
from wideangle.presentation.classifier import ClassifierPresentation
from wideangle.presentation.records import Column, Option, RowTable, Run, Section


class ClassExpertPresentation(ExpertPresentation, ClassifierPresentation):
    """Experts that speak for classes."""

    help: ClassVar[
        str
    ] = """Learn to predict a column: a mixture of experts with calibrated probabilities.

    Example: `wideangle train moe patients.csv --target diagnosis -o run`, then
    `wideangle predict run new.csv -o predicted.csv` and `wideangle report run`.

    Words become columns of zeros and ones, missing values are replaced and marked; what was done is
    said. Ctrl-C keeps the draws so far: the same command with `--resume` goes on.
    """
    alone: ClassVar[str] = "logistic regression"
    options: ClassVar[tuple[Option, ...]] = options_of(
        "best probabilities",
        Option(
            "--balanced", "class_weight", bool, "Let every class weigh the same.", value="balanced"
        ),
    )
    trust: ClassVar[Section] = ClassifierPresentation.trust._replace(
        hint="Uncertainty in nats. Ignorance is the part that more data would remove; the rest is "
        "noise."
    )

    def weights(self, classes: Sequence[Any] = ()) -> dict[str, np.ndarray]:
        """For the second of two classes, or for every class."""
        found = np.asarray(self.model.experts_, float)
        labels = list(classes) or list(self.model.classes_)
        tables = [found] if found.ndim == 2 else list(np.moveaxis(found, 1, 0))  # noqa: PLR2004
        shown = labels[-len(tables) :]
        return {f"speaks for {c}": table for c, table in zip(shown, tables, strict=True)}

    def about_target(self) -> tuple[str, str]:
        """The first classes."""
        return "classes", ", ".join(str(c) for c in self.model.classes_[:8])

    def look(self, X: Any) -> dict[str, np.ndarray]:
        """Uncertainty comes in two parts."""
        uncertainty = self.model.predict_uncertainty(X)
        parts = {"total": uncertainty.total, "epistemic": uncertainty.epistemic}
        return super().look(X) | parts

    def predict(self, X: Any, classes: Sequence[Any]) -> dict[str, np.ndarray]:
        """Class, probabilities, uncertainty, and its part that more data would remove."""
        return super().predict(X, classes) | {
            "epistemic": self.model.predict_uncertainty(X).epistemic
        }

    def record(self, run: Run, led: np.ndarray) -> list[str]:
        """How often it was right."""
        right, n_led = self._accuracy(run, led)
        if not n_led:
            return []
        return [f"Right on {100 * right:.0f} % of the {n_led} rows it led."]

    def component_columns(self, run: Run) -> list[Column]:
        """How often each expert is right where it leads."""
        leader = np.argmax(run.sample.values["activations"], axis=1)
        found = [self._accuracy(run, leader == k) for k in range(self.model.n_experts)]
        return [
            Column(
                "right",
                [right if n else None for right, n in found],
                "percent",
                "Share of right answers where it has most say",
                [f"of {n} rows" if n else "" for _, n in found],
            )
        ]

    def _accuracy(self, run: Run, led: np.ndarray) -> tuple[float, int]:
        """Share of right answers among some rows, and their number."""
        sample = run.sample
        if sample.y is None or not led.any():
            return np.nan, 0
        right = np.argmax(sample.values["proba"], axis=1) == sample.y
        return float(right[led].mean()), int(led.sum())

    def rows_to_look_at(self, run: Run) -> RowTable:
        """The most uncertain rows, and who leads them."""
        table, values = super().rows_to_look_at(run), run.sample.values
        total, epistemic = values["total"][table.order], values["epistemic"][table.order]
        ignorance = (epistemic / np.maximum(total, 1e-12)).tolist()
        leader = np.argmax(values["activations"], axis=1)[table.order] + 1
        table.columns.append(Column("of it ignorance", ignorance, "percent"))
        table.columns.append(Column("expert", leader.tolist()))
        return table
