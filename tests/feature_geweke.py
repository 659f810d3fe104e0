"""Exact-restart tests of the latent feature sampler: draws of the prior in, draws of the prior out.

A state and rows come from the joint distribution; sweeps of the sampler alternate with fresh rows
given the state; the state must have the same distribution at the end. Replicates are independent,
so plain standard errors hold. The same code measures the cases of ``docs/trust.md``.
"""

from typing import NamedTuple

from wideangle.latent_features.state import Design
from wideangle_lab.calibration.feature_problem import FIXED, N_ROWS, fixed_values
from wideangle_lab.calibration.features import Case, restart

__all__ = ["FIXED", "N_ROWS", "geweke"]


class Verdict(NamedTuple):
    """Paired z-scores of the statistics, the worst of them, and how often room ran out."""

    z: dict[str, float]
    worst: float
    mean_active: float
    n_overflow: int


def geweke(design=None, draw_values=None, *, n=2000, n_sweeps=4, room=64, seed=0, **options):
    """Run the test; the options are those of :func:`restart`."""
    case = Case("a prior", "a process", design or Design(), draw_values or fixed_values, room)
    found = restart(case, n_starts=n, seed=seed, n_sweeps=n_sweeps, **options)
    worst = abs(found.z[found.worst])
    return Verdict(found.z, worst, found.notes["active"], found.notes["overflow"])
