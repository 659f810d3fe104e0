"""From what a user passes to what a model wants: scaled float32 rows with an intercept column."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

LARGEST = 1e12
"""Prepared entries are cut off here: scores of such rows are certain, and float32 holds them."""
SMALLEST = 1e-100
"""Columns of less spread than this count as constant."""


class Scaling(NamedTuple):
    """Shift and scale of every column, learned from the training rows."""

    shift: np.ndarray
    scale: np.ndarray
    intercept: bool

    def apply(self, X: Any) -> Any:
        """Rows as the model sees them; sparse stays sparse."""
        if sp.issparse(X):
            rows: Any = sp.csr_array(X).astype(np.float64) @ sp.diags_array(1.0 / self.scale)
            rows.data = np.clip(rows.data, -LARGEST, LARGEST).astype(np.float32)
            if self.intercept:
                ones = sp.csr_array(np.ones((rows.shape[0], 1), np.float32))
                rows = sp.hstack([rows, ones], format="csr", dtype=np.float32)
            return sp.csr_array(rows)
        with np.errstate(over="ignore"):  # what overflows is cut off just below
            rows = (np.asarray(X, np.float64) - self.shift) / self.scale
        rows = np.clip(rows, -LARGEST, LARGEST).astype(np.float32)
        if self.intercept:
            rows = np.concatenate([rows, np.ones((len(rows), 1), np.float32)], axis=1)
        return rows


def learn_scaling(X: Any, weights: np.ndarray, *, standardise: bool, intercept: bool) -> Scaling:
    """Centre and scale real columns; leave 0/1 columns and constants alone.

    One isotropic prior for all weights asks for columns of one scale. Indicator columns already
    have one: dividing a rare indicator by its small deviation would inflate it. Sparse columns are
    scaled by their root mean square and not shifted, which would fill them.
    """
    p = X.shape[1]
    shift, scale = np.zeros(p), np.ones(p)
    if not standardise:
        return Scaling(shift, scale, intercept)
    total = weights.sum()
    if sp.issparse(X):
        unit = _or_one(abs(X).max(axis=0).toarray().ravel().astype(np.float64))
        part: Any = sp.csr_array(X).astype(np.float64) @ sp.diags_array(1.0 / unit)
        square = np.asarray(part.multiply(part).multiply(weights[:, None]).sum(axis=0)).ravel()
        rms = unit * np.sqrt(square / total)
        return Scaling(shift, np.where(_sparse_binary(X), 1.0, _or_one(rms)), intercept)
    X = np.asarray(X, np.float64)
    binary = np.all((X == 0) | (X == 1), axis=0)
    unit = _or_one(np.abs(X).max(axis=0))  # so that no square overflows
    part = X / unit
    mean = weights @ part / total
    if not intercept:
        # Nothing makes up for a shift then; a constant column is the user's own intercept.
        rms = unit * np.sqrt(weights @ part**2 / total)
        return Scaling(shift, np.where(binary, 1.0, _or_one(rms)), intercept)
    deviation = np.sqrt(weights @ (part - mean) ** 2 / total)
    return _centred(unit * mean, unit * deviation, binary)


def scaling_from(
    mean: np.ndarray,
    variance: np.ndarray,
    binary: np.ndarray,
    *,
    standardise: bool,
    intercept: bool,
) -> Scaling:
    """As :func:`learn_scaling` for dense rows, from moments that were summed up elsewhere."""
    if not standardise:
        return Scaling(np.zeros_like(mean), np.ones_like(mean), intercept)
    if not intercept:
        rms = np.sqrt(variance + mean**2)
        return Scaling(np.zeros_like(mean), np.where(binary, 1.0, _or_one(rms)), intercept)
    return _centred(mean, np.sqrt(variance), binary)


def _centred(mean: np.ndarray, deviation: np.ndarray, binary: np.ndarray) -> Scaling:
    constant = ~(deviation > 1e-7 * np.abs(mean))
    scale = np.where(binary | constant, 1.0, _or_one(deviation))
    return Scaling(np.where(binary, 0.0, mean), scale, True)


def _or_one(size: np.ndarray) -> np.ndarray:
    return np.where(size > SMALLEST, size, 1.0)


def _sparse_binary(X: Any) -> np.ndarray:
    columns = sp.csc_array(X)
    other = np.zeros(X.shape[1], bool)
    column = np.repeat(np.arange(X.shape[1]), np.diff(columns.indptr))
    other[column[(columns.data != 0) & (columns.data != 1)]] = True
    return ~other
