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
        self._file = path.open("r+b")

    def read(self, first: int, n_rows: int) -> np.ndarray:
        """Some rows, as a new array."""
        rows = np.empty((n_rows, self.width), self.dtype)
        if rows.size:
            self._file.seek(first * self._row)
            if self._file.readinto(rows.data.cast("B")) < rows.nbytes:
                raise OSError(f"{self.path} has become shorter than it was written")
        return rows

    def write(self, first: int, rows: np.ndarray) -> None:
        """Put rows in their place."""
        if rows.size:
            self._file.seek(first * self._row)
            self._file.write(np.ascontiguousarray(rows, self.dtype).data.cast("B"))

    def close(self) -> None:
        """Close and delete the file."""
        self._file.close()
        self.path.unlink(missing_ok=True)
