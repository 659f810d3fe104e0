"""Stochastic ascent: Adam on any objective, from minibatches made on the host.

Independent runs are an axis of the objective's value: they share every minibatch (data is read
once for all) and one compiled program. Several steps make one compiled call; between calls the
host prepares rows, moves the progress bar and notices Ctrl-C.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh

from wideangle.checks import warn
from wideangle.infer.program import jit_quickly
from wideangle.progress import Progress
from wideangle.sharding import gathered, in_company, own_rows, spread
from wideangle.types import Array, Key, as_dense, as_targets

CALL_BYTES = 2**25
"""Most memory for the minibatches of one compiled call."""
ROUND = 64
"""Minibatches hold a multiple of this many rows."""
CALL_STEPS = 64
"""Most steps of one compiled call."""
MOMENTUM, MEMORY, FLOOR = 0.9, 0.99, 1e-8
WARM_UP, FLAT = 0.05, 0.3
"""Where the learning rate reaches and leaves its maximum, as fractions of the run."""

Objective = Callable[[Key, Any, Any, Any], Array]
"""``(key, position, batch, constants) -> values`` to maximise, one per run (R,). Hashable, and
equal to objects that compute the same, since compiled programs are cached by it."""


class AscentState(NamedTuple):
    """Everything needed to continue, as a plain pytree of arrays; leading axis of leaves: run."""

    position: Any
    mean: Any
    """Running mean of the gradient."""
    square: Any
    """Running mean of its square."""
    step: Array
    """Steps done, one entry per run (all equal)."""


class Ascent(NamedTuple):
    """Final state of the runs, and their trace."""

    state: AscentState
    trace: np.ndarray
    """Objective at every step, axes (step, run)."""
    interrupted: bool


class Batches(ABC):
    """Batches of rows from any source: rows, targets and weights."""

    per_pass: int
    """Batches of a pass."""
    per_call: int
    """Batches of one compiled call."""
    _whole: Any = None

    def take(self, first: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Batches ``first``, ``first + 1``, ... of a call, stacked; one batch if it is all rows."""
        if self.per_pass > 1:
            return self._stack(first, self.per_call)
        if self._whole is None:
            self._whole = self._stack(0, 1)
        return self._whole

    @abstractmethod
    def _stack(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """So many batches from ``first`` on."""


class Minibatches(Batches):
    r"""Rows of a data set in random order, cut into minibatches of one size.

    A pass is a partition into m parts of equal size (up to one row), each padded with rows of
    weight 0, and all weights multiplied by m. The mean over a pass of any sum over rows is then
    *exactly* the sum over all rows.

    Parameters
    ----------
    seed
        Order and content of batch t depend on it and t only.
    rows
        Array or SciPy CSR matrix (N, p); only the rows of a call are made dense.
    size
        Largest number of rows in a batch.
    mesh
        Devices that the batches are for; the parts for those of other processes are left empty.
    """

    def __init__(
        self,
        seed: int,
        rows: Any,
        targets: Any,
        weights: Any,
        size: int,
        dtype: Any = np.float32,
        mesh: Mesh | None = None,
    ) -> None:
        self.seed, self.rows, self.dtype = seed, rows, dtype
        self.targets = as_targets(targets, dtype)
        self.weights = np.asarray(weights, dtype)
        total = rows.shape[0]
        self.per_pass, self.size, self.per_call = batch_sizes(total, rows.shape[1], size, dtype)
        self._own = own_rows(self.size, mesh)
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, int))

    def _indices(self, batch: int) -> np.ndarray:
        if self.per_pass == 1:
            return np.arange(self.size)
        turn, place = divmod(batch, self.per_pass)
        if self._order[0] != turn:
            generator = np.random.default_rng([self.seed, turn])
            self._order = turn, generator.permutation(self.rows.shape[0])
        return self._order[1][place :: self.per_pass]

    def _stack(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        full = np.zeros((count, self.size), int)
        weights = np.zeros(full.shape, self.dtype)
        for place in range(count):
            chosen = self._indices(first + place)
            full[place, : len(chosen)] = chosen
            weights[place, : len(chosen)] = self.weights[chosen] * self.per_pass
        own = full[:, self._own]
        rows = as_dense(self.rows, own.ravel(), self.dtype).reshape(*own.shape, self.rows.shape[1])
        if own.shape != full.shape:
            part, rows = rows, np.empty((*full.shape, rows.shape[-1]), self.dtype)
            rows[:, self._own] = part
        return rows, self.targets[full], weights


def batch_sizes(total: int, width: int, size: int, dtype: Any) -> tuple[int, int, int]:
    """Batches of a pass, rows of a batch, and batches of a compiled call."""
    per_pass = -(-total // size)
    # Rounded up, so that data sets of similar size share a compiled program.
    even = -(-total // per_pass)
    rows = even if per_pass == 1 else min(size, -(-even // ROUND) * ROUND)
    bytes_each = rows * width * np.dtype(dtype).itemsize
    return per_pass, rows, int(max(1, min(CALL_STEPS, CALL_BYTES // max(bytes_each, 1))))


def schedule(step: Array, n_steps: Array) -> Array:
    """Factor of the learning rate: linear warm-up, flat, then a cosine to 0."""
    done = (step + 1.0) / n_steps
    fall = jnp.clip((done - FLAT) / (1.0 - FLAT), 0.0, 1.0)
    return jnp.minimum(done / WARM_UP, 1.0) * 0.5 * (1.0 + jnp.cos(jnp.pi * fall))


def adam(state: AscentState, gradient: Any, rates: Any, n_steps: Array) -> AscentState:
    """One step of Adam upwards; ``rates`` has the structure of the position."""
    count = state.step[0] + 1.0
    # A batch that overflows is skipped, so that it does not ruin the run.
    gradient = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0.0), gradient)
    mean = jax.tree.map(lambda m, g: MOMENTUM * m + (1 - MOMENTUM) * g, state.mean, gradient)
    square = jax.tree.map(lambda v, g: MEMORY * v + (1 - MEMORY) * g * g, state.square, gradient)
    factor = schedule(state.step[0], n_steps) / (1.0 - MOMENTUM**count)
    unbias = 1.0 / (1.0 - MEMORY**count)

    def move(x: Array, m: Array, v: Array, rate: Array) -> Array:
        return x + (rate * factor * m / (jnp.sqrt(v * unbias) + FLOOR)).astype(x.dtype)

    position = jax.tree.map(move, state.position, mean, square, rates)
    return AscentState(position, mean, square, state.step + 1)


@partial(jit_quickly, static_argnames=("objective", "n_calls"))
def _advance(
    objective: Objective,
    n_calls: int,
    key: Key,
    state: AscentState,
    batches: Any,
    constants: Any,
    rates: Any,
    n_steps: Array,
    limit: Array,
) -> tuple[AscentState, Array]:
    """Up to ``n_calls`` steps (``limit`` of them) on stacked batches, used in turn."""
    n_batches = jax.tree.leaves(batches)[0].shape[0]
    dtype = jnp.result_type(*jax.tree.leaves(state.position))

    def total(position: Any, key: Key, batch: Any) -> tuple[Array, Array]:
        values = objective(key, position, batch, constants)
        return jnp.sum(values), values

    def one(index: Array, carry: tuple[AscentState, Array]) -> tuple[AscentState, Array]:
        state, trace = carry
        batch = jax.tree.map(
            lambda leaf: lax.dynamic_index_in_dim(leaf, index % n_batches, keepdims=False), batches
        )
        step_key = jax.random.fold_in(key, state.step[0])
        gradient, values = jax.grad(total, has_aux=True)(state.position, step_key, batch)
        return adam(state, gradient, rates, n_steps), trace.at[index].set(values.astype(dtype))

    trace = jnp.zeros((n_calls, state.step.shape[0]), dtype)
    return lax.fori_loop(0, limit, one, (state, trace))


def begin(position: Any) -> AscentState:
    """The state before the first step; leaves of ``position`` have a leading axis of runs."""
    position = jax.tree.map(lambda leaf: jnp.array(leaf, jnp.asarray(leaf).dtype), position)
    zeros = jax.tree.map(jnp.zeros_like, position)
    n_runs = jax.tree.leaves(position)[0].shape[0]
    return AscentState(position, zeros, zeros, jnp.zeros(n_runs, jnp.int32))


def ascend(
    key: Key,
    objective: Objective,
    state: AscentState,
    batches: Batches,
    constants: Any,
    *,
    rates: Any,
    n_steps: int,
    until: int | None = None,
    verbose: bool | None = None,
    callback: Callable[[AscentState, np.ndarray], None] | None = None,
    mesh: Mesh | None = None,
) -> Ascent:
    """Climb from ``state`` until ``n_steps`` are done (steps already done count).

    Parameters
    ----------
    rates
        Largest learning rate of every leaf of the position.
    n_steps
        Length of the whole run, for the schedule of the learning rate.
    until
        Stop after this many steps, to continue later; by default ``n_steps``.
    verbose
        True or False to force or forbid a bar; None shows one on a terminal.
    callback
        Called between calls as ``callback(state, trace so far)``; from a saved state a run
        continues bit for bit.
    mesh
        Devices over which the rows of every batch are spread.

    Notes
    -----
    Ctrl-C keeps the state of the last call, warns, and sets ``interrupted``.
    """
    began = done = int(state.step[0])
    last = n_steps if until is None else min(until, n_steps)
    traces, interrupted = [np.zeros((0, state.step.shape[0]))], False

    def take(first: int) -> Any:
        if first >= last:
            return None
        rows = batches.take(first)
        return rows if mesh is None else spread(rows, mesh, axis=1)

    try:
        with Progress(n_steps, 0, verbose) as bar, in_company():
            rows = take(done)
            while done < last:
                limit = min(batches.per_call, last - done)
                sizes = jnp.int32(n_steps), jnp.int32(limit)
                moved, trace = _advance(
                    objective, batches.per_call, key, state, rows, constants, rates, *sizes
                )
                # The device works on this call while the host gathers the rows of the next one.
                rows = take(done + limit)
                trace = np.asarray(trace)[:limit]
                state, done = moved, done + limit
                traces.append(trace)
                bar.at(done, "ascent")
                if callback is not None:
                    callback(state, np.concatenate(traces))
    except KeyboardInterrupt:
        interrupted = True
        warn(f"interrupted after {done} of {n_steps} steps", RuntimeWarning)
    if mesh is not None:
        state = gathered(state)
    return Ascent(state, np.concatenate(traces)[: done - began], interrupted)
