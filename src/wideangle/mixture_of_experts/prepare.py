"""Columns as experts see them: missing entries filled in, and numbers on one scale.

Missing entries become medians, and indicator columns mark them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from wideangle.checks import warn

LEAST_WEIGHT = 1e-45
"""Rows with less weight, which is 0 in single precision, are ignored."""
SHOWN = 4
"""Columns that a warning names."""
LARGEST = 1e12
"""Prepared entries are clipped here: predictions are certain beyond, and float32 holds the
scores."""
FEWEST = 8
"""Rows that count at least for :func:`usual_extreme`."""
SMALLEST = 1e-100
"""Columns with less spread than this count as constant."""
CACHED = 2**16
"""Entries scaled at a time: they fit the cache."""
ROUNDED = 16
"""So do columns with less spread than this many times the rounding of their entries."""


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


# ---- scaling


class Scaling(NamedTuple):
    """Shift and scale of every column, learned from the training rows."""

    shift: np.ndarray
    scale: np.ndarray
    limit: float = LARGEST
    """Prepared entries are clipped here."""

    def apply(self, X: Any) -> Any:
        """Prepared rows with a last column of ones; sparse stays sparse."""
        if sp.issparse(X):
            rows: Any = sp.csr_array(X).astype(np.float64) @ sp.diags_array(1.0 / self.scale)
            rows.data = np.clip(rows.data, -self.limit, self.limit).astype(np.float32)
            ones = sp.csr_array(np.ones((rows.shape[0], 1), np.float32))
            return sp.csr_array(sp.hstack([rows, ones], format="csr", dtype=np.float32))
        X = np.asarray(X)
        n_rows, p = X.shape
        rows = np.ones((n_rows, p + 1), np.float32)
        size = max(CACHED // max(p, 1), 1)
        with np.errstate(over="ignore"):  # overflow is clipped just below
            for first in range(0, n_rows, size):
                part = X[first : first + size] - self.shift  # in double precision
                part /= self.scale
                rows[first : first + size, :p] = np.clip(part, -self.limit, self.limit, out=part)
        return rows


class TargetScaling(NamedTuple):
    """Shift and scale of a quantity to predict, in double precision."""

    shift: float
    scale: float

    def apply(self, y: np.ndarray) -> np.ndarray:
        """In the model's units."""
        return ((np.asarray(y, np.float64) - self.shift) / self.scale).astype(np.float32)

    def restore(self, standard: Any) -> np.ndarray:
        """Back in the user's units."""
        return self.shift + self.scale * np.asarray(standard, np.float64)


def learn_target_scaling(y: np.ndarray, weights: np.ndarray) -> TargetScaling:
    """Mean and standard deviation of the targets."""
    mean, deviation = _moments(np.asarray(y, np.float64)[:, None], weights)
    return target_scaling_from(mean[0], deviation[0])


def target_scaling_from(mean: float, deviation: float) -> TargetScaling:
    """From moments of the targets; a constant keeps its unit."""
    constant = deviation <= 1e-13 * abs(mean)  # what rounding leaves of equal numbers
    return TargetScaling(float(mean), 1.0 if constant else float(_or_one(np.asarray(deviation))))


def usual_extreme(n_rows: float) -> float:
    r"""About the largest of n standard normal numbers, :math:`\sqrt{2\log n}`.

    A column that is nonzero in a few rows has entries of ten or more standard deviations. There the
    prior alone decides about its weight, and averaging over weights makes the prediction flat.

    >>> round(usual_extreme(1000), 2)
    3.72
    """
    return math.sqrt(2.0 * math.log(max(n_rows, FEWEST)))


def learn_scaling(X: Any, weights: np.ndarray, *, standardise: bool) -> Scaling:
    """Centre and scale real columns; leave 0/1 columns and constants alone.

    One isotropic prior for all weights needs columns on one scale. Indicator columns already
    have one: dividing a rare indicator by its small deviation would inflate it. Sparse columns are
    scaled by their root mean square and not shifted, which would fill them.
    """
    if sp.issparse(X):
        mean, binary, dtype = np.zeros(X.shape[1]), _sparse_binary(X), X.dtype
        deviation = _sparse_rms(X, weights)
    else:
        X, dtype = np.asarray(X, np.float64), X.dtype
        (mean, deviation), binary = _moments(X, weights), np.all((X == 0) | (X == 1), axis=0)
    kind = {"dtype": dtype, "sparse": sp.issparse(X)}
    return scaling_from(mean, deviation, binary, standardise=standardise, **kind)


def scaling_from(
    mean: np.ndarray,
    deviation: np.ndarray,
    binary: np.ndarray,
    *,
    standardise: bool,
    dtype: Any = np.float64,
    sparse: bool = False,
) -> Scaling:
    """Like :func:`learn_scaling`, from given moments and which columns are 0/1."""
    if not standardise:
        return Scaling(np.zeros_like(mean), np.ones_like(mean))
    if sparse:
        rms = np.hypot(mean, deviation)
        return Scaling(np.zeros_like(mean), np.where(binary, 1.0, _or_one(rms)))
    # A column that varies in the last digits only counts as constant.
    digits = np.finfo(np.result_type(dtype, np.float32)).eps
    constant = ~(deviation > ROUNDED * digits * np.abs(mean))
    scale = np.where(binary | constant, 1.0, _or_one(deviation))
    return Scaling(np.where(binary, 0.0, mean), scale)


def _moments(X: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of columns."""
    # Relative to one of the rows: entries far from 0 would have no digits left for differences.
    # Halved, so that differences of the largest floats do not overflow; in units of the largest
    # entry, so that no square does.
    around = 0.5 * X[0]
    part = 0.5 * X - around
    unit = _or_one(np.abs(part).max(axis=0))
    part /= unit
    mean = weights @ part / weights.sum()
    deviation = 2.0 * (unit * np.sqrt(weights @ (part - mean) ** 2 / weights.sum()))
    return 2.0 * (around + unit * mean), deviation


def _sparse_rms(X: Any, weights: np.ndarray) -> np.ndarray:
    """Root mean square of sparse columns, which a shift would fill."""
    unit = _or_one(abs(X).max(axis=0).toarray().ravel().astype(np.float64))
    part: Any = sp.csr_array(X).astype(np.float64) @ sp.diags_array(1.0 / unit)
    square = np.asarray(part.multiply(part).multiply(weights[:, None]).sum(axis=0)).ravel()
    return unit * np.sqrt(square / weights.sum())


def _or_one(size: np.ndarray) -> np.ndarray:
    return np.where(size > SMALLEST, size, 1.0)


def _sparse_binary(X: Any) -> np.ndarray:
    columns = sp.csc_array(X)
    other = np.zeros(X.shape[1], bool)
    column = np.repeat(np.arange(X.shape[1]), np.diff(columns.indptr))
    other[column[(columns.data != 0) & (columns.data != 1)]] = True
    return ~other
