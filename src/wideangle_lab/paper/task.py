"""The rows that a cell trains on and is tested on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wideangle_lab.datasets import Dataset, Split, random_split
from wideangle_lab.paper.cells import Cell
from wideangle_lab.paper.made import data_set


class Task(NamedTuple):
    """Training and test part."""

    X_train: Any
    y_train: np.ndarray
    X_test: Any
    y_test: np.ndarray
    groups: dict[str, np.ndarray]
    """Masks of test rows of interest."""


def split_of(data: Dataset, seed: int) -> Split:
    """Split 0 is the data set's own, if it has one; others draw as many rows at random."""
    if data.fixed_split is None or seed == 0:
        return data.split(seed)
    return random_split(data.shape[0], seed, len(data.fixed_split.train) / data.shape[0])


def task_of(cell: Cell) -> Task:
    """Load, split, and draw the requested rows: the same for all methods of a seed."""
    data = data_set(cell.data)
    if data.y is None:
        raise ValueError(f"{cell.data} has no classes: choose another data set.")
    train, test = split_of(data, cell.seed)
    groups = {name: mask[test] for name, mask in data.groups.items()}
    most = cell.effort.max_rows
    train = _some(train, most or len(train), cell.seed)
    kept = _some(np.arange(len(test)), most or len(test), cell.seed)
    return Task(
        data.X[train],
        data.y[train],
        data.X[test[kept]],
        data.y[test[kept]],
        {name: mask[kept] for name, mask in groups.items()},
    )


def _some(rows: np.ndarray, n: int, seed: int) -> np.ndarray:
    """``n`` of the rows at random (all of them in their order if there are no more)."""
    if n >= len(rows):
        return rows
    chosen = np.random.default_rng([seed, n]).choice(len(rows), n, replace=False)
    return rows[np.sort(chosen)]
