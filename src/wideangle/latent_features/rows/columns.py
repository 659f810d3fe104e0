"""Columns of assignments on the host: set aside, taken up again, and summed up.

The forms for the CPU of what ``latent_features/estimator.py`` and ``device_rows.py`` do on a
device: one pass over the rows each, and over the columns that are in use.
"""

from __future__ import annotations

import numba
import numpy as np

from wideangle.latent_features.rows.memory import FeatureRows
from wideangle.latent_features.state import Elsewhere, Features, FeatureStats

STEP, MANY_ENTRIES = 16, 500_000
"""Width of large arrays goes by steps; what is large."""


def width_for(n_live: int, room: int, n_rows: int) -> int:
    """Columns of arrays with a row for each row of the data: no wider than needed when large.

    Each width is a compilation.
    """
    if n_rows * room < MANY_ENTRIES:
        return room
    return min(room, -(-max(n_live, 1) // STEP) * STEP)


def set_aside(features: Features) -> Features:
    """See ``latent_features.set_aside``."""
    used = np.asarray(features.assignments)
    counts = counts_in(used, int(features.n_live))
    index = np.arange(used.shape[1], dtype=np.int32)
    return features._replace(assignments=Elsewhere(counts, index, len(used)))


def taken_up(features: Features, used: np.ndarray, width: int) -> Features:
    """See ``latent_features.taken_up``; with ``width`` columns."""
    assert isinstance(features.assignments, Elsewhere)
    found = np.zeros((len(used), width), np.uint8)
    take_columns(used, np.asarray(features.assignments.stored)[: int(features.n_live)], found)
    return features._replace(assignments=found)


def summarise(features: Features, rows: FeatureRows) -> FeatureStats:
    """Statistics of rows on the host, padded to the size of the arrays."""
    n_live, room = int(features.n_live), features.room
    dtype = features.weights.dtype
    used = np.ascontiguousarray(np.asarray(features.assignments)[:, :n_live])
    gram = np.zeros((room, room), dtype)
    cross = np.zeros((room, rows.dim), dtype)
    gram[:n_live, :n_live] = gram_of(used)
    cross[:n_live] = rows.cross(used)
    return FeatureStats(
        gram, cross, np.asarray(rows.energy, dtype), np.asarray(rows.n_rows * rows.dim, dtype)
    )


@numba.njit(cache=True, nogil=True)
def gram_of(used):
    """Z'Z from the few features of each row."""
    n_rows, width = used.shape
    total = np.zeros((width, width), np.int64)
    active = np.empty(width, np.int64)
    for n in range(n_rows):
        count = 0
        for k in range(width):
            active[count] = k
            count += used[n, k]
        for i in range(count):
            for j in range(count):
                total[active[i], active[j]] += 1
    return total


@numba.njit(cache=True, nogil=True)
def take_columns(used, stored, found):
    """Columns with the given numbers, in their order; -1 is a column of zeros."""
    for n in range(len(used)):
        for k in range(len(stored)):
            if stored[k] >= 0:
                found[n, k] = used[n, stored[k]]


@numba.njit(cache=True, nogil=True)
def counts_in(used, n_live):
    """Sums of the columns, of which those from ``n_live`` on are zero."""
    counts = np.zeros(used.shape[1], np.int32)
    for n in range(len(used)):
        for k in range(n_live):
            counts[k] += used[n, k]
    return counts
