"""Effects over random splits of the same rows, and verdicts on many of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

LEVEL, POWER = 0.95, 0.8


class Effect(NamedTuple):
    """A mean gain and its standard error, NaN if one split was made."""

    mean: float
    error: float
    df: float
    """Degrees of freedom."""
    n_splits: int

    @property
    def interval(self) -> tuple[float, float]:
        """Student's t, at 95 %."""
        reach = float(student.ppf((1 + LEVEL) / 2, self.df) * self.error)
        return self.mean - reach, self.mean + reach

    @property
    def detectable(self) -> float:
        """The effect that is found with a power of 80 % by a two-sided test at 5 %."""
        quantiles = student.ppf((1 + LEVEL) / 2, self.df) + student.ppf(POWER, self.df)
        return float(quantiles * self.error)

    def p_above(self, bound: float) -> float:
        """One-sided p-value of a gain that is not above a bound."""
        if self.error == 0.0:
            return 0.0 if self.mean > bound else 1.0
        return float(student.sf((self.mean - bound) / self.error, self.df))

    def p_below(self, bound: float) -> float:
        """One-sided p-value of a gain that is not below a bound."""
        return 1.0 - self.p_above(bound) if self.mean != bound or self.error else 1.0

    def text(self, form: str = "+.4f") -> str:
        """The gain and its interval, if there is one."""
        shown = f"{self.mean:{form}}"
        if np.isnan(self.error):
            return shown
        low, high = self.interval
        return f"{shown} [{low:{form}}, {high:{form}}]"


def over_splits(gains: Sequence[float], shared: float) -> Effect:
    """The effect of gains by split; ``shared`` is the number of test rows for each training row.

    Splits share rows, so their variance is multiplied by 1 + n n_test / n_train (Nadeau and
    Bengio, 2003).
    """
    n = len(gains)
    spread = float(np.std(gains, ddof=1)) if n > 1 else np.nan
    return Effect(float(np.mean(gains)), spread * np.sqrt(1.0 / n + shared), float(n - 1), n)


def mean_effect(effects: Sequence[Effect]) -> Effect:
    """The mean of independent effects, with Satterthwaite's degrees of freedom."""
    squares = np.array([one.error**2 for one in effects])
    total = float(squares.sum())
    dfs = np.array([one.df for one in effects])
    df = total**2 / float(np.sum(squares**2 / dfs)) if total > 0 else float(dfs.min())
    return Effect(
        float(np.mean([one.mean for one in effects])),
        float(np.sqrt(total)) / len(effects),
        df,
        min(one.n_splits for one in effects),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for multiple comparisons (Holm).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order, found, largest = np.argsort(p_values), [0.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        found[index] = largest
    return found
