"""Rows that occur several times, as one row that weighs as much as all of them.

A fit then depends on what the data say and not on how they are written down: a weight of three and
three equal rows give the same arrays, and so do rows in any order. Fits are equal to the last bit,
which sums over rows in single precision could not promise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from wideangle.mixture_of_experts.data import Data

HASHED = 2**16
"""Entries that are hashed at a time: a cache holds them."""
ODD, TURN, SEED = np.uint64(0x9E3779B97F4A7C15), np.uint64(32), 20_261_116
"""An odd multiplier, half the width of a number, and the seed of the multipliers of columns."""


def merged(data: Data) -> Data:
    """Equal rows with equal targets become one; the others change their places.

    Rows are sorted by a hash of all their numbers, so neighbours have nothing in common: every
    n-th of them is a random sample.
    """
    codes = _codes(data.rows, np.asarray(data.targets, np.float64))
    # By weight where codes are equal: then their sum is the same to the last bit, too.
    order = np.lexsort((data.weights, codes))
    first = np.append(True, codes[order[1:]] != codes[order[:-1]])
    maybe = np.flatnonzero(~first)
    first[maybe] = ~_equal(data, order[maybe - 1], order[maybe])
    starts = np.flatnonzero(first)
    kept = order[starts]
    return Data(data.rows[kept], data.targets[kept], np.add.reduceat(data.weights[order], starts))


def _equal(data: Data, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Whether pairs of rows are the same, targets included."""
    if sp.issparse(data.rows):
        same = np.diff((data.rows[one] != data.rows[other]).tocsr().indptr) == 0
    else:
        same = np.all(data.rows[one] == data.rows[other], axis=1)
    return same & (data.targets[one] == data.targets[other])


def _codes(rows: Any, targets: np.ndarray) -> np.ndarray:
    """A number for each row, (N,); of entries that are 0 it does not depend, stored or not."""
    n_rows, p = rows.shape
    factors = np.random.default_rng(SEED).integers(0, 2**63, p + 1, np.uint64) * 2 + 1
    codes = _mixed(targets) * factors[-1]
    if sp.issparse(rows):
        parts = _mixed(np.asarray(rows.data, np.float64)) * factors[rows.indices]
        ends = np.append(np.uint64(0), np.cumsum(parts))[rows.indptr]
        return codes + ends[1:] - ends[:-1]
    size = max(HASHED // max(p, 1), 1)
    for first in range(0, n_rows, size):
        part = _mixed(np.asarray(rows[first : first + size], np.float64)) * factors[:-1]
        codes[first : first + size] += part.sum(axis=1, dtype=np.uint64)
    return codes


def _mixed(values: np.ndarray) -> np.ndarray:
    """The bits of numbers, spread over all places; those of 0 and -0 are 0."""
    bits = (values + 0.0).view(np.uint64) * ODD
    return (bits ^ (bits >> TURN)) * ODD
