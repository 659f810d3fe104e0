"""Differences between methods on the same test rows, with standard errors, and their words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import norm as normal
from scipy.stats import t as student

from wideangle.paper.records import Record

CLEAR = 2.0
"""Standard errors beyond which a difference counts; more for errors from a few seeds."""

Key = tuple[str, str, int]
"""Data set (without the sample), method, K."""


class Difference(NamedTuple):
    """Mean of (first - second) log-loss; negative: the first is better."""

    mean: float
    error: float
    clear: float = CLEAR

    @property
    def verdict(self) -> str:
        """``better``, ``worse`` or ``no clear difference``."""
        if not abs(self.mean) > self.clear * self.error:
            return "no clear difference"
        return "better" if self.mean < 0 else "worse"

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ± {self.error:.4f}"


def by_key(records: Iterable[Record]) -> dict[Key, list[Record]]:
    """Replicates together: seeds, and the samples of RCV1."""
    found: dict[Key, list[Record]] = {}
    for record in records:
        cell = record.cell
        key = (cell.data.partition(".")[0], cell.method, cell.n_experts)
        found.setdefault(key, []).append(record)
    return found


def mean_metric(records: Sequence[Record], name: str) -> tuple[float, float]:
    """Mean over replicates, and its standard error (NaN for one)."""
    values = np.array([record.metrics[name] for record in records], float)
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return float(np.mean(values)), float(error)


def paired(first: Sequence[Record], second: Sequence[Record]) -> Difference | None:
    """Difference of log-loss over test rows that both have seen; None without common cells.

    Samples are independent. Seeds of one data set share test rows, so their errors are averaged
    and not divided by the number of seeds: a careful answer.
    """
    others = {(record.cell.data, record.cell.seed): record for record in second}
    parts: dict[str, list[tuple[float, float]]] = {}
    for record in first:
        other = others.get((record.cell.data, record.cell.seed))
        if other is None:
            continue
        gap = record.losses() - other.losses()
        error = float(np.std(gap, ddof=1) / np.sqrt(len(gap))) if len(gap) > 1 else np.nan
        parts.setdefault(record.cell.data, []).append((float(np.mean(gap)), error))
    if not parts:
        return None
    means = [np.mean([mean for mean, _ in part]) for part in parts.values()]
    errors = [np.mean([error for _, error in part]) for part in parts.values()]
    return Difference(float(np.mean(means)), float(np.linalg.norm(errors) / len(errors)))


def over_seeds(
    first: Sequence[Record], second: Sequence[Record], group: str | None = None
) -> Difference | None:
    """Difference of log-loss paired by seed, its error from the spread over seeds.

    ``group`` restricts both to a group of test rows.
    """
    others = {(record.cell.data, record.cell.seed): record for record in second}
    gaps = []
    for record in first:
        other = others.get((record.cell.data, record.cell.seed))
        values = [_log_loss(one, group) for one in (record, other) if one is not None]
        if len(values) == 2 and None not in values:  # noqa: PLR2004
            gaps.append(float(values[0]) - float(values[1]))
    if len(gaps) < 2:  # noqa: PLR2004
        return None
    error = float(np.std(gaps, ddof=1) / np.sqrt(len(gaps)))
    # As rare under Student's law, which an error from a few seeds follows, as CLEAR is under
    # the normal one.
    clear = float(student.ppf(normal.cdf(CLEAR), len(gaps) - 1))
    return Difference(float(np.mean(gaps)), error, clear)


def pooled_group(records: Sequence[Record], groups: Iterable[str]) -> tuple[float, int]:
    """Accuracy (per cent) within groups of rows, over all replicates, and how many rows."""
    right, total = 0.0, 0
    for record in records:
        for name in groups:
            found: Mapping[str, float] | None = record.metrics["groups"].get(name)
            if found:
                right += found["accuracy"] * found["n_test"]
                total += int(found["n_test"])
    return (right / total if total else float("nan")), total


def _log_loss(record: Record, group: str | None) -> float | None:
    if group is None:
        return record.metrics["log_loss"]
    return record.metrics["groups"].get(group, {}).get("log_loss")
