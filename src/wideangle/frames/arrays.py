"""Tables in NumPy archives and LIBSVM files."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from wideangle.frames.encoding import Reading
from wideangle.frames.table import Table, TableError, count, some
from wideangle.frames.text import open_bytes, peek

_ROWS = ("X", "x")
_LABELS = ("y", "Y", "labels", "target")
_NAMES = ("columns", "feature_names", "names", "vocab")
_CSR_PARTS = ("data", "indices", "indptr", "shape")
_MOST_COLUMNS = 2**24
"""Each has a name; a few bytes of a file can claim any number of them."""
_SVM_LINE = re.compile(r"[-+]?[\d.eE+-]+(\s+qid:\d+)?(\s+\d+:[-+]?[\w.+-]+)*\s*(#.*)?")


def read_npz(path: Path, reading: Reading) -> Table:
    """Read an archive with rows ``X`` and labels ``y``, or the parts of a CSR matrix.

    Names of columns may be in ``columns``, ``feature_names``, ``names`` or ``vocab``. The archives
    of ``scipy.sparse.save_npz`` are such parts.
    """
    try:
        # Opened here: NumPy leaves a file that is no archive open.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            keys = list(archive.files)
            wanted = {*_ROWS, *_LABELS, *_NAMES, *_CSR_PARTS, "format"}
            arrays = {key: archive[key] for key in keys if key in wanted}
    except MemoryError as error:
        raise TableError(f"{path} holds more numbers than fit into memory ({error}).") from error
    except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        what = (
            "holds Python objects, which are not read" if "pickle" in str(error) else "is damaged"
        )
        raise TableError(f"{path} is not a NumPy archive of plain arrays, or it {what}.") from error
    rows: Any = next((arrays[key] for key in _ROWS if key in arrays), None)
    rows = _sparse(arrays, path) if rows is None else rows
    if rows is None:
        raise TableError(
            f"{path} has no array X, nor the parts of a sparse matrix ({', '.join(_CSR_PARTS)}); "
            f"it has {some(keys)}."
        )
    n_rows, n_columns = _shape(path, rows)
    names = _array_names(arrays, path, n_columns)
    label_name = next((key for key in _LABELS if key in arrays), None)
    labels = None if label_name is None else arrays[label_name]
    if labels is not None and labels.shape != (n_rows,):
        raise TableError(
            f"{path}: {label_name} has shape {labels.shape}, and one label for each of {n_rows} "
            "rows is needed."
        )
    if sp.issparse(rows):
        return _sparse_table(path, rows, names, labels, label_name, reading)
    import pandas as pd

    frame = pd.DataFrame(rows, columns=list(names))
    if label_name in names:
        raise TableError(f"{path}: {label_name!r} is the name of the labels and of a column.")
    if label_name is not None:
        frame[label_name] = labels
    return Table(path, frame, label_name=label_name, uniform=True, reading=reading)


def _sparse(arrays: dict[str, np.ndarray], path: Path) -> Any:
    """The sparse matrix of an archive as CSR, or None if there is none."""
    try:
        if "format" in arrays and str(arrays["format"].item()) not in ("csr", "b'csr'"):
            other: Any = sp.load_npz(path)
            if hasattr(other, "check_format"):
                other.check_format()  # or SciPy reads memory that is not its own
            return sp.csr_array(other)
        if not all(key in arrays for key in _CSR_PARTS):
            return None
        shape = tuple(int(n) for n in arrays["shape"])
        parts = arrays["data"], arrays["indices"].astype(np.int64), arrays["indptr"]
        matrix: Any = sp.csr_array(parts, shape=shape)
        matrix.check_format()
    except (ValueError, KeyError, TypeError) as error:
        raise TableError(f"{path}: its sparse matrix does not fit together ({error}).") from error
    return matrix


def _shape(path: Path, rows: Any) -> tuple[int, int]:
    if rows.ndim != 2 or 0 in rows.shape:  # noqa: PLR2004
        raise TableError(f"{path}: X has shape {tuple(rows.shape)}, and rows by columns is needed.")
    if rows.dtype.kind not in "biuf":
        raise TableError(f"{path}: X holds {rows.dtype} and not numbers.")
    _check_columns(path, rows.shape[1])
    return rows.shape


def _check_columns(path: Path, n_columns: int) -> None:
    if n_columns > _MOST_COLUMNS:
        raise TableError(f"{path} has {n_columns:,} columns; at most {_MOST_COLUMNS:,} are read.")


def _array_names(arrays: dict[str, np.ndarray], path: Path, n_columns: int) -> tuple[str, ...]:
    for key in _NAMES:
        if key in arrays and arrays[key].shape == (n_columns,):
            names = tuple(str(name) for name in arrays[key])
            if len(set(names)) < n_columns:
                raise TableError(f"{path}: {key} holds a name twice.")
            return names
    return tuple(f"x{i + 1}" for i in range(n_columns))


def _sparse_table(
    path: Path, matrix: Any, names: tuple[str, ...], labels: Any, name: str | None, reading: Reading
) -> Table:
    floats: Any = sp.csr_array(matrix).astype(np.float64)
    floats.sum_duplicates()
    return Table(path, None, floats, names, labels, name, uniform=True, reading=reading)


def looks_like_svm(path: Path) -> bool:
    """Whether the first lines of a text are a label and pairs ``column:value``."""
    lines = [line for line in peek(path).splitlines()[:20] if line.strip()]
    pairs = any(":" in line for line in lines)
    return pairs and all(_SVM_LINE.fullmatch(line.strip()) for line in lines)


def read_svm(path: Path, reading: Reading, n_columns: int | None) -> Table:
    """Read a LIBSVM file.

    Columns are counted from 0 or from 1; from 1 unless a file to train on has a column 0. A file
    to predict for, ``n_columns`` given, may lack the last columns.
    """
    from sklearn.datasets import load_svmlight_file

    if not looks_like_svm(path):
        raise TableError(f"{path} is not a LIBSVM file: lines of `label column:value ...`.")
    try:
        with open_bytes(path) as file:
            loaded: Any = load_svmlight_file(file, zero_based=True)
    except (ValueError, EOFError, OverflowError) as error:
        raise TableError(f"{path} is not a LIBSVM file ({error}).") from error
    matrix: Any = sp.csr_array(loaded[0])
    _check_columns(path, matrix.shape[1])
    first = reading.first_index
    if n_columns is None:
        first = 0 if np.any(matrix.indices == 0) else 1
    elif first == 1 and np.any(matrix.indices == 0):
        raise TableError(f"{path} counts columns from 0, and the file trained on from 1.")
    matrix = sp.csr_array(matrix[:, first:])
    found = int(matrix.shape[1])
    if n_columns is None:
        n_columns = found
    elif found > n_columns:
        raise TableError(
            f"{path} has {count(found, 'column')} and the file trained on had {n_columns}."
        )
    if n_columns == 0:
        raise TableError(f"{path} has labels and no columns.")
    matrix.resize(matrix.shape[0], n_columns)
    names = tuple(f"x{i + first}" for i in range(n_columns))
    used = Reading(reading.header, reading.missing, first)
    return _sparse_table(path, matrix, names, loaded[1], "label", used)
