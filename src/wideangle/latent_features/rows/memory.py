"""The rows of a data matrix as the latent feature model needs them: inner products and sums."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numba
import numpy as np
from jax.sharding import Mesh
from scipy import sparse

from wideangle.latent_features.rows.device import DenseRows, SparseRows, on_device
from wideangle.latent_features.rows.parallel import in_ranges
from wideangle.sharding import spread

BLOCK_ROWS = 4096
"""Rows handled at once, so that a cast or a square never makes a second matrix."""
THREADED_WORK = 2_000_000
"""Multiplications below which a second thread costs more than it saves."""
N_RANGES = 8
"""Ranges of rows that are summed apart above that."""


class FeatureRows:
    """Rows x_n - offset, dense or sparse, behind the few sums the model is made of.

    Given features W and binary assignments Z, every conditional of the model needs the data only
    through X W', Z'X and |X|². Sparse rows stay sparse: the offset enters each sum by itself.

    Parameters
    ----------
    matrix : array or scipy sparse matrix, shape (N, D)
        Rows. float32 stays float32, every other type becomes float64.
    offset : array, shape (D,), optional
        Subtracted from every row.
    """

    def __init__(self, matrix: Any, offset: Any = None) -> None:
        dtype = np.float32 if getattr(matrix, "dtype", None) == np.float32 else np.float64
        self._rows: Any
        self._offset: np.ndarray | None = None
        if offset is not None and np.any(offset):
            self._offset = np.asarray(offset, dtype)
        if sparse.issparse(matrix):
            self._rows = sparse.csr_matrix(matrix, dtype=dtype)
            if not self._rows.has_canonical_format:
                # Entries given twice would be squared one by one; the caller's matrix stays as is.
                self._rows = self._rows.copy()
                self._rows.sum_duplicates()
        else:
            self._rows = np.ascontiguousarray(matrix, dtype)
            if self._offset is not None:
                self._rows, self._offset = self._rows - self._offset, None
        if len(self._rows.shape) != 2:  # noqa: PLR2004
            raise ValueError(f"rows must form a matrix, got shape {self._rows.shape}")
        if self._offset is not None and self._offset.shape != (self.dim,):
            raise ValueError(f"offset must have shape ({self.dim},), got {self._offset.shape}")

    @property
    def n_rows(self) -> int:
        """Number of rows, N."""
        return int(self._rows.shape[0])

    @property
    def dim(self) -> int:
        """Number of columns, D."""
        return int(self._rows.shape[1])

    @property
    def dtype(self) -> np.dtype:
        """float32 or float64."""
        return self._rows.dtype

    @property
    def is_sparse(self) -> bool:
        """Whether only nonzero entries are stored."""
        return sparse.issparse(self._rows)

    @cached_property
    def energy(self) -> float:
        """Sum of squares of all entries, in float64."""
        return float(self.row_energy().sum())

    def row_energy(self) -> np.ndarray:
        """Squared length of each row, shape (N,), in float64; not to be written to."""
        return self._row_energy

    @cached_property
    def _row_energy(self) -> np.ndarray:
        energy = np.zeros(self.n_rows)
        if self.is_sparse:
            offset = np.zeros(self.dim) if self._offset is None else self._offset.astype(float)
            _sparse_energy(*self._parts(), offset, energy)
            return energy
        for block in self._blocks():
            rows = self._rows[block].astype(float)
            energy[block] = np.einsum("nd,nd->n", rows, rows)
        return energy

    def mean(self) -> np.ndarray:
        """Mean row, shape (D,), in float64."""
        total = np.asarray(self._rows.sum(axis=0, dtype=np.float64)).ravel()
        mean = total / max(self.n_rows, 1)
        return mean if self._offset is None else mean - self._offset

    def products(self, vectors: np.ndarray) -> np.ndarray:
        """Inner products of each row with each vector: (K, D) -> (N, K)."""
        vectors = np.asarray(vectors, self.dtype)
        if not self.is_sparse:
            return self._rows @ vectors.T
        by_column = np.ascontiguousarray(vectors.T)
        found = np.zeros((self.n_rows, len(vectors)), self.dtype)
        work = self._rows.nnz * len(vectors)
        self._in_threads(
            work, lambda first, last: _products(*self._parts(), by_column, found, first, last)
        )
        if self._offset is not None:
            found -= vectors @ self._offset
        return found

    def cross(self, assignments: np.ndarray) -> np.ndarray:
        """Sum of the rows that have each feature, Z'X: (N, K) -> (K, D), in float64."""
        assignments = np.asarray(assignments)
        if not self.is_sparse:
            total = np.zeros((assignments.shape[1], self.dim))
            for block in self._blocks():
                total += assignments[block].astype(self.dtype).T @ self._rows[block]
            return total
        counts = assignments.sum(axis=0, dtype=np.int64)
        work = int(self._rows.nnz / max(self.n_rows, 1) * counts.sum())
        chosen = np.ascontiguousarray(assignments, np.uint8)

        def partial(first: int, last: int) -> np.ndarray:
            return _cross(*self._parts(), chosen, self.dim, first, last)

        total = np.sum(self._in_threads(work, partial), axis=0).T.copy()
        return total if self._offset is None else total - np.outer(counts, self._offset)

    def take(self, rows: np.ndarray) -> FeatureRows:
        """The same view of a subset of the rows."""
        return FeatureRows(self._rows[rows], self._offset)

    def scaled(self, factor: float) -> FeatureRows:
        """The same rows times a number."""
        offset = None if self._offset is None else self._offset * factor
        # The product of a float32 matrix with a NumPy scalar would be float64.
        return FeatureRows((self._rows * factor).astype(self.dtype, copy=False), offset)

    def on_device(self, mesh: Mesh | None = None) -> DenseRows | SparseRows:
        """The same rows on JAX's default device, or (dense) spread over several."""
        if mesh is None or self.is_sparse:
            return on_device(self._rows, self._offset)
        return DenseRows(spread(self._rows.astype(jnp.result_type(float)), mesh))

    def dense_block(self, rows: np.ndarray | slice) -> np.ndarray:
        """Some rows as a new dense array, offset subtracted: for small subsets only."""
        if not self.is_sparse:
            return np.array(self._rows[rows])
        block = self._rows[rows].toarray()
        return block if self._offset is None else block - self._offset

    def _blocks(self) -> list[slice]:
        return [slice(i, i + BLOCK_ROWS) for i in range(0, self.n_rows, BLOCK_ROWS)]

    def _parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self._rows.data, self._rows.indices, self._rows.indptr

    def _in_threads(self, work: int, kernel: Callable[[int, int], Any]) -> list[Any]:
        """Results of ``kernel(first, last)`` over ranges of rows with equal numbers of entries.

        The ranges do not depend on the number of threads, so neither do sums over them.
        """
        n_ranges = N_RANGES if work > THREADED_WORK else 1
        entries = np.linspace(0, self._rows.nnz, n_ranges + 1)[1:-1]
        return in_ranges(
            kernel, [0, *np.searchsorted(self._rows.indptr, entries).tolist(), self.n_rows]
        )


@numba.njit(cache=True, nogil=True)
def _products(data, indices, indptr, vectors, found, first, last):
    """Add x_n . v_k to ``found``; ``vectors`` is (D, K), so that the inner loop is contiguous."""
    width = vectors.shape[1]
    for n in range(first, last):
        for i in range(indptr[n], indptr[n + 1]):
            x, d = data[i], indices[i]
            for k in range(width):
                found[n, k] += x * vectors[d, k]


@numba.njit(cache=True, nogil=True)
def _cross(data, indices, indptr, assignments, dim, first, last):
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


@numba.njit(cache=True, nogil=True)
def _sparse_energy(data, indices, indptr, offset, energy):
    """|x_n - o|² = |o|² + sum over stored entries of x (x - 2 o)."""
    base = np.sum(offset * offset)
    for n in range(len(energy)):
        total = base
        for i in range(indptr[n], indptr[n + 1]):
            x = float(data[i])
            total += x * (x - 2.0 * offset[indices[i]])
        energy[n] = max(total, 0.0)  # rounding may leave a row that is its offset just below
