"""The column to predict: its classes, and each row's."""

from __future__ import annotations

import numpy as np

from wideangle.frames.columns import as_numbers, as_words, content_of, is_missing
from wideangle.frames.encoding import Label, Target
from wideangle.frames.table import Table, TableError, count, some

_MOST_CLASSES = 200
LEAST_ROWS = 4
"""Fewer rows cannot be split into rows to learn from and rows to check with."""


def learn_target(table: Table, name: str | None) -> tuple[Target, np.ndarray]:
    """Classes of the target and the class of each row, as an index into them."""
    name = name or table.label_name
    if name is None:
        raise TableError(
            f"{table.source}: which column is to be predicted? Say --target and one of "
            f"{some(table.names[::-1])}."
        )
    if table.n_rows < LEAST_ROWS:
        raise TableError(f"{table.source} has {count(table.n_rows, 'row')}: too few to learn from.")
    column = table.column(name)
    missing = is_missing(column)
    if missing.any():
        raise TableError(
            f"{table.source}: the target {name!r} is missing in {count(int(missing.sum()), 'row')} "
            f"(the first is row {int(np.argmax(missing)) + 1}); remove or complete them."
        )
    labels = _labels(table, name)
    found = sorted(set(labels))
    if len(found) == 1:
        raise TableError(
            f"{table.source}: the target {name!r} is {found[0]!r} in every row; there is nothing "
            "to tell apart."
        )
    if len(found) > min(_MOST_CLASSES, table.n_rows / 2):
        raise TableError(
            f"{table.source}: the target {name!r} has {len(found)} classes in {table.n_rows} rows; "
            "a classifier needs several rows of each."
        )
    target = Target(name, tuple(found))
    return target, codes(target, labels)


def labels_of(table: Table, target: Target) -> list[Label] | None:
    """Label of each row of another file, or None if it has no such column, or not everywhere."""
    if target.name not in (*table.names, table.label_name):
        return None
    if is_missing(table.column(target.name)).any():
        return None
    try:
        return _labels(table, target.name)
    except TableError:
        return None


def codes(target: Target, labels: list[Label]) -> np.ndarray:
    """Labels as indices of classes; -1 for a label that is none of them."""
    place = {label: i for i, label in enumerate(target.classes)}
    return np.array([place.get(label, -1) for label in labels], dtype=np.int64)


def _labels(table: Table, name: str) -> list[Label]:
    column = table.column(name)
    content = content_of(column)
    if content in ("date", "object"):
        raise TableError(f"{table.source}: the target {name!r} holds neither words nor numbers.")
    from pandas.api import types

    if content == "word" or types.is_bool_dtype(column.dtype):
        return [str(word) for word in as_words(column)]
    values = as_numbers(column)
    broken = values != np.round(values)
    if broken.any():
        raise TableError(
            f"{table.source}: the target {name!r} holds quantities such as "
            f"{values[np.argmax(broken)]:g}; only classes (words or whole numbers) can be "
            "predicted."
        )
    return [int(value) for value in values]
