"""Missing entries of a mixture of experts: replaced by medians and marked by indicator columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from wideangle.checks import warn

LEAST_WEIGHT = 1e-45
"""Rows with less weight, which is 0 in single precision, are ignored."""
SHOWN = 4
"""Columns that a warning names."""


class Filling(NamedTuple):
    """How missing entries are replaced, as in ``wideangle train`` and ``TableEncoder``."""

    medians: np.ndarray
    """Median of every column, (p,)."""
    flagged: np.ndarray
    """Columns with missing entries in the training rows: each gets a 0/1 indicator column."""

    def apply(self, X: Any) -> np.ndarray:
        """Rows (N, p) with missing entries replaced, and their indicator columns."""
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
    """New rows treated like the training rows; warns if a column has its first missing entries."""
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
    """Weighted median; between two values it is their mean."""
    if weights is None:
        return 2.0 * float(np.median(0.5 * values))  # the sum of two values may overflow
    low, high = (
        np.quantile(sign * values, 0.5, weights=weights, method="inverted_cdf") for sign in (1, -1)
    )
    return 0.5 * float(low) - 0.5 * float(high)
