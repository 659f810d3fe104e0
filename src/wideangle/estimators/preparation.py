"""From what a user passes to what a model wants: scaled float32 rows with an intercept column."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp


class Scaling(NamedTuple):
    """Shift and scale of every column, learned from the training rows."""

    shift: np.ndarray
    scale: np.ndarray
    intercept: bool

    def apply(self, X: Any) -> Any:
        """Rows as the model sees them; sparse stays sparse."""
        if sp.issparse(X):
            rows = sp.csr_array(X).astype(np.float32)
            rows = rows @ sp.diags_array((1.0 / self.scale).astype(np.float32))
            if self.intercept:
                ones = sp.csr_array(np.ones((rows.shape[0], 1), np.float32))
                rows = sp.hstack([rows, ones], format="csr", dtype=np.float32)
            return sp.csr_array(rows)
        rows = ((np.asarray(X, np.float64) - self.shift) / self.scale).astype(np.float32)
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
        square = np.asarray(X.multiply(X).multiply(weights[:, None]).sum(axis=0)).ravel() / total
        rms = np.sqrt(square)
        binary = _sparse_binary(X)
        scale = np.where(binary | ~(rms > 0), 1.0, rms)
        return Scaling(shift, scale, intercept)
    X = np.asarray(X, np.float64)
    mean = weights @ X / total
    deviation = np.sqrt(weights @ (X - mean) ** 2 / total)
    binary = np.all((X == 0) | (X == 1), axis=0)
    constant = ~(deviation > 1e-7 * np.maximum(np.abs(mean), 1e-30))
    if intercept:
        shift = np.where(binary, 0.0, mean)
    scale = np.where(binary | constant, 1.0, deviation)
    return Scaling(shift, scale, intercept)


def _sparse_binary(X: Any) -> np.ndarray:
    columns = sp.csc_array(X)
    other = np.zeros(X.shape[1], bool)
    column = np.repeat(np.arange(X.shape[1]), np.diff(columns.indptr))
    other[column[(columns.data != 0) & (columns.data != 1)]] = True
    return ~other
