"""Rows of a Dask DataFrame or Array: its partitions are the blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class DaskRows:
    """Rows of a Dask collection; a block is a partition (extra ``dask``).

    With a ``distributed.Client``, a partition is computed on a worker when the fit needs it, and is
    sent to this process; otherwise it is computed here. Partitions of a lost worker are computed
    again on another one. Every pass of a fit computes all
    partitions again: ``persist()`` a collection that takes long to compute, where there is room.

    Parameters
    ----------
    X
        A DataFrame, or an Array of two axes.
    target
        Of a DataFrame the name of the column of targets; of an Array another one, of one axis, cut
        in the same way; None to predict.
    columns
        Of a DataFrame, names of the columns to use, all of them numbers; by default all but the
        target.
    """

    dtype: np.dtype
    """Single precision where that holds every column, else double."""

    def __init__(self, X: Any, target: Any = None, columns: Sequence[str] | None = None) -> None:
        self.names: list[str] | None = None
        if hasattr(X, "npartitions") and hasattr(X, "columns"):
            kinds = self._open_table(X, target, columns)
        else:
            kinds = self._open_array(X, target)
            if columns is not None:
                raise ValueError(f"columns={columns!r}: an Array has no names; take a part of it.")
        wrong = [str(kind) for kind in kinds if getattr(kind, "kind", "O") not in "fiub"]
        if wrong:
            raise ValueError(f"X: has columns of {', '.join(wrong)}; must be numbers.")
        self.dtype = np.result_type(np.float32, *kinds)
        if 0 in self.shape:
            raise ValueError(f"X: has {self.shape[0]} rows and {self.shape[1]} columns.")

    def _open_table(self, X: Any, target: Any, columns: Sequence[str] | None) -> list[Any]:
        known = list(X.columns)
        if target is not None and target not in known:
            raise ValueError(f"target={target!r}: the columns are {', '.join(map(str, known))}.")
        names = [name for name in columns or known if name != target]
        if missing := [name for name in names if name not in known]:
            raise ValueError(f"columns: {missing} are missing; there are {known}.")
        self.names = [str(name) for name in names]
        kinds = [getattr(kind, "numpy_dtype", kind) for kind in X[names].dtypes]
        self._targets = None if target is None else X[target].to_delayed()
        self._rows = X[names].to_delayed()
        self._keep(X.map_partitions(len).compute(), len(names))
        return kinds

    def _open_array(self, X: Any, target: Any) -> list[Any]:
        if not hasattr(X, "chunks") or X.ndim != 2:  # noqa: PLR2004
            raise ValueError("X: must be a Dask DataFrame, or a Dask Array of two axes.")
        X = X.rechunk({1: -1})
        if np.isnan(X.shape[0]):
            X = X.compute_chunk_sizes()
        self._rows, self._targets = X.to_delayed()[:, 0], None
        if target is not None:
            if np.isnan(target.shape[0]):
                target = target.compute_chunk_sizes()
            if target.shape != X.shape[:1]:
                raise ValueError(f"target: has shape {target.shape}, but X has {X.shape[0]} rows.")
            self._targets = target.rechunk({0: X.chunks[0]}).to_delayed()
        self._keep(X.chunks[0], X.shape[1])
        return [X.dtype]

    def _keep(self, sizes: Any, n_columns: int) -> None:
        """Partitions that hold rows, and where each begins."""
        sizes = np.asarray(sizes, int)
        self._places = np.flatnonzero(sizes)
        self.starts = np.concatenate([[0], np.cumsum(sizes[self._places])])
        self.shape = int(self.starts[-1]), n_columns

    def read(self, block: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Rows of a partition, and their targets."""
        from dask.base import compute

        place = self._places[block]
        wanted = [self._rows[place]]
        if self._targets is not None:
            wanted.append(self._targets[place])
        rows, *targets = compute(*wanted)
        if len(rows) != self.starts[block + 1] - self.starts[block]:
            raise ValueError(
                f"partition {place} has {len(rows)} rows now, and had "
                f"{self.starts[block + 1] - self.starts[block]} before: it must be the same each "
                "time it is made; persist() it, or write it to Parquet files."
            )
        return np.asarray(rows, self.dtype), np.asarray(targets[0]) if targets else None
