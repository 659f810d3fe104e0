"""Turn the rows of a table into the numbers a model was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from wideangle.frames.columns import as_numbers, as_words, content_of, is_missing
from wideangle.frames.encoding import MISSING, OTHER, Category, Encoding, Number
from wideangle.frames.table import Table, TableError, count, some


@dataclass(frozen=True)
class Encoded:
    """Rows as a model takes them, and notes about them."""

    X: Any
    """(n, p), dense with NaN where a value is left to the model, or CSR."""
    notes: list[str]


def encode(table: Table, encoding: Encoding) -> Encoded:
    """Encode rows with at least the columns that were trained on, in any order.

    A word that was never seen counts as one of the rare ones where the column has such, and as
    missing where it has none; the notes report it.

    Raises
    ------
    TableError
        A column is missing, or holds words instead of numbers or numbers instead of words.
    """
    if encoding.sources is None:
        return Encoded(_matrix(table, encoding), [])
    if table.frame is None:
        raise TableError(
            f"{table.source} is a sparse matrix without names of columns, and {_wanted(encoding)}."
        )
    _check_names(table, encoding)
    notes: list[str] = []
    blocks = [
        _numbers(table, source, encoding, notes)
        if isinstance(source, Number)
        else _words(table, source, notes)
        for source in encoding.sources
    ]
    if encoding.sparse:
        X: Any = sp.csr_array(sp.hstack([sp.csr_array(block) for block in blocks], format="csr"))
        if np.isnan(X.data).any():
            raise TableError(
                f"{table.source}: sparse rows cannot have missing values; use --dense."
            )
        return Encoded(X, notes)
    return Encoded(np.concatenate(blocks, axis=1), notes)


def _matrix(table: Table, encoding: Encoding) -> Any:
    n_columns = len(encoding.matrix_columns)
    if table.frame is None:
        X: Any = table.matrix
    elif set(encoding.matrix_columns) <= set(table.names):
        X = sp.csr_array(table.frame[list(encoding.matrix_columns)].to_numpy(np.float64))
    else:
        raise TableError(f"{table.source} has named columns, and the model had a sparse matrix.")
    if X.shape[1] != n_columns:
        raise TableError(
            f"{table.source} has {count(X.shape[1], 'column')} and the model was trained on "
            f"{n_columns}."
        )
    if not np.all(np.isfinite(X.data)):
        raise TableError(f"{table.source}: its sparse matrix holds values that are not finite.")
    return X if encoding.sparse else X.toarray()


def _check_names(table: Table, encoding: Encoding) -> None:
    assert encoding.sources is not None
    absent = [one.name for one in encoding.sources if one.name not in table.frame.columns]
    if not absent:
        return
    if table.uniform and all(name.startswith("x") for name in absent):
        raise TableError(f"{table.source} has {len(table.names)} columns, and {_wanted(encoding)}.")
    what = "the column" if len(absent) == 1 else "the columns"
    end = table.suggest(absent[0]) if len(absent) == 1 else "."
    raise TableError(f"{table.source} lacks {what} {some(absent)}{end}")


def _wanted(encoding: Encoding) -> str:
    assert encoding.sources is not None
    names = [source.name for source in encoding.sources]
    return f"the model was trained on {count(len(names), 'column')}: {some(names)}"


def _numbers(table: Table, source: Number, encoding: Encoding, notes: list[str]) -> np.ndarray:
    column = table.frame[source.name]
    values = as_numbers(column)
    missing = np.isnan(values)
    wrong = missing & ~is_missing(column)
    if source.date != (content_of(column) == "date"):
        wrong = ~is_missing(column)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise TableError(
            f"{table.source}: column {source.name!r} holds {str(column.iloc[row])!r} in row "
            f"{int(column.index[row]) + 1}, and the model was trained on "
            f"{'dates' if source.date else 'numbers'} there."
        )
    if source.fill is None:
        return values[:, None] / source.scale
    if missing.any() and not source.flagged:
        notes.append(
            f"{source.name!r} is missing in {count(int(missing.sum()), 'row')} but never was in "
            f"training: replaced by the median, {source.fill:g}"
        )
    parts = [np.where(missing, source.fill, values) / source.scale]
    if source.flagged:
        parts.append(missing.astype(np.float64))
    return np.stack(parts, axis=1)


def _words(table: Table, source: Category, notes: list[str]) -> np.ndarray:
    column = table.frame[source.name]
    words = as_words(column)
    place = {value: i for i, value in enumerate(source.values)}
    other = place.get(OTHER, -1)
    if OTHER in place:
        place |= dict.fromkeys(source.rare, other)
    missing = np.array([word is None for word in words], dtype=bool)
    unknown = ~missing & np.array([word not in place for word in words], dtype=bool)
    new = sorted(set(words[unknown]))
    if new and content_of(column) == "number" and not any(map(_is_number, source.values)):
        raise TableError(
            f"{table.source}: column {source.name!r} holds numbers ({some(new)}), and the model "
            f"was trained on words there ({some(source.values)})."
        )
    if new:
        taken_as = "rare" if OTHER in place else "missing"
        n_new = count(int(unknown.sum()), "row")
        notes.append(
            f"{source.name!r} has categories in {n_new} that were not in the training data, "
            f"treated as {taken_as}: {some(new)}"
        )
    absent = missing | unknown & (OTHER not in place)
    where = np.array([place.get(word, other) for word in words], dtype=np.int64)
    where[absent] = place.get(MISSING, -1)
    result = np.zeros((len(words), len(source.values)))
    rows = np.flatnonzero(where >= 0)
    result[rows, where[rows]] = 1.0
    if MISSING not in place:
        if source.keep:
            result[absent] = np.nan
        elif missing.any():
            notes.append(
                f"{source.name!r} is missing in {count(int(missing.sum()), 'row')} but never was "
                "in training: treated as none of the known categories"
            )
    return result


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
