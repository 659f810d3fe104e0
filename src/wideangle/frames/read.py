"""Read a user's file, whatever its format."""

from __future__ import annotations

from pathlib import Path

from wideangle.frames.arrays import looks_like_svm, read_npz, read_svm
from wideangle.frames.encoding import Reading
from wideangle.frames.table import Table, TableError
from wideangle.frames.text import OPENERS, read_text

_SVM_SUFFIXES = (".svm", ".libsvm", ".svmlight")
_TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".data", ".dat", "")
FORMATS = "CSV, TSV, Parquet (.parquet), NumPy (.npz) and LIBSVM (.libsvm, .svm) files are read"


def read_table(
    path: str | Path, reading: Reading | None = None, *, like: int | None = None
) -> Table:
    """Read a table; the ending of its name gives the format.

    Parameters
    ----------
    path
        The file. Text may be packed (``.gz``, ``.bz2``, ``.xz``).
    reading
        How to read text; that of the training file when predicting.
    like
        Number of columns of the training file, which a sparse text file does not contain.
    """
    path, reading = Path(path), reading or Reading()
    if not path.exists():
        raise TableError(f"{path} does not exist.")
    if path.is_dir():
        raise TableError(f"{path} is a folder and not a table; {FORMATS}.")
    if not path.is_file():
        raise TableError(f"{path} is a pipe or a device: save it to a file first.")
    if path.stat().st_size == 0:
        raise TableError(f"{path} is empty.")
    suffixes = [suffix.lower() for suffix in path.suffixes]
    suffix = suffixes[-1] if suffixes else ""
    if suffix in OPENERS:
        suffix = suffixes[-2] if len(suffixes) > 1 else ""
    if suffix in (".parquet", ".pq"):
        return _read_parquet(path, reading)
    if suffix == ".npz":
        return read_npz(path, reading)
    if suffix in _SVM_SUFFIXES:
        return read_svm(path, reading, like)
    if suffix not in _TEXT_SUFFIXES and not suffix[1:].isdigit():
        raise TableError(f"{path} is of a type that wideangle cannot read; {FORMATS}.")
    if suffix not in (".csv", ".tsv") and looks_like_svm(path):
        return read_svm(path, reading, like)
    return read_text(path, reading)


def _read_parquet(path: Path, reading: Reading) -> Table:
    import pandas as pd
    import pyarrow.lib
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
        names = table.column_names
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise TableError(f"{path}: the name {min(twice)!r} is that of several columns.")
        frame = table.to_pandas()
    except (pyarrow.lib.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise TableError(f"{path} is not a Parquet file, or it is damaged.") from error
    notes = []
    if not isinstance(frame.index, pd.RangeIndex):
        # A named index is a column that its owner chose. One without a name only numbers the rows:
        # as a feature it would tell a model how the table was sorted.
        unnamed = [level for level, name in enumerate(frame.index.names) if name is None]
        if unnamed:
            notes.append("left out the row index that pandas saved: it has no name")
        named = len(unnamed) < frame.index.nlevels
        frame = frame.reset_index(level=unnamed, drop=True) if named else frame
        frame = frame.reset_index(drop=not named)
    frame.columns = [str(name) for name in frame.columns]
    if frame.empty:
        raise TableError(f"{path} has no rows or no columns.")
    return Table(path, frame.reset_index(drop=True), reading=reading, notes=tuple(notes))


def is_array_file(path: Path) -> bool:
    """Whether the name of a file is that of arrays, whose columns have one unit."""
    suffixes = {suffix.lower() for suffix in path.suffixes[-2:]}
    return not suffixes.isdisjoint({".npz", *_SVM_SUFFIXES})
