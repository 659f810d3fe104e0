"""Sparse rows for programs compiled for the CPU: their entries as a list, never dense."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.types import Array


class ListedRows(NamedTuple):
    """Entries row by row; the offset is subtracted from every row."""

    values: Array
    rows: Array
    """Row of each entry, rising."""
    columns: Array
    offset: Array
    """(D,)"""
    squares: Array
    """(N,) squared lengths of the rows."""

    def products(self, vectors: Array) -> Array:
        """Inner products of each row with each vector, (N, K)."""

        def one(vector: Array) -> Array:
            terms = self.values * vector[self.columns]
            n_rows = self.squares.shape[0]
            total = jax.ops.segment_sum(terms, self.rows, n_rows, indices_are_sorted=True)
            return total - vector @ self.offset

        return jax.lax.map(one, vectors).T

    def cross(self, assignments: Array) -> Array:
        """Sum of the rows that use each feature, (K, D)."""

        def one(column: Array) -> Array:
            terms = self.values * column[self.rows]
            total = jax.ops.segment_sum(terms, self.columns, self.offset.shape[0])
            return total - jnp.sum(column) * self.offset

        return jax.lax.map(one, assignments.T)

    def take(self, numbers: Array) -> Array:
        """Some rows, dense."""
        chosen = jnp.arange(self.squares.shape[0])[:, None] == numbers
        return self.cross(chosen.astype(self.values.dtype))

    def energy(self) -> Array:
        """Squared lengths of the rows."""
        return self.squares


def listed_rows(matrix: Any, offset: np.ndarray | None, squares: np.ndarray) -> ListedRows:
    """Rows of a CSR matrix, in JAX's default precision."""
    dtype = jnp.result_type(float)
    row_of = np.repeat(np.arange(matrix.shape[0], dtype=np.int32), np.diff(matrix.indptr))
    return ListedRows(
        jnp.asarray(matrix.data, dtype),
        jnp.asarray(row_of),
        jnp.asarray(matrix.indices, jnp.int32),
        jnp.zeros(matrix.shape[1], dtype) if offset is None else jnp.asarray(offset, dtype),
        jnp.asarray(squares, dtype),
    )
