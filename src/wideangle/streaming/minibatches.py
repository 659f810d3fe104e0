r"""Minibatches of rows that stay on disk.

Reading single rows at random is slow, reading in the order of the file is biased. In between:
every pass takes the blocks of the source in a new random order, joins as many as the buffer holds
into a *window*, and deals the rows of a window out in random order. Batches are cut from that
stream. Every row is in exactly one batch of a pass, and counts m times there (m batches a pass),
so the mean over a pass of any sum over rows is *exactly* the sum over all rows, as with rows in
memory. What is lost is only that batches of one window share its blocks: where the file is sorted,
blocks should be small against the buffer.

Of several processes each reads blocks of its own, and fills its own part of every batch with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from wideangle.infer.ascent import Batches, batch_sizes
from wideangle.sharding import ALONE, Share
from wideangle.streaming.sources import RowSource, SomeBlocks
from wideangle.types import as_targets

Encode = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Rows and targets as read -> rows and targets as the model sees them, weights."""


class StreamedMinibatches(Batches):
    """As :class:`wideangle.infer.ascent.Minibatches`, for a source.

    Batch t depends on the seed and t only. Memory: one window, and the batches of one call.

    Parameters
    ----------
    encode, width
        What is done to rows on their way, and the number of columns after that.
    size
        Rows of a batch, at most.
    buffer_bytes
        Size of a window as read; one block at least.
    share
        Part of the reading that is that of this process; the rest of a batch is left empty.
    """

    def __init__(
        self,
        seed: int,
        source: RowSource,
        encode: Encode,
        width: int,
        size: int,
        *,
        dtype: Any = np.float32,
        buffer_bytes: int = 2**26,
        share: Share = ALONE,
    ) -> None:
        self.seed, self.source, self.encode, self.dtype = seed, source, encode, dtype
        total, columns = source.shape
        self.width = width
        self.per_pass, self.size, self.per_call = batch_sizes(total, width, size, dtype)
        self.buffer_rows = max(1, buffer_bytes // (columns * source.dtype.itemsize))
        self._first = 0
        if share.count > 1:
            blocks = np.arange(len(source.starts) - 1)
            parts = [SomeBlocks(source, blocks[i :: share.count]) for i in range(share.count)]
            largest = max(-(-part.shape[0] // self.per_pass) for part in parts)
            largest = -(-largest // share.devices) * share.devices
            self.source, self._first = parts[share.index], share.index * largest
            self.size = share.count * largest
        self._cuts = np.arange(self.per_pass + 1) * self.source.shape[0] // self.per_pass
        self._pass: tuple[int, list[np.ndarray], np.ndarray] = (-1, [], np.empty(0, int))
        self._window: tuple[Any, Any, Any] = (None, None, None)

    def _stack(self, first: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rows = np.zeros((count, self.size, self.width), self.dtype)
        targets: Any = None
        weights = np.zeros((count, self.size), self.dtype)
        for place in range(count):
            turn, batch = divmod(first + place, self.per_pass)
            filled = self._first
            for raw_rows, raw_targets in self._pieces(turn, *self._cuts[batch : batch + 2]):
                part = slice(filled, filled + len(raw_rows))
                rows[place, part], found, weight = self.encode(raw_rows, raw_targets)
                if targets is None:
                    targets = np.zeros((count, self.size), as_targets(found, self.dtype).dtype)
                targets[place, part] = found
                weights[place, part] = weight * self.per_pass
                filled = part.stop
        return rows, targets, weights

    def _pieces(self, turn: int, start: int, stop: int):
        """Places ``start`` to ``stop`` of the stream of a pass, from one window or several."""
        _, ends = self._plan(turn)
        for window in range(np.searchsorted(ends, start, side="right"), len(ends)):
            base = 0 if window == 0 else int(ends[window - 1])
            if base >= stop:
                return
            rows, targets = self._load(turn, window)
            part = slice(max(start - base, 0), min(stop, int(ends[window])) - base)
            yield rows[part], targets[part]

    def _plan(self, turn: int) -> tuple[list[np.ndarray], np.ndarray]:
        """Blocks of each window of a pass, and where in the stream each window ends."""
        if self._pass[0] != turn:
            sizes = np.diff(self.source.starts)
            order = np.random.default_rng([self.seed, turn]).permutation(len(sizes))
            ends = np.cumsum(sizes[order])
            windows, begin, base = [], 0, 0
            while begin < len(order):
                end = np.searchsorted(ends, base + self.buffer_rows, side="right")
                end = max(int(end), begin + 1)
                windows.append(order[begin:end])
                begin, base = end, int(ends[end - 1])
            last = np.cumsum([sizes[window].sum() for window in windows])
            self._pass = turn, windows, last
        return self._pass[1], self._pass[2]

    def _load(self, turn: int, window: int) -> tuple[np.ndarray, np.ndarray]:
        """The rows of a window, in random order."""
        if self._window[0] != (turn, window):
            self._window = (None, None, None)  # not two windows at a time
            # In the order of the file, which a disk likes; they are shuffled after.
            blocks = np.sort(self._plan(turn)[0][window])
            sizes = np.diff(self.source.starts)[blocks]
            generator = np.random.default_rng([self.seed, turn, window])
            to = generator.permutation(sizes.sum())
            rows = np.empty((len(to), self.source.shape[1]), self.source.dtype)
            targets: Any = None
            done = 0
            for block, size in zip(blocks, sizes, strict=True):
                block_rows, labels = self.source.read(int(block))
                assert labels is not None
                if targets is None:
                    targets = np.empty(len(to), labels.dtype)
                rows[to[done : done + size]] = block_rows
                targets[to[done : done + size]] = labels
                done += size
            self._window = (turn, window), rows, targets
        return self._window[1], self._window[2]
