"""What a loader returns: rows, labels, the split of the paper, and where they come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from wideangle_lab.datasets.manifest import Entry

TRAIN_FRACTION = 0.7
"""The paper's share of training rows, if it has no fixed split."""

N_SPLITS = 5
"""The paper's number of random splits."""


class Split(NamedTuple):
    """Row numbers, each in increasing order."""

    train: np.ndarray
    test: np.ndarray


@dataclass(frozen=True, repr=False)
class Dataset:
    """A data set ready to be fitted, with everything needed to cite it."""

    name: str
    X: Any
    """Rows (N, D): a float32 array, or a SciPy CSR array."""
    y: np.ndarray | None
    """Classes 0, 1, ... of the rows; None if the paper uses none."""
    entry: Entry
    """Source, licence, citation, and how it differs from the paper's data."""
    class_names: tuple[str, ...] = ()
    feature_names: tuple[str, ...] = ()
    """Names of the columns; empty if unknown."""
    fixed_split: Split | None = None
    groups: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Subsets of rows of interest, as masks (N,): for RCV1 the nine subcategories."""
    extras: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Other facts of the file, aligned with the rows where their length is N."""

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"<Dataset {self.name}: {self.entry.label}, {rows:,} x {columns:,}>"

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        return self.X.shape

    @property
    def source(self) -> str:
        """Where the data come from."""
        return self.entry.source

    @property
    def licence(self) -> str:
        """Licence stated by the source."""
        return self.entry.licence

    @property
    def citation(self) -> str:
        """What to cite."""
        return self.entry.citation

    @property
    def protocol(self) -> str:
        """How the paper divides these rows, in words; :meth:`splits` does it."""
        if self.fixed_split is None:
            return f"{N_SPLITS} random splits, {TRAIN_FRACTION:.0%} of the rows for training"
        n_train, n_test = map(len, self.fixed_split)
        return f"one fixed split, {n_train:,} rows for training and {n_test:,} for testing"

    @property
    def stand_in(self) -> bool:
        """Whether this is a stand-in: other data of the same kind."""
        return self.entry.status == "stand-in"

    def split(self, seed: int = 0) -> Split:
        """The protocol of the paper: its fixed split, or 70 % drawn at random by a seed."""
        if self.fixed_split is not None:
            return self.fixed_split
        return random_split(self.shape[0], seed)

    def splits(self, n_splits: int = N_SPLITS) -> tuple[Split, ...]:
        """All splits of the protocol: the fixed one alone, or seeds 0, 1, ..."""
        seeds = range(1 if self.fixed_split is not None else n_splits)
        return tuple(self.split(seed) for seed in seeds)


def random_split(n_rows: int, seed: int, fraction: float = TRAIN_FRACTION) -> Split:
    """``fraction`` of ``n_rows`` for training, drawn at random; the same for the same ``seed``."""
    order = np.random.default_rng(seed).permutation(n_rows)
    n_train = round(fraction * n_rows)
    return Split(np.sort(order[:n_train]), np.sort(order[n_train:]))


def split_of(train: np.ndarray) -> Split:
    """The split of a mask."""
    return Split(np.flatnonzero(train), np.flatnonzero(~np.asarray(train, bool)))
