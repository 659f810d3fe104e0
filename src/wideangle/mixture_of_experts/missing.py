"""Missing entries of a mixture of experts: medians in their place, and columns that say where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from wideangle.messages import warn

LEAST_WEIGHT = 1e-45
"""Rows of less weight, which is 0 in single precision, decide nothing."""
SHOWN = 4
"""Columns that a warning names."""


class Filling(NamedTuple):
    """What stands for missing entries, as ``wideangle train`` and ``TableEncoder`` have it."""

    medians: np.ndarray
    """Of every column, (p,)."""
    flagged: np.ndarray
    """Columns in which entries were missing at the fit: each gets one of zeros and ones."""

    def apply(self, X: Any) -> np.ndarray:
        """Rows (N, p) without missing entries, and columns that say where they were."""
        missing = np.isnan(X)
        if not len(self.flagged) and not missing.any():
            return X
        found = np.where(missing, self.medians.astype(X.dtype), X)
        return np.concatenate([found, missing[:, self.flagged].astype(X.dtype)], axis=1)


def learn_filling(X: Any, weights: np.ndarray) -> Filling | None:
    """Medians of the columns of dense rows; None for sparse ones, which must be complete."""
    if sp.issparse(X):
        _refuse(X)
        return None
    live = weights > LEAST_WEIGHT
    if not np.all(live):
        X, weights = X[live], weights[live]
    missing = np.isnan(X)
    equal = bool(np.all(weights == weights[:1]))
    medians = np.zeros(X.shape[1])
    for j, gaps in enumerate(missing.T):
        known = ~gaps
        if known.any():
            column = np.asarray(X[known, j], np.float64)
            medians[j] = _median(column, None if equal else weights[known])
    return Filling(medians, np.flatnonzero(missing.any(axis=0)))


def filled(X: Any, filling: Filling | None, names: Sequence[Any]) -> Any:
    """New rows as those of the fit; where a column has its first missing entries, it warns."""
    if filling is None:
        _refuse(X)
        return X
    if sp.issparse(X):
        X = X.toarray()
    new = np.setdiff1d(np.flatnonzero(np.isnan(X).any(axis=0)), filling.flagged)
    if len(new):
        listed = ", ".join(str(names[i]) for i in new[:SHOWN]) + ", ..." * (len(new) > SHOWN)
        warn(
            f"X: replaced missing entries by the median in columns without any at the fit: {listed}"
        )
    return filling.apply(X)


def _refuse(X: Any) -> None:
    if np.isnan(X.data if sp.issparse(X) else X).any():
        raise ValueError(
            "X: holds NaN. Missing entries are filled in where a model was fitted to dense rows in "
            "memory; here it is sparse, or was fitted to sparse rows or to rows on disk."
        )


def _median(values: np.ndarray, weights: np.ndarray | None) -> float:
    """Median of values, which may count several times; between two values it is their mean."""
    if weights is None:
        return 2.0 * float(np.median(0.5 * values))  # the sum of two may overflow
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weights[order])
    half = 0.5 * total[-1]
    ends = np.searchsorted(total, half, "left"), np.searchsorted(total, half, "right")
    low, high = (0.5 * values[order[min(end, len(order) - 1)]] for end in ends)
    return float(low + high)
