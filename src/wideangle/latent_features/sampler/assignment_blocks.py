"""Redrawing assignments of rows that pass by in blocks: ``assignment_rows.py`` for rows on disk.

The columns before the last active one are drawn block by block. What the columns from there on
need (a few numbers a row) and the assignments themselves are left in stores, and these columns are
drawn with further passes over the stores alone. Random numbers are those of rows in memory, so the
assignments are too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numba
import numpy as np

from wideangle.latent_features.rows.parallel import over_rows
from wideangle.latent_features.sampler.assignment_rows import (
    decide_site,
    nobody,
    rows_before,
    threefry,
)
from wideangle.latent_features.sampler.assignments import Noise


class Store(Protocol):
    """Numbers of every row, (N, width)."""

    def read(self, first: int, n_rows: int) -> np.ndarray:
        """Some rows, as a new array."""
        ...

    def write(self, first: int, rows: np.ndarray) -> None:
        """Put rows in their place."""
        ...


class Given(NamedTuple):
    """What a sweep over assignments is given beside the rows, live features only."""

    keys: np.ndarray
    """(2, K) words of the random keys of the columns."""
    any_row: np.ndarray
    first_row: np.ndarray
    inner: np.ndarray
    weights: np.ndarray
    log_odds: np.ndarray
    precision: Any
    last: int
    """The last active feature; columns from here on are coupled."""

    @property
    def n_live(self) -> int:
        """Number of features."""
        return len(self.weights)


def given(
    noise: Noise, inner: Any, weights: Any, counts: Any, n_live: int, variance: float, dtype: Any
) -> Given:
    """From what a sweep has drawn before it looks at the rows."""
    live = np.asarray(weights)[:n_live].astype(np.float64)
    used = np.flatnonzero(np.asarray(counts)[:n_live])
    return Given(
        np.ascontiguousarray(np.asarray(noise.keys)[:n_live].T),
        np.asarray(noise.any_row, np.float64),
        np.asarray(noise.first_row, np.float64),
        np.ascontiguousarray(np.asarray(inner)[:n_live, :n_live], dtype),
        live,
        (np.log(live) - np.log1p(-live)).astype(dtype),
        np.dtype(dtype).type(1.0 / float(variance)),
        int(used[-1]) if used.size else 0,
    )


def sweep_block(
    how: Given, first: int, used: np.ndarray, products: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """New assignments of a block (columns from ``last`` on as they were), and what these need."""
    used = np.array(used, np.uint8, order="C")
    rest = np.empty((len(used), how.n_live - how.last), products.dtype)

    def part(start: int, stop: int) -> None:
        rows_before(
            start, stop, first, how.keys, used, products, how.inner, how.log_odds, how.precision,
            how.last, how.n_live, rest,
        )  # fmt: skip

    over_rows(part, len(used), used.size)
    return used, rest


def sweep_tail(
    how: Given, used: Store, rest: Store, counts: np.ndarray, n_rows: int, block_rows: int
) -> None:
    """Columns from ``last`` on, in the stores; ``counts`` are those of the columns before."""
    ceiling = 1.0 / n_rows
    before = np.flatnonzero(counts[: how.last])
    bound = min(how.weights[before[-1]], ceiling) if before.size else ceiling
    for k in range(how.last, how.n_live):
        ends = np.cumsum(
            [
                _log_none(_logit(how, k, *pair))
                for _, *pair in _pairs(used, rest, n_rows, block_rows)
            ]
        )
        with_it = min(how.weights[k], ceiling)
        first = None
        if not nobody(ends[-1], bound, with_it, how.any_row[k]):
            bound = with_it
            first = -how.first_row[k] * math.expm1(ends[-1])
        _write_column(how, k, used, rest, ends, first, (n_rows, block_rows))


def _write_column(
    how: Given,
    k: int,
    used: Store,
    rest: Store,
    ends: np.ndarray,
    target: float | None,
    size: tuple[int, int],
) -> None:
    """Draw a column given that some row has it, the first of them at ``target``; or empty it."""
    found = False
    for place, (start, here, left) in enumerate(_pairs(used, rest, *size)):
        column = np.zeros(len(here), np.uint8)
        whole = place == len(ends) - 1
        if target is not None and (whole or -math.expm1(ends[place]) >= target):
            logit = _logit(how, k, here, left)
            begin = 0
            if not found:
                before = ends[place - 1] if place else 0.0
                gone = before + np.cumsum(_log_unused(logit))
                reached = np.flatnonzero(-np.expm1(gone) >= target)
                begin = int(reached[0]) if reached.size else len(here) - 1
                column[begin] = 1
                begin, found = begin + 1, True
            _decide_rows(how.keys[:, k], logit, start, begin, column)
        change = column.astype(np.int8) - here[:, k].astype(np.int8)
        if np.any(change):
            here[:, k] = column
            after = slice(k + 1 - how.last, None)
            left[:, after] -= change[:, None] * how.inner[k, k + 1 :]
            used.write(start, here)
            rest.write(start, left)


def _pairs(
    used: Store, rest: Store, n_rows: int, block_rows: int
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    for first in range(0, n_rows, block_rows):
        size = min(block_rows, n_rows - first)
        yield first, used.read(first, size), rest.read(first, size)


def _logit(how: Given, k: int, used: np.ndarray, rest: np.ndarray) -> np.ndarray:
    own = how.inner[k, k]
    gain = rest[:, k - how.last] - 0.5 * own + np.where(used[:, k], own, 0.0)
    return (how.log_odds[k] + gain * how.precision).astype(np.float64)


def _log_unused(logit: np.ndarray) -> np.ndarray:
    return -np.logaddexp(0.0, logit)


def _log_none(logit: np.ndarray) -> float:
    return float(np.sum(_log_unused(logit)))


@numba.njit(cache=True, nogil=True)
def _decide_rows(key, logit, offset, begin, column):
    """Rows from ``begin`` on, each by itself."""
    for n in range(begin, len(column)):
        row = n + offset
        bits = threefry(key[0], key[1], np.uint32(row >> 32), np.uint32(row & 0xFFFFFFFF))
        column[n] = decide_site(logit[n], bits)
