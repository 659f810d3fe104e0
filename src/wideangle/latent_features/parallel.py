"""Compiled loops over rows, spread over threads.

Plain threads over kernels that release the GIL, not Numba's own pools, which forbid either several
calls at once or a later fork.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np

THREADED_WORK = 200_000
"""Steps of a kernel below which a second thread costs more than it saves."""


_here = threading.local()


def n_threads() -> int:
    """Threads that a loop over rows may use: all cores, or the share of one worker of several."""
    return getattr(_here, "n_threads", numba.config.NUMBA_NUM_THREADS)  # pyright: ignore[reportAttributeAccessIssue]


def share_threads(n_workers: int) -> None:
    """Leave the calling thread its share of the cores: it is one of several workers."""
    _here.n_threads = max(n_threads() // n_workers, 1)


def _use_one_thread() -> None:
    _here.n_threads = 1


def in_ranges(kernel: Callable[[int, int], Any], cuts: Sequence[int]) -> list[Any]:
    """Results of ``kernel(first, last)`` over the ranges between cuts, in order, in threads."""
    n = min(n_threads(), len(cuts) - 1)
    if n == 1:
        return list(map(kernel, cuts[:-1], cuts[1:]))
    with ThreadPoolExecutor(n, initializer=_use_one_thread) as pool:
        return list(pool.map(kernel, cuts[:-1], cuts[1:]))


def over_rows(kernel: Callable[[int, int], None], n_rows: int, work: float) -> None:
    """Run ``kernel(first, last)`` over all rows, in threads if there is work for them.

    Rows differ in cost, so each thread gets several ranges in turn.
    """
    n_ranges = 4 * n_threads() if work > THREADED_WORK and n_threads() > 1 else 1
    in_ranges(kernel, np.unique(np.linspace(0, n_rows, n_ranges + 1).astype(int)).tolist())
