"""Sparse rows: sums in machine code on the host, and arrays for compiled programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wideangle.machine_code import njit
from wideangle.types import Array

if TYPE_CHECKING:
    from wideangle.latent_features.memory import MemoryRows

BLOCK_ENTRIES = 2**24
"""Entries of a block of sparse rows while it is dense."""


class ListedRows(NamedTuple):
    """Sparse rows for compiled programs on the CPU: entries row by row, never dense."""

    values: Array
    rows: Array
    """Row of each entry, rising."""
    columns: Array
    offset: Array
    """(D,) subtracted from every row."""
    squares: Array
    """(N,) squared lengths of the rows."""

    def products(self, vectors: Array) -> Array:
        """Inner products of each row with each vector, (N, K)."""

        def one(vector: Array) -> Array:
            terms = self.values * vector[self.columns]
            n_rows = self.squares.shape[0]
            total = jax.ops.segment_sum(terms, self.rows, n_rows, indices_are_sorted=True)
            return total - vector @ self.offset

        return lax.map(one, vectors).T

    def cross(self, assignments: Array) -> Array:
        """Sum of the rows that use each feature, (K, D)."""

        def one(column: Array) -> Array:
            terms = self.values * column[self.rows]
            total = jax.ops.segment_sum(terms, self.columns, self.offset.shape[0])
            return total - jnp.sum(column) * self.offset

        return lax.map(one, assignments.T)

    def take(self, numbers: Array) -> Array:
        """Some rows, dense."""
        chosen = jnp.arange(self.squares.shape[0])[:, None] == numbers
        return self.cross(chosen.astype(self.values.dtype))

    def energy(self) -> Array:
        """Squared lengths of the rows."""
        return self.squares


def listed(rows: MemoryRows) -> ListedRows:
    """Sparse rows entry by entry, in JAX's default precision."""
    dtype = jnp.result_type(float)
    return ListedRows(
        jnp.asarray(rows.matrix.data, dtype),
        jnp.asarray(rows.row_of),
        jnp.asarray(rows.matrix.indices, jnp.int32),
        jnp.asarray(rows.offset, dtype),
        jnp.asarray(rows.row_energy, dtype),
    )


class BlockedRows(NamedTuple):
    """Sparse rows for compiled programs on a device, in blocks of the same number of rows.

    Blocks are made dense one at a time, inside the program, so that matrix units do the work and
    memory grows by one block only. The entries of a block are padded with zeros.
    """

    values: Array
    """(B, E)"""
    places: Array
    """(B, E) index of the entry in its dense block, row by row."""
    offset: Array
    """(D,) subtracted from every row."""
    squares: Array
    """(N,) squared lengths."""

    @property
    def size(self) -> int:
        """Rows of a block."""
        return rows_of_block(self.squares.shape[0], self.offset.shape[0])

    def _dense(self, values: Array, places: Array) -> Array:
        shape = self.size, self.offset.shape[0]
        flat = jnp.zeros(shape[0] * shape[1], values.dtype)
        # Indices are unique and sorted, and padding is beyond the end: no atomics.
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

    def cross(self, assignments: Array) -> Array:
        """Sum of the rows that use each feature, (K, D)."""
        n_blocks = self.values.shape[0]
        spare = n_blocks * self.size - assignments.shape[0]
        padded = jnp.pad(assignments, ((0, spare), (0, 0)))

        def add(total: Array, part: tuple[Array, Array, Array]) -> tuple[Array, None]:
            values, places, here = part
            return total + here.T @ self._dense(values, places), None

        start = jnp.zeros((assignments.shape[1], self.offset.shape[0]), assignments.dtype)
        blocks = padded.reshape(n_blocks, self.size, -1)
        total, _ = lax.scan(add, start, (self.values, self.places, blocks))
        return total - jnp.sum(assignments, axis=0)[:, None] * self.offset

    def take(self, numbers: Array) -> Array:
        """Some rows, dense."""
        size, dim = self.size, self.offset.shape[0]

        def one(number: Array) -> Array:
            values, places = self.values[number // size], self.places[number // size]
            column = jnp.where(places // dim == number % size, places % dim, dim)
            row = jnp.zeros(dim, values.dtype)
            return row.at[column].set(values, mode="drop") - self.offset

        return lax.map(one, numbers)

    def energy(self) -> Array:
        """Squared lengths of the rows."""
        return self.squares


def rows_of_block(n_rows: int, dim: int) -> int:
    """Rows of each block of sparse rows."""
    return max(1, min(n_rows, BLOCK_ENTRIES // dim))


def blocked(rows: MemoryRows) -> BlockedRows:
    """Sparse rows in blocks, on JAX's default device and in its default precision."""
    dtype, dim = jnp.result_type(float), rows.dim
    size = rows_of_block(rows.n_rows, dim)
    starts = rows.matrix.indptr[: rows.n_rows : size]
    most = int(np.max(np.diff(starts, append=rows.matrix.nnz), initial=1))
    values = np.zeros((len(starts), most))
    places = np.tile(size * dim + np.arange(most, dtype=np.int32), (len(starts), 1))
    block = rows.row_of // size
    index = block, np.arange(rows.matrix.nnz) - starts[block]
    values[index] = rows.matrix.data
    places[index] = rows.row_of % size * dim + rows.matrix.indices
    return BlockedRows(
        jnp.asarray(values, dtype),
        jnp.asarray(places),
        jnp.asarray(rows.offset, dtype),
        jnp.asarray(rows.row_energy, dtype),
    )


@njit()
def add_products(data, indices, indptr, vectors, found, first, last):
    """Add x_n . v_k to ``found``; ``vectors`` is (D, K), so that the inner loop is contiguous."""
    width = vectors.shape[1]
    for n in range(first, last):
        for i in range(indptr[n], indptr[n + 1]):
            x, d = data[i], indices[i]
            for k in range(width):
                found[n, k] += x * vectors[d, k]


@njit()
def sums_of_rows(data, indices, indptr, assignments, dim, first, last):
    """Sum of the rows of each feature, (D, K): an entry touches one line of the result.

    A row with few features costs entries x features; with many, a whole line at once is faster.
    """
    width = assignments.shape[1]
    total = np.zeros((dim, width))
    active = np.empty(width, np.int64)
    for n in range(first, last):
        n_active = 0
        for k in range(width):
            active[n_active] = k
            n_active += assignments[n, k]
        if n_active * 6 < width:
            for i in range(indptr[n], indptr[n + 1]):
                for j in range(n_active):
                    total[indices[i], active[j]] += data[i]
        else:
            for i in range(indptr[n], indptr[n + 1]):
                x, d = data[i], indices[i]
                for k in range(width):
                    total[d, k] += x * assignments[n, k]
    return total
