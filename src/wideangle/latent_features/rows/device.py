"""Rows on a GPU (or any JAX device) as the latent feature model needs them.

Dense rows are one array. Sparse rows stay sparse: blocks of rows are made dense one at a time,
inside the compiled program, so that matrix units do the work and memory grows by one block only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy import sparse

from wideangle.latent_features.state import FeatureStats
from wideangle.types import Array

BLOCK_ENTRIES = 2**24
"""Entries of a block of sparse rows while it is dense."""


class DenseRows(NamedTuple):
    """All rows as one array, (N, D)."""

    rows: Array

    def products(self, vectors: Array) -> Array:
        """Inner products of each row with each vector, (N, K)."""
        return self.rows @ vectors.T

    def cross(self, used: Array) -> Array:
        """Sum of the rows that use each feature, (K, D)."""
        return used.T @ self.rows

    def take(self, numbers: Array) -> Array:
        """Some rows."""
        return self.rows[numbers]

    def energy(self) -> Array:
        """Squared lengths of the rows."""
        return jnp.sum(self.rows**2, axis=1)


class SparseRows(NamedTuple):
    """Rows in blocks of the same number of rows; the entries of a block padded with zeros."""

    values: Array
    """(B, E)"""
    places: Array
    """(B, E) number of the entry in its dense block, row by row."""
    offset: Array
    """(D,) subtracted from every row."""
    block_rows: Array
    """(B, rows of a block): 1, or 0 for rows that only fill up the last block."""
    squares: Array
    """(N,) squared lengths."""

    def _dense(self, values: Array, places: Array) -> Array:
        shape = self.block_rows.shape[1], self.offset.shape[0]
        flat = jnp.zeros(shape[0] * shape[1], values.dtype)
        # Every entry has a place of its own, in order, and padding one beyond the end: no atomics.
        flat = flat.at[places].set(
            values, mode="drop", unique_indices=True, indices_are_sorted=True
        )
        return flat.reshape(shape)

    def products(self, vectors: Array) -> Array:
        """Inner products of each row with each vector, (N, K)."""

        def block(part: tuple[Array, Array]) -> Array:
            return self._dense(*part) @ vectors.T

        found = lax.map(block, (self.values, self.places))
        found = found.reshape(-1, vectors.shape[0])[: self.squares.shape[0]]
        return found - vectors @ self.offset

    def cross(self, used: Array) -> Array:
        """Sum of the rows that use each feature, (K, D)."""
        n_blocks, size = self.block_rows.shape
        padded = (
            jnp.zeros((n_blocks * size, used.shape[1]), used.dtype).at[: used.shape[0]].set(used)
        )

        def add(total: Array, part: tuple[Array, Array, Array]) -> tuple[Array, None]:
            values, places, here = part
            return total + here.T @ self._dense(values, places), None

        start = jnp.zeros((used.shape[1], self.offset.shape[0]), used.dtype)
        blocks = padded.reshape(n_blocks, size, -1)
        total, _ = lax.scan(add, start, (self.values, self.places, blocks))
        return total - jnp.sum(used, axis=0)[:, None] * self.offset

    def take(self, numbers: Array) -> Array:
        """Some rows, dense."""
        size, dim = self.block_rows.shape[1], self.offset.shape[0]

        def one(number: Array) -> Array:
            values, places = self.values[number // size], self.places[number // size]
            column = jnp.where(places // dim == number % size, places % dim, dim)
            row = jnp.zeros(dim, values.dtype)
            return row.at[column].set(values, mode="drop") - self.offset

        return lax.map(one, numbers)

    def energy(self) -> Array:
        """Squared lengths of the rows."""
        return self.squares


def on_device(matrix: Any, offset: np.ndarray | None) -> DenseRows | SparseRows:
    """Rows on JAX's default device, in its default precision."""
    dtype = jnp.result_type(float)
    dim = matrix.shape[1]
    if not sparse.issparse(matrix):
        rows = jnp.asarray(matrix, dtype)
        return DenseRows(rows if offset is None else rows - jnp.asarray(offset, dtype))
    matrix = sparse.csr_matrix(matrix, copy=True)
    matrix.sum_duplicates()  # and in order within each row
    shift = np.zeros(dim) if offset is None else np.asarray(offset, np.float64)
    size = max(1, min(matrix.shape[0], BLOCK_ENTRIES // dim))
    starts = np.arange(0, matrix.shape[0], size)
    ends = np.minimum(starts + size, matrix.shape[0])
    most = int(np.max(matrix.indptr[ends] - matrix.indptr[starts], initial=1))
    values = np.zeros((len(starts), most))
    places = np.tile(size * dim + np.arange(most, dtype=np.int32), (len(starts), 1))
    row_of = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    for b, (start, end) in enumerate(zip(starts, ends, strict=True)):
        part = slice(matrix.indptr[start], matrix.indptr[end])
        n = part.stop - part.start
        values[b, :n] = matrix.data[part]
        places[b, :n] = (row_of[part] - start) * dim + matrix.indices[part]
    filled = np.zeros((len(starts), size))
    for b, (start, end) in enumerate(zip(starts, ends, strict=True)):
        filled[b, : end - start] = 1.0
    squares = np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel()
    squares += shift @ shift - 2 * (matrix @ shift)
    return SparseRows(
        jnp.asarray(values, dtype),
        jnp.asarray(places),
        jnp.asarray(shift, dtype),
        jnp.asarray(filled, dtype),
        jnp.asarray(squares, dtype),
    )


def summarise_on_device(assignments: Array, rows: DenseRows | SparseRows) -> FeatureStats:
    """Statistics of rows on the device."""
    energy = rows.energy()
    used = assignments.astype(energy.dtype)
    cross = rows.cross(used)
    count = jnp.asarray(float(energy.shape[0] * cross.shape[1]), energy.dtype)
    return FeatureStats(used.T @ used, cross, jnp.sum(energy), count)
