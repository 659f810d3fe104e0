"""How long chains run if no length is given: until predictions are accurate enough.

Chains grow in blocks. They stop when every watched quantity has an effective sample size of 400 and
an R-hat of at most 1.01 at two checks in a row, when the time is up, or when chains are in
different modes: each mixes well within itself, yet their differences do not shrink as they grow.
Chains of several data sets grow together, until those of each have ended.

The effective sample size is that of the centre (bulk), as in :mod:`wideangle.convergence`: all
predictions are averages over draws, those of quantiles and intervals too. The tails of a watched
quantity itself, which no prediction depends on, often need ten times as many draws.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from wideangle.diagnostics import ess_bulk, rhat

ENOUGH = 400.0
"""Effective sample size, of all chains together, that is large enough."""
AGREED = 1.01
"""R-hat up to which chains agree."""
FIRST = 200
"""Draws of the first block."""
GROWTH = 1.25, 2.0
"""Bounds on the growth of chains until the next check; within them the effective sample size
decides."""
AGAIN = 1.1
"""The same after a check that they passed."""
APART = 1.1
"""R-hat above which chains may be in different modes; they are if it does not decrease."""
MODES_AFTER = 8.0
"""Growth over which the variance between the means of chains that mix falls by this factor. With
half of that, slow chains were taken for chains in different modes."""

Watched = Mapping[str, np.ndarray]
"""Draws of the watched quantities, axes (chain, draw, ...)."""


class Ending(NamedTuple):
    """How a run ended."""

    reason: str
    """"converged", "time", "modes", "memory" or "interrupted"."""
    n_draws: int
    rhat: float
    """The largest over the watched quantities, NaN if there is none."""
    ess: float
    """The smallest."""


def until_converged(
    extend: Callable[[int], Watched | None],
    *,
    max_time: float,
    n_done: int = 0,
    first: int = FIRST,
    most: int | None = None,
) -> Ending:
    """Extend chains block by block until they are long enough.

    Parameters
    ----------
    extend
        Runs all chains until they have that many draws, and returns the watched quantities of all
        draws so far; None if the user stopped it.
    max_time
        Time limit in seconds from now.
    n_done, first, most
        Existing draws, draws of the first block, and most draws that memory allows.
    """

    def extend_it(n_draws: int, _: list[int]) -> list[Watched] | None:
        watched = extend(n_draws)
        return None if watched is None else [watched]

    limits = {"max_time": max_time, "n_done": n_done, "first": first, "most": most}
    return until_all_converged(extend_it, 1, **limits)[0]


def until_all_converged(
    extend: Callable[[int, list[int]], list[Watched] | None],
    n_sets: int,
    *,
    max_time: float,
    n_done: int = 0,
    first: int = FIRST,
    most: int | None = None,
) -> list[Ending]:
    """:func:`until_converged` for the chains of several data sets.

    Parameters
    ----------
    extend
        As in :func:`until_converged`, for the data sets whose places are its second argument:
        those that have not ended.
    n_sets
        Number of data sets.
    max_time
        Time limit in seconds for each data set: those that run at the same time share it.
    n_done, first, most
        As in :func:`until_converged`, for each data set.
    """
    sets = [_Progress() for _ in range(n_sets)]
    active, spent = list(range(n_sets)), 0.0
    n_draws, n_before = max(first, n_done), n_done
    while True:
        n_draws, began = min(n_draws, most or n_draws), time.monotonic()
        watched = extend(n_draws, active)
        if watched is None:
            stopped = Ending("interrupted", n_draws, math.nan, math.nan)
            return [one.ending or stopped for one in sets]
        for i, seen in zip(active, watched, strict=True):
            sets[i].judge(n_draws, seen)
        spent += (time.monotonic() - began) / len(active)
        active = [i for i in active if sets[i].ending is None]
        if not active:
            return [one.ended("") for one in sets]
        if n_draws == most:
            return [one.ended("memory") for one in sets]
        pace = spent / max(n_draws - n_before, 1)
        affordable = int((max_time - spent) / max(pace, 1e-9))
        growth = max(sets[i].growth for i in active)
        block = min(math.ceil((growth - 1.0) * n_draws), affordable)
        if block < max(first // 10, 1):
            return [one.ended("time") for one in sets]
        n_draws += block


class _Progress:
    """The checks of the chains of one data set."""

    def __init__(self) -> None:
        self.ending: Ending | None = None
        self._passed, self._history = 0, []
        self._last = 0, math.nan, math.nan

    def judge(self, n_draws: int, watched: Watched) -> None:
        """One more check."""
        worst, smallest, alone = _check(watched)
        self._last = n_draws, worst, smallest
        self._passed = self._passed + 1 if worst <= AGREED and smallest >= ENOUGH else 0
        self._history.append((n_draws, worst))
        if self._passed == 2:  # noqa: PLR2004
            self.ending = Ending("converged", *self._last)
        elif alone >= ENOUGH and _in_modes(self._history):
            self.ending = Ending("modes", *self._last)

    @property
    def growth(self) -> float:
        """How much longer chains should be at the next check."""
        wanted = 1.05 * ENOUGH / self._last[2]
        return AGAIN if self._passed else min(max(wanted, GROWTH[0]), GROWTH[1])

    def ended(self, reason: str) -> Ending:
        """How it ended: for this reason if not for another one before."""
        return self.ending or Ending(reason, *self._last)


def _check(watched: Watched) -> tuple[float, float, float]:
    """Largest R-hat, smallest effective sample size, and that of single chains.

    The last is for the quantity with the largest R-hat: if it is small, chains mix slowly, and
    their differences do not indicate modes. Constants have none of these.
    """
    numbers = [v.reshape(*v.shape[:2], -1) for v in watched.values()]
    every = np.concatenate(numbers, axis=2)
    largest = rhat(every)
    if np.isnan(largest).all():
        return 1.0, math.inf, 0.0
    worst = int(np.nanargmax(largest))
    smallest = np.nanmin(ess_bulk(every))
    alone = sum(float(ess_bulk(chain[None, :, worst])) for chain in every)
    return float(largest[worst]), float(smallest), alone


def _in_modes(history: list[tuple[int, float]]) -> bool:
    r"""Whether R-hat stays high although chains have grown.

    :math:`\hat R^2 - 1` is the variance between the means of chains relative to that within them,
    which falls like 1/n if chains mix.
    """
    n_draws, worst = history[-1]
    if worst < APART:
        return False
    shorter = [old for n, old in history if n * MODES_AFTER <= n_draws * 1.01]
    return bool(shorter) and worst**2 - 1.0 > 0.5 * (shorter[-1] ** 2 - 1.0)
