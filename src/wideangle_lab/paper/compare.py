"""Differences between methods on the same test rows, with intervals.

An effect is a gain: positive if the first method is better. Its interval is at 95 %. If every
test row has a score, it is a bootstrap over rows and, if there are several, over seeds (two stages;
the methods stay paired). If a fit has a single score, it is Student's t interval over seeds; with
one seed there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import t as student

from wideangle_lab.paper.records import Record

Key = tuple[str, str, int]
"""Data set (without the sample), method, K."""
N_BOOT, LEVEL = 1000, 0.95


class Effect(NamedTuple):
    """A gain, its interval (NaN where there is none), and how many pairs of fits it rests on."""

    mean: float
    low: float
    high: float
    n_fits: int

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, ``no clear difference`` or ``one fit``."""
        if np.isnan(self.low):
            return "one fit"
        if self.low > 0:
            return "better"
        return "worse" if self.high < 0 else "no clear difference"

    def text(self, form: str = "+.4f") -> str:
        """The gain and its interval."""
        shown = f"{self.mean:{form}}"
        if np.isnan(self.low):
            return shown
        return f"{shown} [{self.low:{form}}, {self.high:{form}}]"


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


def pairs(first: Sequence[Record], second: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Fits to the same rows with the same seed."""
    others = {(record.cell.data, record.cell.seed): record for record in second}
    both = ((one, others.get((one.cell.data, one.cell.seed))) for one in first)
    return [(one, other) for one, other in both if other is not None]


def gain_of_rows(
    matched: Sequence[Sequence[tuple[Record, Record]]],
    rows: Callable[[Record], np.ndarray],
    scale: float = 1.0,
) -> Effect | None:
    """Mean of ``rows(second) - rows(first)`` over test rows; ``rows`` is a loss, lower is better.

    ``matched`` has one list of pairs for each K. Losses are averaged over K row by row, since all K
    share their test rows.
    """
    gaps: dict[tuple[str, int], list[np.ndarray]] = {}
    for group in matched:
        for one, other in group:
            place = (one.cell.data, one.cell.seed)
            gaps.setdefault(place, []).append(scale * (rows(other) - rows(one)))
    if not gaps:
        return None
    per_seed = [np.mean(part, axis=0) for part in gaps.values()]
    rng = np.random.default_rng(0)
    means = [_bootstrap(per_seed, rng) for _ in range(N_BOOT)]
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    centre = float(np.mean([np.mean(part) for part in per_seed]))
    return Effect(centre, float(low), float(high), len(per_seed))


def _bootstrap(per_seed: Sequence[np.ndarray], rng: np.random.Generator) -> float:
    drawn = rng.integers(len(per_seed), size=len(per_seed))
    parts = [per_seed[place] for place in drawn]
    means = [np.mean(part[rng.integers(len(part), size=len(part))]) for part in parts]
    return float(np.mean(means))


def gain_of_fits(
    matched: Sequence[tuple[Record, Record]],
    number: Callable[[Record], float | None],
    sign: float = 1.0,
) -> Effect | None:
    """Mean of ``sign * (number(first) - number(second))`` over fits."""
    gaps = []
    for one, other in matched:
        left, right = number(one), number(other)
        if left is not None and right is not None:
            gaps.append(sign * (left - right))
    if not gaps:
        return None
    mean, error = mean_of(gaps)
    reach = student.ppf((1 + LEVEL) / 2, len(gaps) - 1) * error if len(gaps) > 1 else np.nan
    return Effect(mean, float(mean - reach), float(mean + reach), len(gaps))


def log_loss(record: Record, group: str | None = None) -> float | None:
    """Log-loss on all test rows, or on a group of them."""
    if group is None:
        return record.metrics["log_loss"]
    return record.metrics["groups"].get(group, {}).get("log_loss")


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
