"""What is read of rows on disk before chains begin: a check of all of them, and a sample."""

from __future__ import annotations

import numpy as np

from wideangle.sharding import ALONE, Share, of_all
from wideangle.streaming.sources import RowSource, chunks, neighbours

BLOCK_ROWS = 2**15
"""Rows handled at once."""
SAMPLE_ENTRIES, SAMPLE_ROWS = 2**21, (2000, 20_000)
"""The sample that chains begin on: number of entries, and bounds on the number of rows."""


def draw_sample(
    source: RowSource, seed: int, share: Share = ALONE
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of random rows, in order, and these rows; checks all rows while reading."""
    n_rows, dim = source.shape
    size = int(np.clip(SAMPLE_ENTRIES // dim, *SAMPLE_ROWS))
    if n_rows <= size:
        numbers = np.arange(n_rows)
    else:
        generator = np.random.default_rng([seed, 1])
        numbers = np.sort(generator.choice(n_rows, size, replace=False, shuffle=False))
    begin, own = neighbours(source, share)
    parts, wrong = [], -1
    for place, rows in chunks(own, BLOCK_ROWS):
        if not np.isfinite(rows).all():
            wrong = begin + place + int(np.argwhere(~np.isfinite(rows))[0, 0])
            break
        parts.append(rows[inside(numbers, begin + place, len(rows))])
    for row in of_all(wrong, share):  # one that ended alone would leave the others waiting
        if row >= 0:
            raise ValueError(f"X: row {row} holds NaN or infinity; a stream must be complete.")
    return numbers, np.concatenate(of_all(np.concatenate(parts), share))


class SlicedSource:
    """Rows of a source by slices, ``rows[first:last]``, requested in order."""

    def __init__(self, source: RowSource) -> None:
        self._source, self.shape = source, source.shape

    def __getitem__(self, part: slice) -> np.ndarray:
        start, stop, _ = part.indices(self.shape[0])
        starts = self._source.starts
        first = int(np.searchsorted(starts, start, side="right")) - 1
        last = int(np.searchsorted(starts, stop, side="left"))
        rows = np.concatenate([self._source.read(block)[0] for block in range(first, last)])
        return rows[start - starts[first] : stop - starts[first]]


def inside(numbers: np.ndarray, first: int, size: int) -> np.ndarray:
    """Those of the rising numbers that are in a range, counted from its beginning."""
    low, high = np.searchsorted(numbers, [first, first + size])
    return numbers[low:high] - first
