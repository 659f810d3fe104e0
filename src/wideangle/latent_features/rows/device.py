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

from wideangle.latent_features.rows import Advance, DenseRows, Rows, Span, kept
from wideangle.latent_features.rows.memory import MemoryRows
from wideangle.latent_features.sampler.directions import Tuning, learn_steps, steps_of
from wideangle.latent_features.sampler.sweep import sweep_on_device, sweep_without_assignments
from wideangle.latent_features.state import (
    Design,
    Draw,
    Features,
    more_room,
    stats_of,
    with_room,
)
from wideangle.sharding import current_mesh, dividing, spread
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


def sparse_blocks(rows: MemoryRows) -> SparseRows:
    """Sparse rows on JAX's default device, in its default precision."""
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
    return SparseRows(
        jnp.asarray(values, dtype),
        jnp.asarray(places),
        jnp.asarray(np.zeros(dim) if rows.offset is None else rows.offset, dtype),
        jnp.asarray(rows.row_energy, dtype),
    )


class DeviceRows(Rows):
    """Rows on JAX's default device, or (dense) spread over several; chains take turns."""

    at_once = CHUNK

    def __init__(self, rows: MemoryRows) -> None:
        self.n_rows, self.dim = rows.n_rows, rows.dim
        self.turn = threading.Lock()
        self._mesh, mesh = None, current_mesh()
        self.arrays: Any
        if rows.is_sparse:
            self.arrays = sparse_blocks(rows)
        elif mesh is None:
            self.arrays = DenseRows(jnp.asarray(rows.matrix, jnp.result_type(float)))
        else:
            self._mesh = dividing(mesh, self.n_rows)
            whole = rows.matrix.astype(jnp.result_type(float), copy=False)
            self.arrays = DenseRows(spread(whole, self._mesh))

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
