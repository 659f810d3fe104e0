"""Summaries of simulations, as they are recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from wideangle_lab.calibration.ranks import Uniformity, assess, rank

LIMIT = 4.2
"""Limit for the largest of about twenty correlated z-scores of a correct sampler."""
RARE = 1e-3
"""Smallest p-value that passes, corrected for the number of quantities."""


ROUNDING = 1e-6
"""Smaller changes are rounding errors, for example of a constant computed twice."""


class Ranked(NamedTuple):
    """Simulation-based calibration of one case."""

    quantities: dict[str, Uniformity]
    n_sets: int
    n_draws: int
    autocorrelation: float
    """Largest correlation between neighbouring draws over all quantities, after thinning. Ranks
    among correlated draws are too often at the ends."""
    notes: dict[str, Any]

    @property
    def worst(self) -> str:
        """The quantity with the smallest p-value."""
        return min(self.quantities, key=lambda name: self.quantities[name].p_value)

    @property
    def p_value(self) -> float:
        """Smallest p-value times the number of quantities (Bonferroni)."""
        return min(1.0, self.quantities[self.worst].p_value * len(self.quantities))

    @property
    def passed(self) -> bool:
        """Whether the ranks could be uniform."""
        return self.p_value > RARE


class Restarted(NamedTuple):
    """Exact restarts of one case."""

    z: dict[str, float]
    """Mean paired change of each quantity, in standard errors."""
    n_starts: int
    notes: dict[str, Any]

    @property
    def worst(self) -> str:
        """The quantity that changed most."""
        return max(self.z, key=lambda name: abs(self.z[name]))

    @property
    def passed(self) -> bool:
        """Whether nothing changed."""
        return bool(abs(self.z[self.worst]) < LIMIT)


def judge_ranks(
    truth: Mapping[str, Any], draws: Mapping[str, Any], *, seed: int, **notes: Any
) -> Ranked:
    """Ranks of truths (S,) among draws (S, L), for each quantity that varies."""
    rng = np.random.default_rng(seed)
    found, following = {}, []
    for name, values in draws.items():
        one, many = np.asarray(truth[name], float), np.asarray(values, float)
        if np.ptp(many) == 0:
            continue
        if not (np.isfinite(one).all() and np.isfinite(many).all()):
            raise FloatingPointError(f"{name} is not finite")
        found[name] = assess(rank(one, many, rng), many.shape[1])
        following.append(autocorrelation(many))
    n_sets, n_draws = np.shape(next(iter(draws.values())))
    return Ranked(found, n_sets, n_draws, max(following), notes)


def autocorrelation(draws: np.ndarray) -> float:
    """Correlation of neighbouring draws of chains (S, L), pooled; about 0 if independent.

    Deviations are from the mean of each chain, which biases products of neighbours by -1/L of the
    variance: this is corrected.
    """
    centred = draws - draws.mean(axis=1, keepdims=True)
    products = np.mean(centred[:, 1:] * centred[:, :-1])
    return float(products / np.mean(centred**2) + 1.0 / draws.shape[1])


def judge_changes(
    before: Mapping[str, Any], after: Mapping[str, Any], notes: dict[str, Any]
) -> Restarted:
    """Mean paired changes in standard errors; most states must have moved."""
    z, moved = {}, np.zeros(1, bool)
    for name, start in before.items():
        change = np.asarray(after[name], float) - np.asarray(start, float)
        if not np.isfinite(change).all():
            z[name] = np.inf
        elif change.std() > ROUNDING:
            z[name] = float(change.mean() / (change.std() / np.sqrt(len(change))))
        moved = moved | (change != 0)
    share = float(np.mean(moved))
    if share < 0.5:  # noqa: PLR2004
        raise RuntimeError(f"only {share:.0%} of the states moved: nothing is tested")
    return Restarted(z, len(moved), {**notes, "moved": share})


def to_json(found: Ranked | Restarted) -> dict[str, Any]:
    """Plain data, verdict included."""
    if isinstance(found, Restarted):
        more = {"worst": found.worst, "passed": found.passed}
        return found._asdict() | more
    each = {
        name: one._asdict() | {"p_value": one.p_value} for name, one in found.quantities.items()
    }
    summary = {"worst": found.worst, "p_value": found.p_value, "passed": found.passed}
    return found._asdict() | {"quantities": each} | summary
