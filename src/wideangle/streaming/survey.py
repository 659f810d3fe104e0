"""All that is to be known about a source before a fit, in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wideangle.progress import Progress
from wideangle.sharding import ALONE, Share, exchanged
from wideangle.streaming.sources import RowSource

TOO_LARGE = 1e150
"""Squares of larger entries overflow."""


@dataclass(frozen=True)
class Moments:
    """Sums over rows, class by class, of columns shifted by ``shift``."""

    shift: np.ndarray
    """(p,), near the mean: the variance is then a difference of numbers of its own size."""
    counts: np.ndarray
    """Rows of each class, (C,)."""
    sums: np.ndarray
    """(C, p)."""
    squares: np.ndarray
    """(C, p)."""
    binary: np.ndarray
    """Columns of 0 and 1 only, (p,)."""

    def weighted(self, class_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the columns when rows of class c count ``class_weights[c]``."""
        total = class_weights @ self.counts
        mean = class_weights @ self.sums / total
        variance = class_weights @ self.squares / total - mean**2
        return self.shift + mean, np.maximum(variance, 0.0)


@dataclass(frozen=True)
class Survey:
    """Classes, moments, and a random sample of the rows.

    Where the target is a quantity there is one class, and the last column of the moments is that
    of the target.
    """

    classes: np.ndarray
    moments: Moments
    rows: np.ndarray
    """Sampled without replacement, in the order of the file; all rows if there are few."""
    targets: np.ndarray
    """Their targets, as found in the file."""


def survey(
    source: RowSource,
    seed: int,
    n_sample: int,
    verbose: bool | None = None,
    *,
    quantity: bool = False,
    share: Share = ALONE,
) -> Survey:
    """Read every block once; memory is that of a block and of the sample.

    Of several processes each reads its own blocks, and all get the whole.

    Parameters
    ----------
    quantity
        Whether targets are numbers to predict, and not classes.
    share
        Part of the reading that is that of this process.

    Raises
    ------
    ValueError
        An entry is not finite or too large; its row and column are named.
    """
    total, width = source.shape
    generator = np.random.default_rng(seed)
    if total <= n_sample:
        chosen = np.arange(total)
    else:
        chosen = np.sort(generator.choice(total, n_sample, replace=False, shuffle=False))
    sums = _Sums(width + quantity)
    try:
        if share.index:  # the first process has the first block, whose mean is the shift of all
            sums.shift = _columns(*source.read(0), quantity).mean(axis=0)
        blocks = range(share.index, len(source.starts) - 1, share.count)
        sample = _pass(source, chosen, sums, blocks, verbose)
    except ValueError as error:
        if share.count == 1:
            raise
        sample = {"error": np.array(str(error))}
    if share.count > 1:
        sample = _joined(sums, sample)
    classes, moments = sums.finished()
    return Survey(classes, moments, sample["rows"], sample["labels"])


def _columns(rows: np.ndarray, targets: Any, quantity: bool) -> np.ndarray:
    """Columns of which moments are taken, as a new array in double precision."""
    return (np.column_stack([rows, targets]) if quantity else rows).astype(np.float64)


def _pass(
    source: RowSource, chosen: np.ndarray, sums: _Sums, blocks: range, verbose: bool | None
) -> dict[str, np.ndarray]:
    """Add some blocks to the sums; chosen rows that are in them, their targets and their places."""
    starts, quantity = source.starts, len(sums.binary) > source.shape[1]
    sample: dict[str, list[np.ndarray]] = {"rows": [], "labels": [], "places": []}
    with Progress(len(blocks), 0, verbose) as bar:
        for done, block in enumerate(blocks):
            rows, targets = source.read(block)
            if targets is None:
                raise ValueError("the source has no targets: name them (y=, target=).")
            _check(rows, int(starts[block]), source.names)
            if quantity:
                _check_targets(targets, int(starts[block]))
            sums.add(
                _columns(rows, targets, quantity), np.zeros(len(rows)) if quantity else targets
            )
            low, high = np.searchsorted(chosen, [starts[block], starts[block + 1]])
            inside = chosen[low:high] - starts[block]
            sample["rows"].append(rows[inside])
            sample["labels"].append(targets[inside])
            sample["places"].append(chosen[low:high])
            bar.at(done + 1)
    return {name: np.concatenate(parts) for name, parts in sample.items()}


def _joined(sums: _Sums, sample: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The sample of all processes, whose sums take the place of one's own.

    What one process finds wrong all of them say: a process that ended alone would leave the others
    waiting.
    """
    if "error" not in sample:
        sample = sample | {"labels": np.array(sample["labels"].tolist())} | sums.packed()
    every = exchanged(sample)
    for one in every:
        if "error" in one:
            raise ValueError(str(one["error"]))
    sums.join(every)
    order = np.argsort(np.concatenate([one["places"] for one in every]))
    return {n: np.concatenate([one[n] for one in every])[order] for n in ("rows", "labels")}


class _Sums:
    def __init__(self, width: int) -> None:
        self.shift: Any = None
        self.binary = np.ones(width, bool)
        self.of: dict[Any, list[Any]] = {}

    def add(self, exact: np.ndarray, targets: np.ndarray) -> None:
        if self.shift is None:
            self.shift = exact.mean(axis=0)
        self.binary &= np.all((exact == 0) | (exact == 1), axis=0)
        exact -= self.shift
        labels, which = np.unique(targets, return_inverse=True)
        member = (which == np.arange(len(labels))[:, None]).astype(np.float64)
        counts, sums, squares = member.sum(axis=1), member @ exact, member @ exact**2
        for place, label in enumerate(labels.tolist()):
            old = self.of.get(label, (0, 0.0, 0.0))
            new = counts[place], sums[place], squares[place]
            self.of[label] = [a + b for a, b in zip(old, new, strict=True)]

    def packed(self) -> dict[str, np.ndarray]:
        labels, parts = list(self.of), list(self.of.values())
        named = {f"sum_{i}": np.array([part[i] for part in parts]) for i in range(3)}
        return {"classes": np.array(labels), "binary": self.binary} | named

    def join(self, every: list[dict[str, np.ndarray]]) -> None:
        """The sums of all processes in place of one's own."""
        self.of, self.binary = {}, np.all([one["binary"] for one in every], axis=0)
        for one in every:
            for place, label in enumerate(one["classes"].tolist()):
                old = self.of.get(label, (0, 0.0, 0.0))
                self.of[label] = [old[i] + one[f"sum_{i}"][place] for i in range(3)]

    def finished(self) -> tuple[np.ndarray, Moments]:
        classes = np.unique(np.array(list(self.of)))
        parts = [self.of[label] for label in classes.tolist()]
        counts, sums, squares = (np.array([part[i] for part in parts]) for i in range(3))
        return classes, Moments(self.shift, counts, sums, squares, self.binary)


def _check_targets(targets: np.ndarray, start: int) -> None:
    if targets.dtype.kind not in "biuf":
        raise ValueError(f"y: holds {targets.dtype}, and numbers are to be predicted.")
    wrong = ~(np.abs(targets.astype(np.float64)) <= TOO_LARGE)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(
            f"y: {targets[row]} in row {start + row}; must be a finite number below {TOO_LARGE:g}."
        )


def _check(rows: np.ndarray, start: int, names: list[str] | None) -> None:
    if rows.dtype.kind != "f":
        return
    # Comparisons are false for NaN, so one test finds it, infinities and huge numbers.
    fine = np.abs(rows) <= min(TOO_LARGE, float(np.finfo(rows.dtype).max))
    if not fine.all():
        row, column = np.argwhere(~fine)[0]
        where = f"column {column if names is None else repr(names[column])}"
        raise ValueError(
            f"X: {rows[row, column]} in row {start + row}, {where}; must be a finite number below "
            f"{TOO_LARGE:g}."
        )
