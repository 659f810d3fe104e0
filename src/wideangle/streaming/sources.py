"""Where rows come from that do not fit into memory: a file cut into blocks of neighbouring rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from wideangle.sharding import Share

BLOCK_BYTES = 2**18
"""A block of an array file: the smaller, the better rows are mixed; this is large enough for a
disk to be read at full speed in any order."""


class RowSource(Protocol):
    """Rows in blocks that are read one at a time: the interface that streaming needs."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        ...

    @property
    def starts(self) -> np.ndarray:
        """First row of every block, and the number of rows at the end."""
        ...

    @property
    def dtype(self) -> np.dtype:
        """Of the columns."""
        ...

    @property
    def names(self) -> list[str] | None:
        """Of the columns, if they have any."""
        ...

    def read(self, block: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Rows of a block (n, p), and their targets (n,) if there are any."""
        ...


class NpyRows:
    """Rows of a ``.npy`` file (N, p), with targets (N,) in another.

    Blocks are read and not mapped into memory: a mapped file may use as much memory as it is
    large.

    Parameters
    ----------
    X
        Path of the rows, or an array.
    y
        Path of the targets, or an array; none are needed to predict.
    block_rows
        Rows read at once; by default a quarter of a MiB.
    """

    names: list[str] | None = None

    def __init__(self, X: Any, y: Any = None, *, block_rows: int | None = None) -> None:
        self._rows = opened("X", X, 2)
        self._targets = None if y is None else opened("y", y, 1)
        self.shape = self._rows.shape
        self.dtype = self._rows.dtype
        n_rows, n_columns = self.shape
        if n_rows == 0 or n_columns == 0:
            raise ValueError(f"X: has shape {self.shape}; there must be rows and columns.")
        if self._targets is not None and self._targets.shape != (n_rows,):
            raise ValueError(f"y: has shape {self._targets.shape}, but X has {n_rows} rows.")
        usual = max(1, BLOCK_BYTES // (n_columns * self.dtype.itemsize))
        self.starts = block_starts(n_rows, usual if block_rows is None else block_rows)

    def read(self, block: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Rows of a block, and their targets."""
        part = slice(int(self.starts[block]), int(self.starts[block + 1]))
        targets = None if self._targets is None else self._targets[part]
        return self._rows[part], targets


def block_starts(n_rows: int, block_rows: int) -> np.ndarray:
    """First row of every block, and the number of rows at the end."""
    if block_rows < 1:
        raise ValueError(f"block_rows={block_rows}: must be at least 1.")
    return np.append(np.arange(0, n_rows, block_rows), n_rows)


class SomeBlocks:
    """Some blocks of a source, as a source: what one of several processes reads."""

    def __init__(self, source: RowSource, blocks: np.ndarray) -> None:
        self._source, self._blocks = source, blocks
        sizes = np.diff(source.starts)[self._blocks]
        self.starts = np.concatenate([[0], np.cumsum(sizes)])
        self.shape = int(self.starts[-1]), source.shape[1]
        self.dtype, self.names = source.dtype, source.names

    def read(self, block: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Rows of a block, and their targets."""
        return self._source.read(int(self._blocks[block]))


def neighbours(source: RowSource, share: Share) -> tuple[int, RowSource]:
    """First row and rows of one of as many runs of neighbouring blocks as there are processes."""
    if share.count == 1:
        return 0, source
    starts, n_blocks = source.starts, len(source.starts) - 1
    earlier = np.arange(share.count - 1)
    ends = (earlier + 1) * source.shape[0] / share.count
    # Every process has one block at least, and the others are divided.
    more = np.maximum.accumulate(np.searchsorted(starts, ends) - earlier)
    inner = np.clip(more, 1, n_blocks - share.count + 1) + earlier
    cuts = np.concatenate([[0], inner, [n_blocks]])
    first, last = cuts[share.index : share.index + 2]
    return int(starts[first]), SomeBlocks(source, np.arange(first, last))


def chunks(source: RowSource, n_rows: int) -> Iterator[tuple[int, np.ndarray]]:
    """First row and rows of pieces of ``n_rows`` rows, in order; the last has the rest."""
    waiting: list[np.ndarray] = []
    first = held = 0
    for block in range(len(source.starts) - 1):
        waiting.append(source.read(block)[0])
        held += len(waiting[-1])
        if held >= n_rows or block == len(source.starts) - 2:
            rows = waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
            whole = held if block == len(source.starts) - 2 else held - held % n_rows
            for start in range(0, whole, n_rows):
                yield first + start, rows[start : min(start + n_rows, whole)]
            waiting, first, held = [rows[whole:]], first + whole, held - whole


class ArrayFile:
    """A ``.npy`` file whose rows are read on demand, ``file[start:stop]``.

    It may be a part of another file, and begins at ``offset`` there.
    """

    def __init__(self, path: str | os.PathLike[str], offset: int = 0) -> None:
        self.path = Path(path)
        with self.path.open("rb") as file:
            file.seek(offset)
            try:
                version = np.lib.format.read_magic(file)
                read_header = (
                    np.lib.format.read_array_header_1_0
                    if version == (1, 0)
                    else np.lib.format.read_array_header_2_0
                )
                shape, by_columns, self.dtype = read_header(file)
            except ValueError as error:
                raise ValueError(f"{path}: is not a .npy file: {error}") from error
            self._offset = file.tell()
        self.shape: Any = shape
        if not self.shape:
            raise ValueError(f"{path}: holds a single number.")
        if self.dtype.hasobject:
            raise ValueError(f"{path}: holds Python objects; save numbers or fixed-width strings.")
        if by_columns and len(self.shape) > 1:
            raise ValueError(f"{path}: is stored by columns; save np.ascontiguousarray(X) instead.")
        self._row_items = int(np.prod(self.shape[1:], dtype=int))
        needed = self._offset + self.shape[0] * self._row_items * self.dtype.itemsize
        if self.path.stat().st_size < needed:
            raise ValueError(f"{path}: is cut short; {self.shape[0]} rows need {needed} bytes.")

    def __getitem__(self, part: slice) -> np.ndarray:
        start, stop, step = part.indices(self.shape[0])
        if step != 1:
            raise IndexError("rows of a file are read without gaps")
        items = max(stop - start, 0) * self._row_items
        place = self._offset + start * self._row_items * self.dtype.itemsize
        found = np.fromfile(self.path, self.dtype, items, offset=place)
        return found.reshape(-1, *self.shape[1:])


def opened(name: str, given: Any, ndim: int) -> Any:
    """An array, or a file of one, after a check of its axes."""
    array = ArrayFile(given) if isinstance(given, str | os.PathLike) else given
    if not hasattr(array, "shape") or len(array.shape) != ndim:
        shape = getattr(array, "shape", None)
        raise ValueError(f"{name}: must be an array or .npy file of {ndim} axes, not {shape}.")
    if ndim > 1 and array.dtype.kind not in "fiub":
        raise ValueError(f"{name}: has dtype {array.dtype}; must be numbers.")
    return array


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
