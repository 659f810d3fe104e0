"""Compiled loops over rows: spread over threads, with one stream of random numbers per row.

Plain threads over kernels that release the GIL, not Numba's own pools, which forbid either several
calls at once or a later fork. Random numbers are SplitMix64 (Steele, Lea and Flood, 2014): a
counter with a fixed step, scrambled. The streams of rows start at scrambled places of one cycle of
length 2^64, so they are the same for any number of threads, and overlap only by an accident of
probability (number of rows)^2 x (numbers per row) / 2^64.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numba
import numpy as np

from wideangle.machine_code import njit

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_30, _27, _31, _11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_UNIT = 2.0**-53

THREADED_WORK = 200_000
"""Steps of a kernel below which a second thread costs more than it saves."""


_here = threading.local()


def n_threads() -> int:
    """Threads that a loop over rows may use: all cores, or the share of one worker of several."""
    return getattr(_here, "n_threads", numba.config.NUMBA_NUM_THREADS)  # pyright: ignore[reportAttributeAccessIssue]


def share_threads(n_workers: int) -> None:
    """Leave the calling thread its share of the cores: it is one of several workers."""
    _here.n_threads = max(n_threads() // n_workers, 1)


def in_ranges(kernel: Callable[[int, int], Any], cuts: Sequence[int]) -> list[Any]:
    """Results of ``kernel(first, last)`` over the ranges between cuts, in order, in threads."""
    n = min(n_threads(), len(cuts) - 1)
    if n == 1:
        return list(map(kernel, cuts[:-1], cuts[1:]))
    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(kernel, cuts[:-1], cuts[1:]))


def over_rows(kernel: Callable[[int, int], None], n_rows: int, work: float) -> None:
    """Run ``kernel(first, last)`` over all rows, in threads if there is work for them.

    Rows differ in cost, so each thread gets several ranges in turn.
    """
    n_ranges = 4 * n_threads() if work > THREADED_WORK and n_threads() > 1 else 1
    in_ranges(kernel, np.unique(np.linspace(0, n_rows, n_ranges + 1).astype(int)).tolist())


def derived_seed(seed: int, purpose: int) -> np.uint64:
    """A seed for one of several purposes or draws, unrelated to those of the others."""
    return np.random.SeedSequence([int(seed), purpose]).generate_state(1, np.uint64)[0]


@njit()
def scramble(counter):
    """A bijection of 64-bit numbers in which every bit of the input moves every bit."""
    counter = (counter ^ (counter >> _30)) * _FIRST
    counter = (counter ^ (counter >> _27)) * _SECOND
    return counter ^ (counter >> _31)


@njit()
def stream(seed, row):
    """Start of the stream of one row."""
    return scramble(scramble(np.uint64(seed) + _STEP) + np.uint64(row) * _STEP)


@njit()
def uniform(state):
    """Next state of a stream and a number in [0, 1) with 53 random bits."""
    state = state + _STEP
    return state, (scramble(state) >> _11) * _UNIT
