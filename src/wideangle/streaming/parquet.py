"""Rows of Parquet files, a row group at a time."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

UNNAMED_INDEX = re.compile(r"__index_level_\d+__")
"""How pandas calls the levels of a row index that has no name."""


class ParquetRows:
    """Rows of one or many Parquet files; a block is a row group (extra ``tables``).

    A row group is the least that can be read, so memory is at least that of one: write files with
    row groups of some 10,000 rows (``row_group_size`` of most writers).

    Parameters
    ----------
    path
        A file, a folder of ``.parquet`` files, or a list of files; all with the same columns.
    target
        Name of the column of classes; None to predict.
    columns
        Names of the columns to use, all of them numbers; by default all but the target and a row
        index without a name that pandas saved.
    """

    dtype: np.dtype
    """Single precision where that holds every column, else double."""

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        target: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        import pyarrow.parquet as pq

        files = _files(path)
        schema = pq.read_schema(files[0])
        if target is not None and target not in schema.names:
            raise ValueError(f"target={target!r}: the columns are {', '.join(schema.names)}.")
        self.target = target
        usual = [name for name in schema.names if not UNNAMED_INDEX.fullmatch(name)]
        self.names: list[str] | None = [name for name in columns or usual if name != target]
        self._groups: list[tuple[Path, int]] = []
        sizes, self.dtype = [], np.dtype(np.float32)
        # Files are opened one at a time, here and in read: there may be thousands of them.
        for path_ in files:
            with pq.ParquetFile(path_) as file:
                kinds = _check_numbers(file.schema_arrow, self.names)
                self.dtype = np.result_type(self.dtype, *kinds)
                for group in range(file.metadata.num_row_groups):
                    n_rows = file.metadata.row_group(group).num_rows
                    if n_rows:
                        self._groups.append((path_, group))
                        sizes.append(n_rows)
        self.starts = np.concatenate([[0], np.cumsum(sizes, dtype=int)])
        self.shape = int(self.starts[-1]), len(self.names)
        if 0 in self.shape:
            raise ValueError(f"{path}: has {self.shape[0]} rows and {self.shape[1]} columns.")

    def read(self, block: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Rows of a row group, and their targets."""
        import pyarrow.parquet as pq

        path, group = self._groups[block]
        names = self.names or []
        wanted = [*names, *([self.target] if self.target else [])]
        with pq.ParquetFile(path) as file:
            table = file.read_row_group(group, columns=wanted)
        rows = np.empty((table.num_rows, len(names)), self.dtype)
        for place, name in enumerate(names):
            # A missing entry becomes NaN, which is reported with its row and column.
            rows[:, place] = table.column(name).to_numpy()
        return rows, None if self.target is None else table.column(self.target).to_numpy()


def _files(path: Any) -> list[Path]:
    given = [Path(path)] if isinstance(path, str | os.PathLike) else [Path(one) for one in path]
    files = [
        file for one in given for file in (sorted(one.glob("*.parquet")) if one.is_dir() else [one])
    ]
    if not files:
        raise FileNotFoundError(f"{path}: there is no .parquet file.")
    return files


def _check_numbers(schema: Any, names: Sequence[str]) -> list[Any]:
    """Types of the columns, which must be those of numbers."""
    import pyarrow.types as kinds

    found = []
    for name in names:
        if name not in schema.names:
            raise ValueError(f"column {name!r} is missing from a file.")
        kind = schema.field(name).type
        numeric = kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)
        if not numeric:
            raise ValueError(f"column {name!r} holds {kind}: turn it into numbers first.")
        found.append(kind.to_pandas_dtype())
    return found
