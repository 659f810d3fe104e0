"""Functions that Numba turns into machine code, kept on disk for the next process where it can be.

Imported by the modules that hold such functions, and by nothing else: Numba takes a while to load.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba


def njit(**options: Any) -> Callable[[Any], Any]:
    """As ``numba.njit(cache=True, nogil=True)``, also where there is no folder to keep code in.

    Numba wants to write beside the source or below the home directory. An installation in a
    container often has neither; then each process compiles what it uses.

    Parameters
    ----------
    **options
        Further options of ``numba.njit``.
    """

    def decorate(function: Any) -> Any:
        try:
            compiled = numba.njit(cache=True, nogil=True, **options)(function)
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
