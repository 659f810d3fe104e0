"""The column to predict: its classes and each row's, or numbers."""

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
    name = _name_of(table, name)
    labels = _labels(table, name)
    found = sorted(set(labels))
    if len(found) == 1:
        raise TableError(
            f"{table.source}: the target {name!r} is {found[0]!r} in every row; there is only "
            "one class."
        )
    if len(found) > min(_MOST_CLASSES, table.n_rows / 2):
        raise TableError(
            f"{table.source}: the target {name!r} has {len(found)} classes in {table.n_rows} rows; "
            "a classifier needs several rows of each. For a quantity there is `wideangle train "
            "regression`."
        )
    target = Target(name, tuple(found))
    return target, codes(target, labels)


def learn_quantity(table: Table, name: str | None) -> tuple[Target, np.ndarray]:
    """A target without classes, and the number of each row."""
    name = _name_of(table, name)
    values = _numbers(table, name)
    if np.ptp(values) == 0:
        raise TableError(
            f"{table.source}: the target {name!r} is {values[0]:g} in every row; there is nothing "
            "to predict."
        )
    return Target(name, ()), values


def _name_of(table: Table, name: str | None) -> str:
    """The target, known in every row."""
    name = name or table.label_name
    if name is None:
        raise TableError(
            f"{table.source}: name the column to predict: --target and one of "
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
    return name


def targets_of(table: Table, target: Target) -> np.ndarray | None:
    """Targets of another file, as a model takes them; None without, or not in every row.

    Classes that are none of those known are -1.
    """
    if target.name not in (*table.names, table.label_name):
        return None
    if is_missing(table.column(target.name)).any():
        return None
    try:
        if not target.classes:
            return _numbers(table, target.name)
        return codes(target, _labels(table, target.name))
    except TableError:
        return None


def _numbers(table: Table, name: str) -> np.ndarray:
    column = table.column(name)
    from pandas.api import types

    if content_of(column) != "number" or types.is_bool_dtype(column.dtype):
        raise TableError(
            f"{table.source}: the target {name!r} holds no numbers; for classes there is "
            "`wideangle train moe`."
        )
    return as_numbers(column)


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
            f"{values[np.argmax(broken)]:g}, and classes are words or whole numbers; for "
            "quantities there is `wideangle train regression`."
        )
    return [int(value) for value in values]
