"""Rows on a GPU (or any JAX device) as the latent feature model needs them.

Dense rows are one array. Sparse rows stay sparse: blocks of rows are made dense one at a time,
inside the compiled program, so that matrix units do the work and memory grows by one block only.
Many sweeps run as one program, without the host in between.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from scipy import sparse

from wideangle.latent_features.rows import Advance, DenseRows, Rows, Span, kept, stats_of
from wideangle.latent_features.sampler.directions import Tuning, learn_steps, steps_of
from wideangle.latent_features.sampler.sweep import sweep_on_device, sweep_without_assignments
from wideangle.latent_features.state import (
    Design,
    Draw,
    Features,
    FeatureStats,
    more_room,
    with_room,
)
from wideangle.sharding import spread
from wideangle.types import Array, Key

BLOCK_ENTRIES = 2**24
"""Entries of a block of sparse rows while it is dense."""
CHUNK = 20
"""Most sweeps per program; the host checks in between."""


class SparseRows(NamedTuple):
    """Rows in blocks of the same number of rows; the entries of a block padded with zeros."""

    values: Array
    """(B, E)"""
    places: Array
    """(B, E) index of the entry in its dense block, row by row."""
    offset: Array
    """(D,) subtracted from every row."""
    block_rows: Array
    """(B, rows of a block): 1, or 0 for padding rows of the last block."""
    squares: Array
    """(N,) squared lengths."""

    def _dense(self, values: Array, places: Array) -> Array:
        shape = self.block_rows.shape[1], self.offset.shape[0]
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
        n_blocks, size = self.block_rows.shape
        padded = (
            jnp.zeros((n_blocks * size, assignments.shape[1]), assignments.dtype)
            .at[: assignments.shape[0]]
            .set(assignments)
        )

        def add(total: Array, part: tuple[Array, Array, Array]) -> tuple[Array, None]:
            values, places, here = part
            return total + here.T @ self._dense(values, places), None

        start = jnp.zeros((assignments.shape[1], self.offset.shape[0]), assignments.dtype)
        blocks = padded.reshape(n_blocks, size, -1)
        total, _ = lax.scan(add, start, (self.values, self.places, blocks))
        return total - jnp.sum(assignments, axis=0)[:, None] * self.offset

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

    def stats(self, assignments: Array) -> FeatureStats:
        """Statistics of the rows."""
        return stats_of(self, assignments)


def device_arrays(matrix: Any, offset: np.ndarray | None) -> DenseRows | SparseRows:
    """Rows on JAX's default device, in its default precision."""
    dtype = jnp.result_type(float)
    dim = matrix.shape[1]
    if not sparse.issparse(matrix):
        rows = jnp.asarray(matrix, dtype)
        return DenseRows(rows if offset is None else rows - jnp.asarray(offset, dtype))
    matrix = sparse.csr_matrix(matrix, copy=True)
    matrix.sum_duplicates()  # this also sorts each row
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


class DeviceRows(Rows):
    """Rows on JAX's default device, or (dense) spread over several; chains take turns.

    Parameters
    ----------
    matrix, offset
        As for ``MemoryRows``.
    mesh
        Devices to spread the rows over.
    """

    at_once = CHUNK

    def __init__(self, matrix: Any, offset: np.ndarray | None, mesh: Mesh | None = None) -> None:
        self.n_rows, self.dim = matrix.shape
        self.turn = threading.Lock()
        self._mesh = None if sparse.issparse(matrix) else mesh
        if self._mesh is None:
            self.arrays = device_arrays(matrix, offset)
        else:
            whole = matrix if offset is None else matrix - offset.astype(matrix.dtype)
            self.arrays = DenseRows(spread(whole.astype(jnp.result_type(float)), self._mesh))

    def begin(self, key: Key, features: Features) -> Features:
        """Assignments on the devices of their rows."""
        if self._mesh is None:
            return features
        return features._replace(assignments=spread(features.assignments, self._mesh))

    def advance(
        self, key: Key, span: Span, features: Features, tuning: Tuning, design: Design
    ) -> Advance:
        """Sweeps in one program.

        A sweep that runs out of room leaves the state unchanged, and those after it do nothing; it
        is repeated with larger arrays and the same key, or without the assignments
        (``state.more_room``).
        """
        with jax.default_matmul_precision("highest"):
            (features, tuning), stacked, n_done = _advance(
                key, *span, (features, tuning), self.arrays, design
            )
        stacked, n_done = jax.device_get((stacked, n_done))
        reports = [jax.tree.map(lambda leaf, i=i: leaf[i], stacked) for i in range(int(n_done))]
        if n_done < span.n_sweeps:
            room = more_room(features, design)
            if room is not None:
                features = with_room(features, room)
            else:
                index = span.first + int(n_done)
                steps = steps_of(tuning, index < span.n_warmup)
                with jax.default_matmul_precision("highest"):
                    key = jax.random.fold_in(key, index)
                    features, info = _without_assignments(key, features, self.arrays, design, steps)
                reports.append(jax.device_get((info, features.hyper)))
        return Advance(features, tuning, reports)

    def keep(self, features: Features) -> Draw:
        """The state as a draw."""
        n_live = int(features.n_live)
        with jax.default_matmul_precision("highest"):
            stats = jax.device_get(_stats_of(self.arrays, features.assignments))
        assignments = np.ascontiguousarray(np.asarray(features.assignments)[:, :n_live])
        gram, cross = stats.gram[:n_live, :n_live], stats.cross[:n_live]
        return kept(features, np.packbits(assignments, axis=1), gram, cross, self.n_rows)


_stats_of = jax.jit(stats_of)
_without_assignments = jax.jit(sweep_without_assignments, static_argnames="design")


@partial(jax.jit, static_argnames="design")
def _advance(
    key: Key,
    first: Array,
    n_sweeps: Array,
    n_warmup: Array,
    state: tuple[Features, Tuning],
    rows: DenseRows | SparseRows,
    design: Design,
) -> tuple[Any, Any, Array]:
    """``n_sweeps`` sweeps, at most :data:`CHUNK`, or as many as there is room for."""

    def sweep(carry: Any) -> Any:
        (features, tuning), reports, done, _ = carry
        warming = first + done < n_warmup
        steps = steps_of(tuning, warming)
        moved, info, overflow = sweep_on_device(
            jax.random.fold_in(key, first + done), features, rows, design, steps, fixed_length=True
        )
        if design.hamiltonian:
            tuning = _choose(warming & ~overflow, learn_steps(tuning, info.moved), tuning)
        moved = _choose(~overflow, moved, features)
        reports = jax.tree.map(
            lambda all_, one: all_.at[done].set(one), reports, (info, moved.hyper)
        )
        return (moved, tuning), reports, done + ~overflow, overflow

    def goes_on(carry: Any) -> Array:
        _, _, done, overflow = carry
        return (done < n_sweeps) & ~overflow

    shapes = jax.eval_shape(partial(_report, design=design), key, state, rows)
    reports = jax.tree.map(lambda s: jnp.zeros((CHUNK, *s.shape), s.dtype), shapes)
    start = state, reports, jnp.zeros((), jnp.int32), jnp.array(False)
    state, reports, done, _ = jax.lax.while_loop(goes_on, sweep, start)
    return state, reports, done


def _report(key: Key, state: Any, rows: Any, design: Design) -> Any:
    """The report of one sweep, for its shapes."""
    features, tuning = state
    moved, info, _ = sweep_on_device(key, features, rows, design, steps_of(tuning, False))
    return info, moved.hyper


def _choose(condition: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda n, o: jnp.where(condition, n, o).astype(o.dtype), new, old)
