"""Rows of a CSR matrix as data of a mixture of experts, used from JAX and never made dense.

The matrix stays on the host. A compiled program holds only its number in a register and the number
of columns, so one program serves all matrices with as many columns; the likelihood and its gradient
come from a callback to machine code (``sparse_kernel.py``), for all chains in one call.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from wideangle.mixture_of_experts.data import Data
from wideangle.types import Array, Scalar, as_targets

MAX_PARTS = 16
"""Most parts that rows are split into, one per free core."""
ROW_COST = 10
"""Fixed cost of a row, in entries."""

_REGISTER: WeakValueDictionary[int, SparseRows] = WeakValueDictionary()
_NUMBERS = itertools.count(1)


@jax.tree_util.register_pytree_node_class
class SparseRows:
    """A CSR matrix on the host, with the targets and weights of its rows.

    As a pytree it has one leaf, its number. It must live as long as programs that use it run:
    callers of ``run`` hold it that long.
    """

    def __init__(self, data: Data) -> None:
        targets = as_targets(data.targets, np.float64)
        self.data = Data(sp.csr_array(data.rows), targets, np.asarray(data.weights))
        self.n_columns = int(data.rows.shape[1])
        number = next(_NUMBERS) % 2**31
        self.number: Any = np.int32(number)
        _REGISTER[number] = self
        self._layouts: dict[Any, _Layout] = {}

    def tree_flatten(self) -> tuple[tuple[Any], int]:
        """The number, and what a compiled program depends on."""
        return (self.number,), self.n_columns

    @classmethod
    def tree_unflatten(cls, n_columns: int, leaves: Sequence[Any]) -> SparseRows:
        """What a compiled program sees: a number without its matrix."""
        rows = object.__new__(cls)
        rows.number, rows.n_columns = leaves[0], n_columns
        return rows

    def layout(self, dtype: Any) -> _Layout:
        """Rows that count, in the precision of the weight vectors; made once for each."""
        key = np.dtype(dtype)
        if key not in self._layouts:
            self._layouts[key] = _Layout.of(self.data, key)
        return self._layouts[key]


def on_host(data: Data) -> Data:
    """Sparse data as an argument of compiled programs; targets and weights are with the rows.

    >>> on_host(Data(sp.eye_array(3, format="csr"), np.zeros(3), np.ones(3))).targets is None
    True
    """
    return Data(SparseRows(data), None, None)


class _Layout(NamedTuple):
    """Arguments of the machine code that do not change from call to call."""

    csr: tuple[np.ndarray, np.ndarray, np.ndarray]
    targets: np.ndarray
    weights: np.ndarray
    parts: list[tuple[int, int]]

    @classmethod
    def of(cls, data: Data, dtype: Any) -> _Layout:
        live = data.weights > 0
        rows: Any = data.rows if np.all(live) else data.rows[live]
        csr = rows.indptr.astype(np.int64), rows.indices.astype(np.int32), rows.data.astype(dtype)
        targets, weights = as_targets(data.targets[live], dtype), data.weights[live].astype(dtype)
        # Fewer parts if summing their gradients would cost as much as the rows. The number of cores
        # does not matter: the same data give the same bits everywhere.
        n_parts = int(np.clip(rows.nnz // (8 * max(rows.shape[1], 1)), 1, MAX_PARTS))
        cost = csr[0] + ROW_COST * np.arange(len(csr[0]))
        cuts = np.searchsorted(cost, np.linspace(0, cost[-1], n_parts + 1)[1:-1])
        ends = [0, *map(int, cuts), rows.shape[0]]
        return cls(csr, targets, weights, list(itertools.pairwise(ends)))


def sparse_log_lik(
    rows: SparseRows, gate: Array, experts: Array, *, gradient: bool, floor: float | None = None
) -> tuple[Scalar, Array, Array]:
    """Log-likelihood and its gradients in the weights of gate (K, p) and experts (K, O, p).

    Without ``gradient`` the gradients are empty. ``floor`` is the smallest noise of Gaussian
    experts; others have none.
    """
    dtype = jnp.result_type(gate, experts)
    shapes = (gate.shape, experts.shape) if gradient else ((0,), (0,))
    results = tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in ((), *shapes))
    function = _with_gradient if gradient else _value_only
    arguments = rows.number, gate.astype(dtype), experts.astype(dtype)
    if floor is not None:
        arguments = (*arguments, np.asarray(floor, dtype))
    return jax.pure_callback(function, results, *arguments, vmap_method="expand_dims")


def _with_gradient(
    number: Any, gate: Any, experts: Any, floor: Any = None
) -> tuple[np.ndarray, ...]:
    return _on_host(number, gate, experts, floor, gradient=True)


def _value_only(number: Any, gate: Any, experts: Any, floor: Any = None) -> tuple[np.ndarray, ...]:
    return _on_host(number, gate, experts, floor, gradient=False)


def _on_host(
    number: Any, gate: Any, experts: Any, floor: Any, *, gradient: bool
) -> tuple[np.ndarray, ...]:
    """The callback; leading axes (chains) may be absent or of length 1."""
    if floor is not None:
        floor = np.asarray(floor).reshape(-1)[:1]  # the same for all chains
    number, gate, experts = (np.asarray(part) for part in (number, gate, experts))
    leading = np.broadcast_shapes(number.shape, gate.shape[:-2], experts.shape[:-3])
    numbers = np.broadcast_to(number, leading).ravel()
    gates = np.broadcast_to(gate, (*leading, *gate.shape[-2:])).reshape(-1, *gate.shape[-2:])
    shape = experts.shape[-3:]
    experts = np.broadcast_to(experts, (*leading, *shape)).reshape(-1, *shape)
    jobs = [
        _Job(_REGISTER[int(number)].layout(gate.dtype), one, other, floor, gradient=gradient)
        for number, one, other in zip(numbers, gates, experts, strict=True)
    ]
    tasks = [(job, part) for job in jobs for part in job.rows.parts]
    for (job, _), result in zip(tasks, _in_threads(tasks), strict=True):
        job.add(*result)
    stacked = zip(*(job.result() for job in jobs), strict=True)
    return tuple(
        np.reshape(np.stack(part), (*leading, *part[0].shape)).astype(gate.dtype, copy=False)
        for part in stacked
    )


class _Job:
    """The likelihood at one point: weights in the layout of the machine code, and the sums."""

    def __init__(
        self, rows: _Layout, gate: Any, experts: Any, floor: Any, *, gradient: bool
    ) -> None:
        from wideangle.mixture_of_experts.sparse_kernel import NEVER, WIDTH  # compiled on use

        self.rows, self.floor = rows, floor
        self.sizes = n, n_outputs, p = experts.shape
        self.n = -(-n // WIDTH) * WIDTH
        vectors = np.zeros((p, 1 + n_outputs, self.n), gate.dtype)
        vectors[:, 0, :n] = gate.T
        vectors[:, 1:, :n] = experts.transpose(2, 1, 0)
        self.vectors = vectors.reshape(p, -1)
        self.blank = np.zeros(self.vectors.shape[1], gate.dtype)
        self.blank[n : self.n] = NEVER
        self.value, self.gradient, self.wanted = 0.0, None, gradient

    def part(self, part: tuple[int, int]) -> tuple[float, np.ndarray]:
        """Value and gradient of some of the rows."""
        from wideangle.mixture_of_experts import sparse_gaussian, sparse_kernel

        shape = self.vectors.shape if self.wanted else (0, self.vectors.shape[1])
        gradient = np.zeros(shape, self.vectors.dtype)
        rows, targets, weights, _ = self.rows
        arguments = rows, targets, weights, self.vectors, self.blank, self.n, part, gradient
        if self.floor is None:
            return sparse_kernel.accumulate(*arguments), gradient
        return sparse_gaussian.accumulate(*arguments, self.floor), gradient

    def add(self, value: float, gradient: np.ndarray) -> None:
        """Add a part to the sums."""
        self.value += value
        if self.gradient is None:
            self.gradient = gradient
        else:
            self.gradient += gradient

    def result(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Value and gradients in the layout of the caller."""
        dtype = self.vectors.dtype
        value = np.asarray(self.value, dtype)
        if not self.wanted or self.gradient is None:
            return value, np.zeros(0, dtype), np.zeros(0, dtype)
        n, n_outputs, p = self.sizes
        gradient = self.gradient.reshape(p, 1 + n_outputs, self.n)[:, :, :n]
        return value, gradient[:, 0].T, gradient[:, 1:].transpose(2, 1, 0)


def _in_threads(tasks: list[tuple[_Job, tuple[int, int]]]) -> Any:
    """Results in order; the machine code releases the lock, so threads run in parallel."""
    from numba import config

    n_threads: int = config.NUMBA_NUM_THREADS  # pyright: ignore[reportAttributeAccessIssue]
    if min(n_threads, len(tasks)) == 1:
        return (job.part(part) for job, part in tasks)
    threads = _threads(n_threads, os.getpid())
    return threads.map(lambda task: task[0].part(task[1]), tasks)


@cache
def _threads(n_threads: int, process: int) -> ThreadPoolExecutor:
    """Threads of this process; they do not survive a fork."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix="wideangle")
