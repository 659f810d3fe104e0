"""Rows of a CSR matrix as data of a compiled program, used from JAX and never made dense.

The matrix stays on the host. A compiled program holds only its number in a register and the number
of columns, so one program serves all matrices with as many columns. Sums over rows come from a
callback to SciPy and NumPy, for all chains in one call.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any
from weakref import WeakValueDictionary

import jax
import numpy as np
import scipy.sparse as sp

from wideangle.mixture_of_experts.data import Data
from wideangle.sharding import n_threads
from wideangle.types import Array, Scalar, as_targets

MAX_PARTS = 16
"""Most parts that rows are split into for threads."""
ROW_COST = 10
"""Fixed cost of a row, in entries."""
BLOCK_ROWS = 2048
"""Rows whose scores are held at once."""

_REGISTER: WeakValueDictionary[int, SparseRows] = WeakValueDictionary()
_NUMBERS = itertools.count(1)


@jax.tree_util.register_pytree_node_class
class SparseRows:
    """A CSR matrix on the host, with the targets and weights of its rows.

    As a pytree it has one leaf, its number. It must live as long as programs that use it run:
    callers of ``run`` hold it that long.
    """

    def __init__(self, data: Data) -> None:
        self.n_columns = int(data.rows.shape[1])
        self.parts = _parts(data)
        self.n_threads = n_threads()
        number = next(_NUMBERS) % 2**31
        self.number: Any = np.int32(number)
        _REGISTER[number] = self

    def tree_flatten(self) -> tuple[tuple[Any], int]:
        """The number, and what a compiled program depends on."""
        return (self.number,), self.n_columns

    @classmethod
    def tree_unflatten(cls, n_columns: int, leaves: Sequence[Any]) -> SparseRows:
        """What a compiled program sees: a number without its matrix."""
        rows = object.__new__(cls)
        rows.number, rows.n_columns = leaves[0], n_columns
        return rows


def on_host(data: Data) -> Data:
    """Sparse data as an argument of compiled programs; targets and weights are with the rows.

    >>> on_host(Data(sp.eye_array(3, format="csr"), np.zeros(3), np.ones(3))).targets is None
    True
    """
    return Data(SparseRows(data), None, None)


def _parts(data: Data) -> list[list[Data]]:
    """Rows that count, in parts of about equal cost, each in blocks.

    Fewer parts if summing their gradients would cost as much as the rows. The number of cores does
    not matter: the same data give the same bits everywhere.
    """
    live = np.asarray(data.weights) > 0
    rows: Any = sp.csr_array(data.rows)[live]
    targets = as_targets(np.asarray(data.targets)[live], rows.dtype)
    weights = np.asarray(data.weights)[live].astype(rows.dtype)
    n_parts = int(np.clip(rows.nnz // (8 * max(rows.shape[1], 1)), 1, MAX_PARTS))
    cost = rows.indptr + ROW_COST * np.arange(len(rows.indptr))
    cuts = np.searchsorted(cost, np.linspace(0, cost[-1], n_parts + 1)[1:-1])
    parts = []
    for first, last in itertools.pairwise([0, *map(int, cuts), rows.shape[0]]):
        starts = range(first, last, BLOCK_ROWS)
        places = [slice(start, min(start + BLOCK_ROWS, last)) for start in starts]
        parts.append([Data(rows[i], targets[i], weights[i]) for i in places])
    return parts


OnScores = Callable[[np.ndarray, Data], tuple[Any, np.ndarray]]
"""From scores (A, n) of some rows to the sum of a function of them, and its slopes (A, n)."""


def over_sparse_rows(
    on_scores: OnScores, rows: SparseRows, vectors: Array, *, gradient: bool
) -> tuple[Scalar, Array]:
    """Sum over rows of a function of their scores under vectors (A, p), and its gradient in them.

    Without ``gradient`` the latter is empty.
    """
    shape = vectors.shape if gradient else (0,)
    results = tuple(jax.ShapeDtypeStruct(one, vectors.dtype) for one in ((), shape))
    function = partial(_on_host, on_scores, gradient=gradient)
    return jax.pure_callback(function, results, rows.number, vectors, vmap_method="expand_dims")


def _on_host(
    on_scores: OnScores, number: Any, vectors: Any, *, gradient: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The callback; leading axes (chains) may be absent or of length 1."""
    number, vectors = np.asarray(number), np.asarray(vectors)
    dtype, shape = vectors.dtype, vectors.shape[-2:]
    leading = np.broadcast_shapes(number.shape, vectors.shape[:-2])
    sets = [_REGISTER[int(one)] for one in np.broadcast_to(number, leading).ravel()]
    across = np.broadcast_to(vectors, (*leading, *shape)).reshape(-1, *shape).swapaxes(1, 2)
    jobs = [
        (on_scores, part, np.ascontiguousarray(one), gradient)
        for rows, one in zip(sets, across, strict=True)
        for part in rows.parts
    ]
    done, found = _in_threads(sets[0].n_threads, jobs), []
    for rows in sets:
        value, total = next(done)
        for _ in rows.parts[1:]:
            more, change = next(done)
            value, total = value + more, total + change
        found.append((np.asarray(value, dtype), np.asarray(total.T, dtype)))
    values, gradients = (np.stack(part) for part in zip(*found, strict=True))
    return values.reshape(leading), gradients.reshape(*leading, *gradients.shape[1:])


def _sum_of_part(
    on_scores: OnScores, part: list[Data], vectors: np.ndarray, gradient: bool
) -> tuple[float, np.ndarray]:
    """Value and gradient of some of the rows, for vectors (p, A)."""
    value, total = 0.0, np.zeros(vectors.shape if gradient else (0,), vectors.dtype)
    with np.errstate(all="ignore"):  # a sampler rejects what is not finite
        for block in part:
            scores = np.ascontiguousarray((block.rows @ vectors).T)
            more, slopes = on_scores(scores, block)
            value += float(more)
            if gradient:
                total += block.rows.T @ np.ascontiguousarray(slopes.T)
    return value, total


def _in_threads(n_threads: int, jobs: list[Any]) -> Any:
    """Results in order; SciPy and NumPy release the lock, so threads run in parallel."""
    if min(n_threads, len(jobs)) == 1:
        return (_sum_of_part(*job) for job in jobs)
    return _threads(n_threads, os.getpid()).map(lambda job: _sum_of_part(*job), jobs)


@cache
def _threads(n_threads: int, process: int) -> ThreadPoolExecutor:
    """Threads of this process; they do not survive a fork."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix="wideangle")
