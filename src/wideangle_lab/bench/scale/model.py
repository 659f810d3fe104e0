r"""Predicted time of a fit, from the times of small fits.

Stochastic VI with K experts, S starts, p columns (intercept included) on N rows, R passes:

.. math:: T = T_0 + N p\,t_{look}
              + R N\,(t_{row} + t_{column}\,p + t_{product}\,S K p + t_{curve}\,S K)

The terms are: loading and compiling programs; a first pass over all entries; and, for each row of a
pass, reading, scaling, matrix products and exponentials. The five constants of a machine are fitted
to runs of a few seconds (non-negative least squares of relative errors); large runs are predicted,
not used for fitting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls


class Costs(NamedTuple):
    """Core seconds of one machine."""

    begin: float
    look: float
    """Per entry of the first pass."""
    row: float
    column: float
    product: float
    curve: float

    def vi(self, rows: float, columns: int, experts: int, starts: int, passes: float) -> float:
        """Core seconds of a fit."""
        one = _parts(columns, experts, starts) @ np.array(self[2:])
        return self.begin + rows * (columns * self.look + passes * float(one))


def _parts(columns: int, experts: int, starts: int) -> np.ndarray:
    p = columns + 1
    return np.array([1.0, p, starts * experts * p, starts * experts])


def learn(paces: Sequence[dict[str, Any]]) -> Costs:
    """Constants fitted to the times of small runs."""
    parts = np.array([_parts(one["columns"], one["experts"], one["starts"]) for one in paces])
    rows = np.array([one["row"] for one in paces])
    constants, _ = nnls(parts / rows[:, None], np.ones(len(rows)))
    look = np.median([one["look"] / one["columns"] for one in paces])
    begin = np.median([one["begin"] for one in paces])
    return Costs(float(begin), float(look), *map(float, constants))
