"""Sparse rows of a file of ``scipy.sparse.save_npz``, a block at a time."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from wideangle.streaming.sources import BLOCK_BYTES, ArrayFile, block_starts, opened

PARTS = ("data", "indices", "indptr")


class CsrRows:
    """Sparse rows, in a file or a CSR matrix, with targets (N,) in a ``.npy`` file or an array.

    Blocks are made dense when they are read, and columns are scaled without a shift, as in a fit of
    sparse rows in memory.

    Parameters
    ----------
    X
        Path of an archive that ``scipy.sparse.save_npz(path, X, compressed=False)`` has written, of
        a matrix in CSR format; or such a matrix. Compressed archives cannot be read in blocks.
    y
        Path of the targets, or an array; none are needed to predict.
    block_rows
        Rows read at once; by default a quarter of a MiB when dense.
    """

    names: list[str] | None = None
    sparse = True

    def __init__(self, X: Any, y: Any = None, *, block_rows: int | None = None) -> None:
        if isinstance(X, str | os.PathLike):
            self.shape, self._parts = _archive(Path(X))
        elif sp.issparse(X) and X.format == "csr":
            self.shape, self._parts = X.shape, {name: getattr(X, name) for name in PARTS}
        else:
            raise ValueError(f"X: must be a path or a SciPy CSR matrix, not {type(X).__name__}.")
        kind = self._parts["data"].dtype
        if kind.kind not in "fiub":
            raise ValueError(f"X: has dtype {kind}; must be numbers.")
        self.dtype = np.result_type(np.float32, kind)
        if 0 in self.shape:
            raise ValueError(f"X: has shape {self.shape}; there must be rows and columns.")
        if self._parts["indptr"].shape != (self.shape[0] + 1,):
            raise ValueError(f"X: its indptr does not belong to {self.shape[0]} rows.")
        self._targets = None if y is None else opened("y", y, 1)
        if self._targets is not None and self._targets.shape != (self.shape[0],):
            raise ValueError(f"y: has shape {self._targets.shape}, but X has {self.shape[0]} rows.")
        usual = max(1, BLOCK_BYTES // (self.shape[1] * self.dtype.itemsize))
        self.starts = block_starts(self.shape[0], usual if block_rows is None else block_rows)

    def read(self, block: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Rows of a block, dense, and their targets."""
        first, last = int(self.starts[block]), int(self.starts[block + 1])
        places = np.asarray(self._parts["indptr"][first : last + 1], np.int64)
        entries = slice(int(places[0]), int(places[-1]))
        data, indices = (self._parts[name][entries] for name in ("data", "indices"))
        whole = np.all(np.diff(places) >= 0) and len(data) == len(indices) == np.ptp(places)
        if not whole or np.any((indices < 0) | (indices >= self.shape[1])):
            raise ValueError(f"X: the entries of rows {first} to {last - 1} do not fit together.")
        shape = last - first, self.shape[1]
        rows = sp.csr_array((data, indices, places - places[0]), shape=shape).toarray()
        targets = None if self._targets is None else self._targets[first:last]
        return rows.astype(self.dtype, copy=False), targets


def _archive(path: Path) -> tuple[tuple[int, int], dict[str, ArrayFile]]:
    """Shape and parts of a matrix in an archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = {one.filename.removesuffix(".npy"): one for one in archive.infolist()}
            if missing := {*PARTS, "format", "shape"} - members.keys():
                raise ValueError(f"{path}: has no {', '.join(sorted(missing))} of a sparse matrix.")
            if any(members[name].compress_type != zipfile.ZIP_STORED for name in PARTS):
                raise ValueError(f"{path}: is compressed; save it with compressed=False.")
            offsets = {name: _offset(path, members[name]) for name in PARTS}
        with np.load(path, allow_pickle=False) as arrays:
            form, shape = arrays["format"].item(), arrays["shape"].tolist()
    except zipfile.BadZipFile as error:
        raise ValueError(f"{path}: is not an .npz file: {error}") from error
    if form not in (b"csr", "csr"):
        raise ValueError(f"{path}: holds a matrix in {form!r} format; save X.tocsr().")
    return (int(shape[0]), int(shape[1])), {
        name: ArrayFile(path, offset) for name, offset in offsets.items()
    }


def _offset(path: Path, member: zipfile.ZipInfo) -> int:
    """Where the bytes of a member begin that is not compressed."""
    with path.open("rb") as file:
        file.seek(member.header_offset + 26)  # lengths of the name and of further fields
        name, further = np.frombuffer(file.read(4), "<u2")
    return member.header_offset + 30 + int(name) + int(further)
