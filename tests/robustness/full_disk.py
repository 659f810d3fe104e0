"""A disk that fails at a given write, and stays so: what a full or read-only disk looks like."""

from __future__ import annotations

import builtins
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from wideangle.storage import files

REASONS = {
    "full": errno.ENOSPC,
    "quota": errno.EDQUOT,
    "read-only": errno.EROFS,
    "forbidden": errno.EACCES,
    "broken": errno.EIO,
}
CALLS = ("fsync", "replace", "rename", "mkdir")


class Disk:
    """Counts what is asked of the disk; from the number ``fails_from`` on, everything fails."""

    def __init__(self, fails_from: float, reason: str, heals_at: float = float("inf")) -> None:
        self.fails_from, self.heals_at, self.code = fails_from, heals_at, REASONS[reason]
        self.n_asked = self.n_failed = 0

    def ask(self, *, needed: bool = True) -> None:
        """One more operation; where one fails that is not needed, nobody has to be told."""
        self.n_asked += 1
        if self.fails_from <= self.n_asked < self.heals_at:
            self.n_failed += needed
            raise OSError(self.code, os.strerror(self.code))

    def open(self, *arguments, **named):
        self.ask()
        return _File(builtins.open(*arguments, **named), self)


class _File:
    """A file that takes half of what is written when the disk fails."""

    def __init__(self, file, disk: Disk) -> None:
        self.file, self.disk = file, disk

    def write(self, part) -> None:
        try:
            self.disk.ask()
        except OSError:
            content = bytes(memoryview(part).cast("B"))
            self.file.write(content[: len(content) // 2])
            raise
        self.file.write(part)

    def __enter__(self):
        return self

    def __exit__(self, *exception) -> None:
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)


def _is_needed(name: str, place: int | str) -> bool:
    """Not every system lets a folder be flushed: that is only tried, like making one again."""
    if name == "fsync":
        return not stat.S_ISDIR(os.fstat(int(place)).st_mode)
    return name != "mkdir" or not os.path.isdir(place)


@contextmanager
def failing(
    fails_from: float, reason: str = "full", heals_at: float = float("inf")
) -> Iterator[Disk]:
    """A block in which the files of this library lie on such a disk."""
    disk = Disk(fails_from, reason, heals_at)
    programs = os.environ.get("JAX_COMPILATION_CACHE_DIR", "\0")

    def asked(name):
        call = getattr(os, name)

        def wrapped(*arguments, **named):
            # Compiled programs that tests share are no files of this library.
            if not any(programs in str(argument) for argument in arguments):
                disk.ask(needed=_is_needed(name, arguments[0]))
            return call(*arguments, **named)

        return wrapped

    with mock.patch.object(files, "open", disk.open, create=True):
        with mock.patch.multiple(os, **{name: asked(name) for name in CALLS}):
            yield disk
