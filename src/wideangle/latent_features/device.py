"""Rows on a GPU (or any JAX device) as the latent feature model needs them.

Many sweeps run as one program, without the host in between.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.latent_features import csr
from wideangle.latent_features.directions import Tuning, learn_steps, steps_of
from wideangle.latent_features.memory import MemoryRows
from wideangle.latent_features.rows import Advance, DenseRows, Rows, Span, kept
from wideangle.latent_features.state import (
    Design,
    Draw,
    Features,
    more_room,
    stats_of,
    with_room,
)
from wideangle.latent_features.sweep import sweep_on_device, sweep_without_assignments
from wideangle.sharding import current_mesh, dividing, spread
from wideangle.types import Array, Key

CHUNK = 20
"""Most sweeps per program; the host checks in between."""


class DeviceRows(Rows):
    """Rows on JAX's default device, or (dense) spread over several; chains take turns."""

    at_once = CHUNK

    def __init__(self, rows: MemoryRows) -> None:
        self.n_rows, self.dim = rows.n_rows, rows.dim
        self.turn = threading.Lock()
        self._mesh, mesh = None, current_mesh()
        self.arrays: Any
        if rows.is_sparse:
            self.arrays = csr.blocked(rows)
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
    rows: DenseRows | csr.BlockedRows,
    design: Design,
) -> tuple[Any, Any, Array]:
    """``n_sweeps`` sweeps, at most :data:`CHUNK`, or as many as there is room for."""

    def one(state: Any, index: Array) -> Any:
        features, tuning = state
        warming = index < n_warmup
        steps = steps_of(tuning, warming)
        moved, info, overflow = sweep_on_device(
            jax.random.fold_in(key, index), features, rows, design, steps, fixed_length=True
        )
        if design.hamiltonian:
            tuning = _choose(warming & ~overflow, learn_steps(tuning, info.moved), tuning)
        moved = _choose(~overflow, moved, features)
        return (moved, tuning), (info, moved.hyper), overflow

    def sweep(carry: Any) -> Any:
        state, reports, done, _ = carry
        state, report, overflow = one(state, first + done)
        reports = jax.tree.map(lambda all_, new: all_.at[done].set(new), reports, report)
        return state, reports, done + ~overflow, overflow

    def goes_on(carry: Any) -> Array:
        _, _, done, overflow = carry
        return (done < n_sweeps) & ~overflow

    _, shapes, _ = jax.eval_shape(one, state, first)
    reports = jax.tree.map(lambda s: jnp.zeros((CHUNK, *s.shape), s.dtype), shapes)
    start = state, reports, jnp.zeros((), jnp.int32), jnp.array(False)
    state, reports, done, _ = jax.lax.while_loop(goes_on, sweep, start)
    return state, reports, done


def _choose(condition: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda n, o: jnp.where(condition, n, o).astype(o.dtype), new, old)
