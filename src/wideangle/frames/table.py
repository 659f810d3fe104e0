"""A table as it was read: named columns, or one sparse matrix."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from wideangle.frames.encoding import Reading

SHOWN = 4
"""Names or words listed in a sentence before it counts the rest."""
LONGEST = 60
"""Letters of a word in a sentence."""


class TableError(ValueError):
    """A file or a column cannot be used; the message is one sentence for its owner."""


@dataclass(frozen=True)
class Table:
    """Rows of a file.

    Attributes
    ----------
    source
        The file, for messages.
    frame
        Named columns as a pandas DataFrame; None for a sparse matrix.
    matrix, matrix_columns
        Rows of a sparse file as CSR, and names for its columns; None and empty otherwise.
    labels
        Labels of the rows of a sparse file; None if it has none.
    label_name
        Name of the labels, where the file itself names them.
    uniform
        Columns are alike (pixels, words): none is dropped and all have one unit.
    reading
        How the file was read.
    notes
        What was noticed, in sentences.
    in_python
        Rows of a program and not of a file: options are named as parameters.
    """

    source: Path
    frame: Any = None
    matrix: Any = None
    matrix_columns: tuple[str, ...] = ()
    labels: np.ndarray | None = None
    label_name: str | None = None
    uniform: bool = False
    reading: Reading = field(default_factory=Reading)
    notes: tuple[str, ...] = ()
    in_python: bool = False

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.matrix.shape[0]) if self.frame is None else len(self.frame)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, the target among them where it is one."""
        return self.matrix_columns if self.frame is None else tuple(self.frame.columns)

    def take(self, rows: np.ndarray) -> Table:
        """Some of the rows."""
        labels = None if self.labels is None else self.labels[rows]
        if self.frame is None:
            return replace(self, matrix=self.matrix[rows], labels=labels)
        return replace(self, frame=self.frame.iloc[rows], labels=labels)

    def column(self, name: str) -> Any:
        """The values of a column; a sparse file has its labels only."""
        if self.frame is not None and name in self.frame.columns:
            return self.frame[name]
        if self.labels is not None and name == self.label_name:
            import pandas as pd

            return pd.Series(self.labels)
        raise TableError(f"{self.source} has no column {name!r}{self.suggest(name)}")

    def option(self, name: str, value: str = "") -> str:
        """An option as the user writes it: ``--ignore 'id'`` or ``ignore=['id']``."""
        if self.in_python:
            return f"{name}=[{value!r}]" if value else name
        return f"--{name} {value!r}" if value else f"--{name}"

    def suggest(self, name: str) -> str:
        """The end of a sentence about a wrong name: those most like it, or some that there are."""
        known = self.names if self.label_name is None else (*self.names, self.label_name)
        # Case first: 'Age' for 'age' is the usual slip and no near match to difflib.
        close = [one for one in known if one.lower() == name.lower()]
        close = close or get_close_matches(name, known, n=3)
        if close:
            return f"; did you mean {some(close, ' or ')}?"
        return f"; it has {some(known)}." if known else "."


def some(words: Iterable[Any], join: str = ", ") -> str:
    """The first few of some words, quoted, and how many more there are."""
    listed = [str(word) for word in words]
    shown = [
        repr(word if len(word) <= LONGEST else word[:LONGEST] + "...") for word in listed[:SHOWN]
    ]
    more = len(listed) - len(shown)
    return join.join(shown) + (f" and {more} more" if more else "")


def count(number: int, what: str) -> str:
    """A number and its noun: ``1 row``, ``2 rows``; a noun in -y changes its ending."""
    if number == 1:
        return f"1 {what}"
    return f"{number:,} {what[:-1]}ies" if what.endswith("y") else f"{number:,} {what}s"
