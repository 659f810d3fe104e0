"""How often the predicted class is right, next to its probability, over all splits of the panel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from wideangle.presentation.family import share_interval
from wideangle_lab.bench.defaults.targets import Summary

ENDS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
"""Ends of the bins of probabilities; most rows of easy tables are in the last ones."""


def counted(y: np.ndarray, proba: np.ndarray) -> dict[str, list[Any]]:
    """Test rows, their probabilities added up, and how many are right, by bin.

    The probability is that of the predicted class, so that each row counts once.
    """
    confidence = np.asarray(proba, float).max(axis=1)
    right = np.asarray(proba).argmax(axis=1) == y
    place = np.clip(np.searchsorted(ENDS, confidence, side="right") - 1, 0, len(ENDS) - 2)
    sums = (np.bincount(place, w, len(ENDS) - 1) for w in (None, confidence, right))
    rows, probability, hits = sums
    return {
        "rows": rows.tolist(),
        "probability": [round(float(one), 6) for one in probability],
        "right": hits.astype(int).tolist(),
    }


class Share(NamedTuple):
    """Rows of some bins of some tables together."""

    rows: float
    """Number of rows that count: one that is tested in several splits counts about once."""
    probability: float
    right: float

    @property
    def interval(self) -> tuple[float, float]:
        """Of the share that is right, 95 %."""
        low, high = share_interval(self.right * self.rows, self.rows)
        return float(low), float(high)

    @property
    def agrees(self) -> bool:
        """Whether the interval contains the mean probability."""
        low, high = self.interval
        return low <= self.probability <= high


def shares(tables: Iterable[Summary]) -> list[Share | None]:
    """By bin; None for a bin without rows."""
    total = sum(map(_sums, tables))
    return [share_of(one) for one in np.reshape(total, (-1, 3))]


def share_of(sums: np.ndarray) -> Share | None:
    """Rows, probability and right ones, added up."""
    rows, probability, right = map(float, sums)
    return Share(rows, probability / rows, right / rows) if rows else None


def _sums(table: Summary) -> np.ndarray:
    """(bins, 3), in rows that count."""
    names = ("rows", "probability", "right")
    found = [np.array([fit["reliability"][name] for name in names]) for fit in known(table)]
    return np.sum(found, axis=0).T * _counts(table)


def known(table: Summary) -> list[Any]:
    """Fits of a table whose record has these numbers."""
    return [fit for fit in table.fits if "reliability" in fit]


def _counts(table: Summary) -> float:
    """What a tested row is worth: a row of several splits is one observation.

    With c tests of a row, shares have the variance of (sum c)^2 / sum c^2 independent rows.
    """
    fits = known(table)
    tested = sum(fits[0]["reliability"]["rows"])
    n_rows = fits[0]["n_rows"] + tested
    n_tests = len(fits) * tested / n_rows
    return 1.0 / (1.0 - tested / n_rows + n_tests)


def render(tables: Sequence[Summary]) -> list[str]:
    """The part of the page; nothing where no fit has these numbers."""
    tables = [table for table in tables if known(table)]
    if not tables:
        return []
    bins = shares(tables)
    agreeing = [share.agrees for share in bins if share]
    rows = [
        f"| {100 * low:.0f} to {100 * high:.0f} % | {_cells(share)} |"
        for low, high, share in zip(ENDS[:-1], ENDS[1:], bins, strict=True)
        if share
    ]
    of_tables = [f"| {one.title} | {_cells(share_of(_sums(one).sum(axis=0)))} |" for one in tables]
    head = "rows that count | mean probability, % | right, % | 95 % interval |\n|---" + "|---:" * 4
    return [
        "## Calibration",
        "Is a class that is predicted with 80 % right in 80 % of the rows? Test rows of all splits "
        f"of {len(tables)} tables, by the probability of the class that is predicted. In "
        f"{sum(agreeing)} of {len(agreeing)} bins the interval of the share that is right contains "
        "the mean probability. A row that is tested in several splits counts as one observation.",
        "\n".join([f"| probability | {head}|", *rows]),
        "The same by table, all bins together:",
        "\n".join([f"| table | {head}|", *of_tables]),
    ]


def _cells(share: Share | None) -> str:
    assert share is not None
    low, high = share.interval
    mark = "" if share.agrees else " *"
    return (
        f"{share.rows:,.0f} | {100 * share.probability:.1f} | {100 * share.right:.1f} | "
        f"{100 * low:.1f} to {100 * high:.1f}{mark}"
    )
