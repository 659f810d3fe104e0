"""Numbers of every row that do not fit into memory, in a file of this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


class Scratch:
    """An array (N, width) in a file, read and written in runs of rows.

    Read and written, not mapped: memory stays that of a run.
    """

    def __init__(self, path: Path, n_rows: int, width: int, dtype: Any) -> None:
        self.path, self.width, self.dtype = path, width, np.dtype(dtype)
        self._row = width * self.dtype.itemsize
        with path.open("wb") as file:
            file.truncate(n_rows * self._row)
        self._file = path.open("r+b", buffering=0)

    def read(self, first: int, n_rows: int) -> np.ndarray:
        """Some rows, as a new array."""
        rows = np.empty((n_rows, self.width), self.dtype)
        if self._row:
            self._file.seek(first * self._row)
            view = memoryview(rows).cast("B")
            done = 0
            while done < len(view):
                done += self._file.readinto(view[done:]) or _cut_short(self.path)
        return rows

    def write(self, first: int, rows: np.ndarray) -> None:
        """Put rows in their place."""
        if self._row:
            self._file.seek(first * self._row)
            view = memoryview(np.ascontiguousarray(rows, self.dtype)).cast("B")
            done = 0
            while done < len(view):
                done += self._file.write(view[done:])

    def close(self) -> None:
        """Close and delete the file."""
        self._file.close()
        self.path.unlink(missing_ok=True)


def _cut_short(path: Path) -> int:
    raise OSError(f"{path} has become shorter than it was written")
