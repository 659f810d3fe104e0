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

    A row group is the smallest part that can be read, so memory is at least that of one: write
    files with row groups of some 10,000 rows (``row_group_size`` of most writers). One file is open
    at a time, however many there are.

    Parameters
    ----------
    path
        A file, a folder, or a list of files; all with the same columns. Folders inside a folder are
        read, too, and names such as ``year=2024`` are a column of their files (hive partitions).
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
        self._data = _dataset(path)
        schema = self._data.schema
        if target is not None and target not in schema.names:
            raise ValueError(f"target={target!r}: the columns are {', '.join(schema.names)}.")
        self.target = target
        usual = [name for name in schema.names if not UNNAMED_INDEX.fullmatch(name)]
        self.names: list[str] | None = [name for name in columns or usual if name != target]
        self._groups: list[tuple[Any, int]] = []
        sizes, self.dtype = [], np.dtype(np.float32)
        for fragment in self._data.get_fragments():
            kinds = _check_columns(fragment, schema, self.names, target)
            self.dtype = np.result_type(self.dtype, *kinds)
            for group in fragment.row_groups:
                if group.num_rows:
                    self._groups.append((fragment, group.id))
                    sizes.append(group.num_rows)
        self.starts = np.concatenate([[0], np.cumsum(sizes, dtype=int)])
        self.shape = int(self.starts[-1]), len(self.names)
        if 0 in self.shape:
            raise ValueError(f"{path}: has {self.shape[0]} rows and {self.shape[1]} columns.")

    def read(self, block: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Rows of a row group, and their targets."""
        fragment, group = self._groups[block]
        names = self.names or []
        wanted = [*names, *([self.target] if self.target else [])]
        # Types are those of the file: whole numbers in the first must not round those of others.
        inside = fragment.physical_schema
        schema = inside
        for field in self._data.schema:
            schema = schema if field.name in inside.names else schema.append(field)
        table = fragment.subset(row_group_ids=[group]).to_table(schema=schema, columns=wanted)
        rows = np.empty((table.num_rows, len(names)), self.dtype)
        for place, name in enumerate(names):
            # A missing entry becomes NaN, which is reported with its row and column.
            rows[:, place] = table.column(name).to_numpy()
        return rows, None if self.target is None else table.column(self.target).to_numpy()


def _dataset(path: Any) -> Any:
    import pyarrow.dataset

    given = [Path(path)] if isinstance(path, str | os.PathLike) else [Path(one) for one in path]
    files = [
        file
        for one in given
        for file in (sorted(one.rglob("*.parquet")) if one.is_dir() else [one])
    ]
    if not files:
        raise FileNotFoundError(f"{path}: there is no .parquet file.")
    root = str(given[0]) if len(given) == 1 and given[0].is_dir() else None
    return pyarrow.dataset.dataset(
        [str(file) for file in files],
        format="parquet",
        partitioning="hive",
        **({} if root is None else {"partition_base_dir": root}),
    )


def _check_columns(
    fragment: Any, schema: Any, names: Sequence[str], target: str | None
) -> list[Any]:
    """Types of the columns to use; a file, with those of its partition, has all, as numbers."""
    import pyarrow.types as kinds
    from pyarrow.dataset import get_partition_keys

    inside = fragment.physical_schema
    present = {*inside.names, *get_partition_keys(fragment.partition_expression)}
    for name in (*names, *([target] if target else [])):
        if name not in present:
            raise ValueError(f"column {name!r} is missing from {fragment.path}.")
    found = []
    for name in names:
        kind = (inside if name in inside.names else schema).field(name).type
        numeric = kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)
        if not numeric:
            raise ValueError(f"column {name!r} holds {kind}: turn it into numbers first.")
        found.append(kind.to_pandas_dtype())
    return found
