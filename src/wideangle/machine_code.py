"""Functions that Numba turns into machine code, kept on disk for the next process where it can be.

Imported by the modules that hold such functions, and by nothing else: Numba takes a while to load.
"""

from __future__ import annotations

from collections.abc import Callable
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
            return numba.njit(cache=True, nogil=True, **options)(function)
        except RuntimeError as error:
            if "cannot cache function" not in str(error):
                raise
            return numba.njit(nogil=True, **options)(function)

    return decorate
