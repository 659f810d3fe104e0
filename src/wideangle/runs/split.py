"""Hold rows out of training, the same share of every class."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Split(NamedTuple):
    """Indices of rows, ascending."""

    train: np.ndarray
    test: np.ndarray


def split_rows(n_rows: int, share: float, seed: int, classes: np.ndarray | None = None) -> Split:
    """Hold out about ``share`` of the rows.

    With ``classes`` the share is that of every class, rounded, and at least one row of each stays
    to learn from; so a class of one row is never held out.
    """
    rng = np.random.default_rng((seed, 0x5711))
    groups = np.zeros(n_rows, np.int64) if classes is None else classes
    chosen = []
    for group in np.unique(groups):
        rows = rng.permutation(np.flatnonzero(groups == group))
        n_held = min(int(np.floor(share * len(rows) + rng.random())), len(rows) - 1)
        if classes is None:
            n_held = min(round(share * len(rows)), len(rows) - 1)
        chosen.append(rows[:n_held])
    test = np.sort(np.concatenate(chosen))
    return Split(np.setdiff1d(np.arange(n_rows), test), test)
