"""Rows of which some entries are missing, seen through products and Gram matrices.

A missing entry leaves every sum it was in. Rows that miss the same entries share a Gram matrix, so
that only the distinct patterns cost memory; rows that miss nothing share the ordinary one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from wideangle.latent_features.predict.held_out import RowFields, row_fields
from wideangle.latent_features.rows.memory import MemoryRows
from wideangle.latent_features.state import Draw

CHUNK_BYTES = 64 * 2**20
"""Memory for one kind of array of a chunk: its rows, its products, its Gram matrices."""


class PartialRows(NamedTuple):
    """A chunk of rows with zeros in place of missing entries, and what is missing where."""

    first: int
    """Number of the first row of the chunk."""
    rows: MemoryRows
    pattern: np.ndarray
    """(N,): number of the pattern of each row."""
    missing: list[np.ndarray]
    """Columns that each pattern misses."""

    def fields(self, draw: Draw) -> RowFields:
        """The rows under one posterior draw."""
        features = np.asarray(draw.vectors, np.float64)
        whole = features @ features.T
        counts = np.array([self.rows.dim - len(columns) for columns in self.missing])
        return row_fields(
            draw,
            self.rows.products(features),
            self.rows.row_energy(),
            np.stack([_gram(whole, features, columns) for columns in self.missing]),
            self.pattern,
            counts[self.pattern],
        )


def partial_rows(
    matrix: Any, n_features: int, offset: Any = None, hidden: Any = None
) -> Iterator[PartialRows]:
    """Chunks of a matrix, in float64, whose size is bounded by memory.

    Parameters
    ----------
    matrix
        (N, D), dense or sparse; NaN is a missing entry.
    n_features
        Largest number of features of any draw.
    offset
        (D,): subtracted from every row.
    hidden
        (N, D) of bool, dense or sparse: entries to treat as missing as well.
    """
    n_rows, dim = matrix.shape
    is_sparse = sparse.issparse(matrix)
    matrix = sparse.csr_matrix(matrix) if is_sparse else np.asarray(matrix)
    hidden = sparse.csr_matrix(hidden) if sparse.issparse(hidden) else hidden
    has_gaps = hidden is not None or bool(np.isnan(matrix.data if is_sparse else matrix).any())
    per_row = max(n_features, 1) * (n_features if has_gaps else 1)
    per_row = max(per_row, dim if has_gaps or not is_sparse else 1)
    size = max(1, CHUNK_BYTES // (8 * per_row))
    for first in range(0, n_rows, size):
        chunk = matrix[first : first + size]
        if has_gaps:
            gaps = None if hidden is None else _dense(hidden[first : first + size]).astype(bool)
            yield _with_gaps(first, _dense(chunk).astype(np.float64), gaps, offset)
        else:
            rows = MemoryRows(chunk.astype(np.float64), offset)
            yield PartialRows(first, rows, np.zeros(rows.n_rows, np.int64), [_NOTHING])


_NOTHING = np.empty(0, np.int64)


def _with_gaps(
    first: int, chunk: np.ndarray, hidden: np.ndarray | None, offset: Any
) -> PartialRows:
    gaps = np.isnan(chunk) if hidden is None else np.isnan(chunk) | hidden
    centred = chunk if offset is None else chunk - offset
    # Bytes of the mask: rows that miss the same entries have the same number.
    found: dict[bytes, int] = {}
    packed = np.packbits(gaps, axis=1)
    pattern = np.array([found.setdefault(line.tobytes(), len(found)) for line in packed], np.int64)
    _, example = np.unique(pattern, return_index=True)
    missing = [np.flatnonzero(gaps[n]) for n in example]
    return PartialRows(first, MemoryRows(np.where(gaps, 0.0, centred)), pattern, missing)


def _gram(whole: np.ndarray, features: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """Products of features over the observed columns, from the smaller of the two sets."""
    if 2 * len(missing) <= features.shape[1]:
        gone = features[:, missing]
        return whole - gone @ gone.T
    observed = np.delete(features, missing, axis=1)
    return observed @ observed.T


def _dense(block: Any) -> np.ndarray:
    return block.toarray() if sparse.issparse(block) else np.asarray(block)
