"""Gains of one row of a table over another, split by split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from wideangle_lab.paper.records import Record
from wideangle_lab.splits import Effect, over_splits

Key = tuple[str, str, int]
"""Data set (without the sample), method, K."""
Number = Callable[[Record], float | None]
RHAT = 1.05
"""Chains count up to this R-hat of what is compared."""
HALVES = 0.25
"""Chains of a mixture count, too, if the accuracies of two halves differ by this many points."""


class Gains(NamedTuple):
    """The gain on each split, and the splits on which the chains of both fits converged."""

    by_split: Mapping[int, float]
    converged: frozenset[int] = frozenset()
    shared: float = 0.0
    """Test rows for each training row."""

    def effect(self, splits: Iterable[int]) -> Effect:
        """The effect on some splits."""
        return over_splits([self.by_split[split] for split in sorted(splits)], self.shared)


def by_key(records: Iterable[Record]) -> dict[Key, list[Record]]:
    """Replicates by cell: seeds, and the samples of RCV1."""
    found: dict[Key, list[Record]] = {}
    for record in records:
        cell = record.cell
        key = (cell.data.partition(".")[0], cell.method, cell.n_experts)
        found.setdefault(key, []).append(record)
    return found


def largest(cells: Mapping[Key, Sequence[Record]], data: str, method: str) -> int:
    """The largest K of a row on a data set: 30 if all cells were run, 0 if none was."""
    return max((k for name, row, k in cells if (name, row) == (data, method)), default=0)


def mean_of(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error (NaN for one value)."""
    found = np.asarray(values, float)
    error = np.std(found, ddof=1) / np.sqrt(len(found)) if len(found) > 1 else np.nan
    return float(np.mean(found)), float(error)


def mean_metric(records: Sequence[Record], name: str) -> tuple[float, float]:
    """Mean over replicates, and its standard error."""
    return mean_of([record.metrics[name] for record in records])


def converged(record: Record) -> bool:
    """Whether a fit counts: by R-hat of predictions, or of everything for latent features.

    Chains of a mixture that keep to different modes count if their halves predict alike. Fits
    without chains have neither.
    """
    found = record.diagnostics
    rhat = found.get("rhat_predictions", found.get("rhat"))
    first, second = found.get("accuracy_of_halves", (np.inf, -np.inf))
    return rhat is None or rhat <= RHAT or abs(first - second) <= HALVES


def gains(
    first: Sequence[Record],
    second: Sequence[Record],
    number: Number,
    sign: float = 1.0,
    *,
    relative: bool = False,
) -> Gains:
    """``sign * (number(first) - number(second))`` on each split; in per cent if ``relative``."""
    others = {record.cell.seed: record for record in second}
    found, counted, shared = {}, set(), 0.0
    for one in first:
        other = others.get(one.cell.seed)
        left, right = (number(r) if r is not None else None for r in (one, other))
        if other is None or left is None or right is None:
            continue
        split = one.cell.seed
        found[split] = sign * (left - right) * (100.0 / right if relative else 1.0)
        shared = one.metrics["n_test"] / one.metrics["n_train"]
        if converged(one) and converged(other):
            counted.add(split)
    return Gains(found, frozenset(counted), shared)


def seconds_of(records: Sequence[Record]) -> float:
    """Seconds of a fit: the fewest over splits, some of which chose settings in passing.

    On a processor those of all its cores, because others used the machine. A fit that was made
    together with others has a share of their seconds, which are not those of one fit.
    """
    alone = [r for r in records if "n_together" not in r.diagnostics]
    return min(
        r.data["cpu_seconds"]
        if r.data["device"] == "cpu" and "cpu_seconds" in r.data
        else r.data["seconds"]["fit"]
        for r in alone or records
    )


def pooled_group(records: Sequence[Record], groups: Iterable[str]) -> tuple[float, int]:
    """Accuracy (per cent) within groups of rows, over all replicates, and how many rows."""
    right, total = 0.0, 0
    for record in records:
        for name in groups:
            found = record.metrics["groups"].get(name)
            if found:
                right += found["accuracy"] * found["n_test"]
                total += int(found["n_test"])
    return (right / total if total else float("nan")), total
