"""One process at a time: a lock that the system releases even after a crash."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

POLL = 0.2


class BusyError(OSError):
    """Another process holds the lock."""


@contextlib.contextmanager
def only_one(path: Path, *, wait: float, note: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock ``path``; if another process has it, report it and wait at most ``wait`` s."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if not _try_lock(handle):
            note(f"another process holds {path}: waiting for it")
            end = time.monotonic() + wait
            while not _try_lock(handle):
                if time.monotonic() > end:
                    raise BusyError(f"{path} is still held by another process; try again later.")
                time.sleep(POLL)
        yield
    finally:
        # The file is kept: removing it could release the lock of a third process.
        os.close(handle)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
