"""Functions that Numba turns into machine code, and threads for their loops over rows.

The code is kept on disk for the next process where it can be. Imported by the modules that hold
such functions, and by nothing else: Numba takes a while to load.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np

from wideangle.sharding import n_threads

THREADED_WORK = 200_000
"""Steps of a kernel below which a second thread costs more than it saves."""


def njit(**options: Any) -> Callable[[Any], Any]:
    """As ``numba.njit(cache=True, nogil=True)``, also where there is no folder to keep code in.

    Numba wants to write next to the source or below the home directory. An installation in a
    container often has neither; then each process compiles what it uses.
    """

    def decorate(function: Any) -> Any:
        try:
            compiled: Any = numba.njit(cache=True, nogil=True, **options)(function)
        except RuntimeError as error:
            if "cannot cache function" not in str(error):
                raise
            compiled = numba.njit(nogil=True, **options)(function)
        compile_for = compiled._compile_for_args

        def compile_whole(*arguments: Any, **named: Any) -> Any:
            with ctrl_c_later():
                return compile_for(*arguments, **named)

        compiled._compile_for_args = compile_whole
        return compiled

    return decorate


@contextmanager
def ctrl_c_later() -> Iterator[None]:
    """Ctrl-C takes effect when the block ends.

    LLVM calls back into Python while it compiles, and an exception there is printed and lost: a
    fit would go on as if nobody had pressed a key.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    pressed: list[Any] = []
    signal.signal(signal.SIGINT, lambda number, frame: pressed.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if pressed:
        handler(*pressed[0])


# ---------------------------------------------------------------- threads
#
# Plain threads over kernels that release the GIL, not Numba's own pools, which forbid either
# several calls at once or a later fork.

_here = threading.local()


def threads_of_loops() -> int:
    """Threads that a loop over rows may use: all, or those of one worker of several."""
    if (own := getattr(_here, "n_threads", None)) is not None:
        return own
    return min(n_threads(), numba.config.NUMBA_NUM_THREADS)  # pyright: ignore[reportAttributeAccessIssue]


def use_threads(n: int) -> None:
    """Give loops of the calling thread, one of several workers, so many threads."""
    _here.n_threads = n


def in_ranges(kernel: Callable[[int, int], Any], cuts: Sequence[int]) -> list[Any]:
    """Results of ``kernel(first, last)`` over the ranges between cuts, in order, in threads."""
    n = min(threads_of_loops(), len(cuts) - 1)
    if n == 1:
        return list(map(kernel, cuts[:-1], cuts[1:]))
    with ThreadPoolExecutor(n, initializer=use_threads, initargs=(1,)) as pool:
        return list(pool.map(kernel, cuts[:-1], cuts[1:]))


def over_rows(kernel: Callable[[int, int], None], n_rows: int, work: float) -> None:
    """Run ``kernel(first, last)`` over all rows, in threads if there is work for them.

    Rows differ in cost, so each thread gets several ranges in turn.
    """
    n = threads_of_loops() if work > THREADED_WORK else 1
    n_ranges = 4 * n if n > 1 else 1
    in_ranges(kernel, np.unique(np.linspace(0, n_rows, n_ranges + 1).astype(int)).tolist())
