"""Rows in memory, dense or sparse: the few sums that the model needs, and their assignments."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from wideangle.latent_features import csr
from wideangle.latent_features.assignments import sweep_rows
from wideangle.latent_features.rows import NO_STEPS, DenseRows, HostRows, kept, vectors_of
from wideangle.latent_features.state import (
    N_PROBES,
    ROOMS,
    Design,
    Draw,
    Features,
    FeatureStats,
    StoredAssignments,
    detached,
    probes,
    room_for,
    with_room,
)
from wideangle.latent_features.sweep import (
    SweepStart,
    drop_unused,
    finish_sweep,
    make_births,
    start_sweep,
)
from wideangle.machine_code import in_ranges, njit
from wideangle.types import Key, as_dense

BLOCK_ROWS = 4096
"""Rows handled at once, so that a cast or a square never makes a second matrix."""
THREADED_WORK = 2_000_000
"""Multiplications below which a second thread costs more than it saves."""
N_RANGES = 8
"""Number of row ranges that are summed separately above that."""
MANY_ENTRIES = 2**18
"""Entries from which an array with one row per data row is large."""


class MemoryRows(HostRows):
    """Rows x_n - offset, dense or sparse, accessed through the few sums that the model needs.

    Given features W and binary assignments Z, every conditional of the model needs the data only
    through X W', Z'X and |X|². Sparse rows stay sparse: the offset enters each sum separately.

    Parameters
    ----------
    matrix : array or scipy sparse matrix, shape (N, D)
        Rows. float32 stays float32, every other type becomes float64.
    offset : array, shape (D,), optional
        Subtracted from every row.
    """

    _fixed = True
    """Whether entries never change."""

    def __init__(self, matrix: Any, offset: Any = None) -> None:
        dtype = np.float32 if getattr(matrix, "dtype", None) == np.float32 else np.float64
        self.matrix: Any
        if sparse.issparse(matrix):
            self.matrix = sparse.csr_matrix(matrix, dtype=dtype)
            if not self.matrix.has_canonical_format:
                # Duplicate entries would be squared separately; the caller's matrix is not changed.
                self.matrix = self.matrix.copy()
                self.matrix.sum_duplicates()
        else:
            self.matrix = np.ascontiguousarray(matrix, dtype)
        if len(self.matrix.shape) != 2:  # noqa: PLR2004
            raise ValueError(f"rows must form a matrix, got shape {self.matrix.shape}")
        self.offset = np.zeros(self.dim, dtype) if offset is None else np.asarray(offset, dtype)
        if self.offset.shape != (self.dim,):
            raise ValueError(f"offset must have shape ({self.dim},), got {self.offset.shape}")
        if not self.is_sparse and np.any(self.offset):
            self.matrix, self.offset = self.matrix - self.offset, np.zeros(self.dim, dtype)

    @property
    def n_rows(self) -> int:
        """Number of rows, N."""
        return int(self.matrix.shape[0])

    @property
    def dim(self) -> int:
        """Number of columns, D."""
        return int(self.matrix.shape[1])

    @property
    def dtype(self) -> np.dtype:
        """float32 or float64."""
        return self.matrix.dtype

    @property
    def is_sparse(self) -> bool:
        """Whether only nonzero entries are stored."""
        return sparse.issparse(self.matrix)

    @cached_property
    def energy(self) -> float:
        """Sum of squares of all entries, in float64."""
        return float(self.row_energy.sum())

    @cached_property
    def row_energy(self) -> np.ndarray:
        """Squared length of each row, shape (N,), in float64."""
        if self.is_sparse:
            entries = self.matrix.data.astype(float)
            offset = self.offset.astype(float)
            terms = entries * (entries - 2.0 * offset[self.matrix.indices])
            energy = np.bincount(self.row_of, terms, self.n_rows) + offset @ offset
            return np.maximum(energy, 0.0)  # rounding may make that of the offset itself negative
        energy = np.zeros(self.n_rows)
        for block in self._blocks():
            rows = self.matrix[block].astype(float)
            energy[block] = np.einsum("nd,nd->n", rows, rows)
        return energy

    @property
    def row_of(self) -> np.ndarray:
        """Row of each stored entry of sparse rows, rising."""
        return np.repeat(np.arange(self.n_rows, dtype=np.int32), np.diff(self.matrix.indptr))

    def products(self, vectors: np.ndarray) -> np.ndarray:
        """Inner products of each row with each vector: (K, D) -> (N, K)."""
        vectors = np.asarray(vectors, self.dtype)
        if not self.is_sparse:
            return self.matrix @ vectors.T
        by_column = np.ascontiguousarray(vectors.T)
        found = np.zeros((self.n_rows, len(vectors)), self.dtype)
        work = self.matrix.nnz * len(vectors)
        given = *self._parts(), by_column, found
        self._in_threads(work, lambda first, last: csr.add_products(*given, first, last))
        found -= vectors @ self.offset
        return found

    def cross(self, assignments: np.ndarray) -> np.ndarray:
        """Sum of the rows that have each feature, Z'X: (N, K) -> (K, D), in float64."""
        assignments = np.asarray(assignments)
        if not self.is_sparse:
            total = np.zeros((assignments.shape[1], self.dim))
            for block in self._blocks():
                total += assignments[block].astype(self.dtype).T @ self.matrix[block]
            return total
        counts = assignments.sum(axis=0, dtype=np.int64)
        work = int(self.matrix.nnz / max(self.n_rows, 1) * counts.sum())
        assignments = np.ascontiguousarray(assignments, np.uint8)

        def partial(first: int, last: int) -> np.ndarray:
            return csr.sums_of_rows(*self._parts(), assignments, self.dim, first, last)

        total = np.sum(self._in_threads(work, partial), axis=0).T.copy()
        return total - np.outer(counts, self.offset)

    def take(self, rows: np.ndarray) -> MemoryRows:
        """The same view of a subset of the rows."""
        return MemoryRows(self.matrix[rows], self.offset)

    def scaled(self, factor: float) -> MemoryRows:
        """The same rows times a number."""
        # The product of a float32 matrix with a NumPy scalar would be float64.
        matrix = (self.matrix * factor).astype(self.dtype, copy=False)
        return MemoryRows(matrix, self.offset * factor)

    def dense_block(self, rows: np.ndarray | slice) -> np.ndarray:
        """Some rows as a new dense array, offset subtracted: for small subsets only."""
        return as_dense(self.matrix, rows, self.dtype) - self.offset

    def start_search(self) -> None:
        """Prepare for a search for features: nothing to do for complete rows."""

    def cross_observed(self, assignments: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        """Z'X such that ``removal_cost`` counts observed entries only; here all are observed."""
        return self.cross(assignments)

    # ---------------------------------------------------------------- sweeps

    def detached(self, features: Features) -> Features:
        """As ``state.detached``, with NumPy."""
        return detached(features._replace(assignments=np.asarray(features.assignments)))

    def compile(self, key: Key, features: Features, design: Design) -> None:
        """Compile the three programs of a sweep in parallel; calls would do so one by one."""
        room, dtype = features.room, features.weights.dtype
        width = width_for(int(features.n_live), room, self.n_rows)
        without = self.detached(features)

        def rows_by(n: int, kind: Any, n_rows: int = self.n_rows) -> Any:
            return jax.ShapeDtypeStruct((n_rows, n), kind)

        first = start_sweep.lower(key, without, design)
        start = jax.tree.map(_like, first.out_info)
        whole = start.features._replace(assignments=rows_by(width, np.uint8))
        given = (key, start._replace(features=whole), self.arrays, rows_by(width, dtype))
        second = make_births.lower(*given, design)
        moved, _ = jax.tree.map(_like, second.out_info)
        moved = moved._replace(assignments=rows_by(room, np.uint8))
        number = jax.ShapeDtypeStruct((), dtype)
        sums = rows_by(room, dtype, room), rows_by(self.dim, dtype, room)
        stats, probed = FeatureStats(*sums, number, number), rows_by(room, np.uint8, N_PROBES)
        third = finish_sweep.lower(key, moved, stats, probed, design, NO_STEPS)
        lowered = (first, second, third)
        with ThreadPoolExecutor(len(lowered)) as pool:
            list(pool.map(lambda program: program.compile(), lowered))

    def redraw(self, key: Key, start: SweepStart, features: Features, design: Design) -> Features:
        """Products with the features, new assignments, births and deaths."""
        n_live, vectors = int(start.features.n_live), np.asarray(start.vectors)
        found = self.products(vectors[:n_live])
        width = width_for(n_live, start.features.room, self.n_rows)
        assignments = sweep_rows(
            start.randomness,
            _columns(start.features, features.assignments, width),
            found,
            np.asarray(start.inner),
            np.asarray(start.features.weights),
            n_live,
            float(start.features.hyper.noise_variance),
        )
        padded = np.zeros((self.n_rows, width), vectors.dtype)
        padded[:, :n_live] = found
        start = start._replace(features=start.features._replace(assignments=assignments))
        moved, columns = make_births(key, start, self.arrays, padded, design)
        return _attached(moved, columns, features.room)

    @cached_property
    def arrays(self) -> DenseRows | csr.ListedRows:
        """The rows for compiled programs, in JAX's default precision."""
        if self.is_sparse:
            return csr.listed(self)
        arrays = DenseRows(jnp.asarray(self.matrix, jnp.result_type(float)))
        if self._fixed and arrays.rows.dtype == self.dtype:
            self.matrix = np.asarray(arrays.rows)  # one matrix, shared
        return arrays

    def leave(self, start: SweepStart, features: Features, design: Design) -> Features:
        """The old assignments of the features that stay."""
        return _attached(drop_unused(start.features, design), features.assignments, features.room)

    def sums(self, features: Features) -> tuple[np.ndarray, np.ndarray, float]:
        """Z'Z, Z'X of the live features, and the sum of squares of all entries."""
        n_live = int(features.n_live)
        assignments = np.ascontiguousarray(np.asarray(features.assignments)[:, :n_live])
        return gram_of(assignments), self.cross(assignments), self.energy

    def probed(self, features: Features) -> np.ndarray:
        """Assignments of the rows that are watched."""
        return np.asarray(features.assignments)[probes(self.n_rows, self.dim)[0]]

    def keep(self, features: Features) -> Draw:
        """The state as a draw."""
        n_live = int(features.n_live)
        assignments = np.ascontiguousarray(np.asarray(features.assignments)[:, :n_live])
        cross = self.cross_observed(assignments, vectors_of(features))
        packed = np.packbits(assignments, axis=1)
        return kept(features, packed, gram_of(assignments), cross, self.n_rows)

    def _blocks(self) -> list[slice]:
        return [slice(i, i + BLOCK_ROWS) for i in range(0, self.n_rows, BLOCK_ROWS)]

    def _parts(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.matrix.data, self.matrix.indices, self.matrix.indptr

    def _in_threads(self, work: int, kernel: Callable[[int, int], Any]) -> list[Any]:
        """Results of ``kernel(first, last)`` over ranges of rows with equal numbers of entries.

        The ranges do not depend on the number of threads, so neither do sums over them.
        """
        n_ranges = N_RANGES if work > THREADED_WORK else 1
        entries = np.linspace(0, self.matrix.nnz, n_ranges + 1)[1:-1]
        return in_ranges(
            kernel, [0, *np.searchsorted(self.matrix.indptr, entries).tolist(), self.n_rows]
        )


def _like(found: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(found.shape, found.dtype)


def width_for(n_live: int, room: int, n_rows: int) -> int:
    """Columns of arrays with one row per data row: no wider than needed when large.

    Each width needs a compilation.
    """
    if n_rows * room < MANY_ENTRIES:
        return room
    return min(room, next(width for width in ROOMS if width >= n_live))


def _columns(features: Features, stored: Any, width: int) -> np.ndarray:
    """The stored columns of the features, in ``width`` columns."""
    assert isinstance(features.assignments, StoredAssignments)
    n_live = int(features.n_live)
    columns = np.asarray(features.assignments.columns)[:n_live]
    found = np.zeros((len(stored), width), np.uint8)
    found[:, :n_live] = take_columns(np.asarray(stored), columns)
    return found


def _attached(features: Features, stored: Any, room: int) -> Features:
    """Features with their columns, in arrays of the old ``room`` if they still fit."""
    if room < features.room and room < room_for(int(features.n_live)):
        room = features.room
    features = with_room(features, room)
    return features._replace(assignments=_columns(features, stored, room))


@njit()
def gram_of(assignments):
    """Z'Z from the few features of each row."""
    n_rows, width = assignments.shape
    total = np.zeros((width, width), np.int64)
    active = np.empty(width, np.int64)
    for n in range(n_rows):
        count = 0
        for k in range(width):
            active[count] = k
            count += assignments[n, k]
        for i in range(count):
            for j in range(count):
                total[active[i], active[j]] += 1
    return total


def take_columns(stored: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Columns with the given indices, in that order; -1 is a column of zeros."""
    if stored.shape[1] == 0:
        return np.zeros((len(stored), len(columns)), np.uint8)
    return stored[:, columns] * (columns >= 0).astype(np.uint8)
