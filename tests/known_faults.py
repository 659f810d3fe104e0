"""Known faults, put in on purpose, and the test that catches each: run them, and keep a record.

``python tests/known_faults.py results/calibration/faults.json`` runs every test of :data:`FAULTS`
and writes one row for each: what is wrong, the test, whether it saw the fault, the number it looked
at and the limit of that number. A test that passes has caught its fault. Rows of tests that are
not run this time stay as they were, so that a part can be run alone: ``-k slice``, say.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from statistical import MEASURED
from wideangle_lab import machine

ROOT = Path(__file__).parents[1]


class Fault(NamedTuple):
    """What is wrong, where it comes from, and the test."""

    source: str
    words: str
    test: str


def _priors(name: str) -> str:
    return f"tests/priors/test_mutations.py::test_fault_is_noticed[{name}]"


def _features(name: str) -> str:
    return f"tests/latent_features/test_sweep.py::test_a_fault_is_seen[{name}]"


def _small(name: str) -> str:
    where = "tests/latent_features/test_small_features.py::test_a_fault_of_their_own_is_seen"
    return f"{where}[{name}-]"


def _flow(name: str) -> str:
    return f"tests/infer/test_geodesic_hmc.py::test_a_fault_is_found[{name}]"


def _slice(name: str) -> str:
    return f"tests/infer/test_slice.py::test_a_fault_is_found[{name}]"


def _updates(name: str) -> str:
    return f"tests/lab/paper/test_coordinate_ascent.py::test_wrong_updates_lower_the_bound[{name}]"


def _experts(name: str) -> str:
    return f"tests/mixture_of_experts/test_sampling.py::test_a_broken_density_is_found[{name}]"


def _gaussian(name: str) -> str:
    where = "tests/mixture_of_experts/test_gaussian.py::test_a_wrong_density_or_slope_is_found"
    return f"{where}[{name}]"


def _clusters(name: str) -> str:
    return f"tests/spherical_mixture/test_sweep.py::test_a_fault_is_seen[{name}]"


def _truncation(name: str) -> str:
    where = "tests/infer/test_metropolis.py::test_a_wrong_truncation_correction_is_found"
    return f"{where}[{name}]"


def _acceptance(name: str) -> str:
    return f"tests/infer/test_metropolis.py::test_a_wrong_acceptance_is_found[{name}]"


PAPER, OURS = "paper", "easily made"
FAULTS = [
    # the sphere and the priors
    Fault(PAPER, "area of the sphere one dimension up", _priors("area one dimension up")),
    Fault(
        PAPER,
        "bound on log Z from the sum form of Bouchard's inequality, beyond 16 dimensions",
        "tests/lab/paper/test_printed_bound.py::test_printed_bound_fails_beyond",
    ),
    Fault(PAPER, "entropy without log C_p", _priors("entropy without the normaliser")),
    Fault(
        PAPER,
        "type II normalised at kappa instead of kappa |S|",
        _priors("normaliser at kappa instead of kappa |S|"),
    ),
    Fault(PAPER, "no normaliser in the chain", _priors("no normaliser in the chain")),
    Fault(PAPER, "no Jacobian from lengths and directions to vectors", _priors("no Jacobian")),
    Fault(
        OURS,
        "repulsion turned into attraction, in the density",
        _priors("sign of the repulsion in the density"),
    ),
    Fault(
        OURS,
        "repulsion turned into attraction, in draws",
        _priors("sign of the repulsion in draws"),
    ),
    Fault(OURS, "spread dropped from E|S|^2", _priors("spread dropped from E|S|^2")),
    Fault(OURS, "second moment of a length", _priors("second moment of a length")),
    Fault(OURS, "entropy of a length", _priors("entropy of a length")),
    Fault(
        OURS,
        "scatter of a von Mises-Fisher distribution along its mean",
        _priors("weight of the scatter along the mean"),
    ),
    Fault(OURS, "rejection sampler: power in the acceptance", _priors("power in the acceptance")),
    Fault(
        OURS,
        "rejection sampler: uniform for symmetric beta",
        _priors("uniform instead of symmetric beta"),
    ),
    Fault(
        OURS,
        "DPP: ordered for unordered eigenvalues in the normaliser",
        _priors("ordered instead of unordered eigenvalues"),
    ),
    Fault(
        OURS,
        "Bessel functions by the textbook formula, in float32",
        "tests/priors/test_mutations.py::"
        "test_autodiff_of_the_textbook_formula_is_useless_in_float32",
    ),
    # variational inference
    Fault(
        PAPER,
        "expert term without (2y - 1)",
        "tests/lab/paper/test_coordinate_ascent.py::test_the_printed_expert_term_is_not_a_bound",
    ),
    Fault(PAPER, "updates of the experts without (2y - 1)", _updates("without_sign")),
    Fault(
        PAPER,
        "c_n subtracted once per row and expert",
        "tests/lab/paper/test_bounds.py::test_a_shift_per_component_is_not_a_bound",
    ),
    Fault(PAPER, "c_n solved as if subtracted K times", _updates("shifts_per_component")),
    Fault(
        PAPER,
        "concentrations learned by the printed entropy",
        _updates("entropy_without_constant"),
    ),
    Fault(
        OURS,
        "sign of the curvature in the logistic bound",
        "tests/lab/paper/test_bounds.py::test_the_opposite_sign_of_the_curvature_is_not_a_bound",
    ),
    Fault(OURS, "sign of the curvature in the directions", _updates("downward_curvature")),
    # samplers of directions and lengths
    Fault(PAPER, "Algorithm 1, line 2: normal part only", _flow("line 2: normal part only")),
    Fault(
        PAPER,
        "Algorithm 1, lines 7 and 11: projected at the old point",
        _flow("lines 7, 11: projected at the old point"),
    ),
    Fault(
        PAPER,
        "Algorithm 1, line 9: velocity turned with the new point",
        _flow("line 9: velocity turned with the new point"),
    ),
    Fault(OURS, "momentum not projected", _flow("normal part kept")),
    Fault(OURS, "kinetic energy left out of the ratio", _flow("kinetic energy left out")),
    Fault(OURS, "trajectory always accepted", _flow("always accepted")),
    Fault(OURS, "trajectory: sign of the ratio", _flow("sign of the ratio flipped")),
    Fault(
        OURS,
        "gradient of the point before",
        "tests/infer/test_geodesic_hmc.py::test_a_stale_gradient_is_found",
    ),
    Fault(
        OURS,
        "no Jacobian of log-lengths in a trajectory",
        "tests/infer/test_geodesic_hmc.py::test_a_missing_jacobian_on_the_line_is_found",
    ),
    Fault(
        PAPER,
        "truncated normal walk without Phi(g/s)/Phi(g'/s)",
        _truncation("omitted-positive by row"),
    ),
    Fault(OURS, "the same correction inverted", _truncation("inverted-positive by row")),
    Fault(OURS, "walk: sign of the ratio", _acceptance("sign of the ratio flipped-chain by row")),
    Fault(OURS, "walk: always accepted", _acceptance("always accepted-chain by row")),
    Fault(
        OURS,
        "walk by rows: density of the block before the sweep",
        "tests/infer/test_metropolis.py::test_a_row_accepted_on_another_rows_density_is_found",
    ),
    Fault(OURS, "slice: budget not split at random", _slice("budget not split at random")),
    Fault(OURS, "slice: shrinks past the point", _slice("shrinks past the current point")),
    Fault(OURS, "slice: level at the density itself", _slice("level at the density itself")),
    Fault(
        OURS,
        "slice: level from the wrong distribution",
        _slice("level from the wrong distribution"),
    ),
    Fault(OURS, "slice: no Jacobian of the logarithm", _slice("Jacobian of the log left out")),
    # mixture of experts
    Fault(OURS, "whitened: free length without its density", _experts("no free length")),
    Fault(OURS, "whitened: no Jacobian of log-lengths", _experts("no log-length Jacobian")),
    Fault(
        OURS,
        "whitened: volume counted in the density",
        "tests/mixture_of_experts/test_coordinates.py::"
        "test_a_wrong_density_of_the_coordinates_is_found[volume in the density]",
    ),
    Fault(OURS, "common expert: left out of the prior", _experts("no common vector in the prior")),
    Fault(OURS, "common expert: no Jacobian of scales", _experts("no Jacobian of the scales")),
    Fault(OURS, "common expert: another width of scales", _experts("another width of the scales")),
    Fault(OURS, "common expert: one width for all scales", _experts("one width for all scales")),
    Fault(OURS, "common expert: no repulsion", _experts("no repulsion of deviations")),
    Fault(
        OURS,
        "coordinates that follow the scales: no Jacobian",
        _experts("no Jacobian of the stretch"),
    ),
    Fault(OURS, "great circles: no Jacobian", _experts("no Jacobian on the sphere")),
    Fault(OURS, "walk: prior of the experts counted twice", _experts("prior counted twice")),
    # experts that predict a quantity
    Fault(OURS, "a quantity: density without its normaliser", _gaussian("no normaliser")),
    Fault(OURS, "a quantity: variance for deviation", _gaussian("variance for deviation")),
    Fault(OURS, "a quantity: squares not halved", _gaussian("no half")),
    Fault(OURS, "a quantity: no log of two pi", _gaussian("no log of two pi")),
    Fault(OURS, "a quantity: density relative to 1", _gaussian("no floor in the constant")),
    Fault(OURS, "a quantity: noise without its least", _gaussian("no floor in the variance")),
    Fault(OURS, "a quantity: noise without its most", _gaussian("no ceiling")),
    Fault(
        OURS,
        "a quantity: slope of a noise without its least",
        _gaussian("slope of a noise without floor"),
    ),
    Fault(OURS, "a quantity: slope without the expectation", _gaussian("slope without minus one")),
    Fault(OURS, "a quantity: sign of the residual", _gaussian("sign of the residual")),
    Fault(
        OURS,
        "a quantity: log density not in the unit of the user",
        "tests/mixture_of_experts/test_regressor.py::test_a_density_in_another_unit_is_found",
    ),
    # latent features
    Fault(PAPER, "mu* taken as a constant", _features("_mean_constant")),
    Fault(PAPER, "sticks below the last active one kept", _features("_tail_kept")),
    Fault(PAPER, "last stick drawn like the others", _features("_last_stick_like_others")),
    Fault(PAPER, "sigma for sigma^2", _features("_sd_for_variance")),
    Fault(
        PAPER,
        "lengths in the prior terms of later features",
        _features("_lengths_in_the_chain"),
    ),
    Fault(
        PAPER,
        "no count of rows in the square of a length",
        _features("_count_forgotten_in_lengths"),
    ),
    Fault(
        PAPER,
        "all rows, not those that use it, draw a feature",
        _features("_all_rows_in_the_pull"),
    ),
    Fault(OURS, "terms of later features left out", _features("_later_terms_ignored")),
    Fault(
        OURS,
        "lengths: density of the proposal left out",
        "tests/latent_features/test_lengths.py::test_a_forgotten_proposal_is_seen",
    ),
    Fault(OURS, "relocations that ignore the directions", _features("_order_ignored")),
    Fault(OURS, "inactive features without thinning", _features("_no_thinning")),
    Fault(OURS, "births: candidates for death not counted", _features("_victims_forgotten")),
    Fault(OURS, "births: bound of the level left out", _features("_bound_forgotten_in_births")),
    Fault(OURS, "births: choice of the anchor", _small("_anchor_forgotten")),
    Fault(OURS, "cycles: empty column counted", _small("_empty_column_in_cycles")),
    Fault(OURS, "cycles: no Jacobian of weights", _small("_no_jacobian_of_weights_in_cycles")),
    Fault(OURS, "cycles: no Jacobian of lengths", _small("_no_jacobian_of_lengths_in_cycles")),
    Fault(
        OURS,
        "cycles: directions without the other features",
        _small("_others_forgotten_in_cycles"),
    ),
    Fault(
        OURS,
        "exchangeable features scanned in order of age",
        "tests/latent_features/test_sweep.py::test_a_scan_in_order_of_age_is_seen",
    ),
    # clusters of directions
    *(
        Fault(OURS, f"clusters: {words}", _clusters(words))
        for words in (
            "centres and order always accepted",
            "wrong normaliser",
            "no probability of the order of sticks",
            "splits and merges always accepted",
            "probability of the division forgotten",
            "centres and counts of both left out",
            "constant of the concentration's prior",
            "place of a new cluster forgotten",
            "an empty cluster swapped to the end",
            "a merge that leaves an empty cluster at the end",
        )
    ),
    Fault(
        OURS,
        "clusters: bound without the constant of the concentration's prior",
        "tests/spherical_mixture/test_bound.py::"
        "test_a_bound_without_the_constant_of_a_prior_is_seen",
    ),
    # two of them again, by the ranks of this bench
    Fault(
        PAPER,
        "truncated normal walk without Phi(g/s)/Phi(g'/s), by ranks",
        "tests/lab/calibration/test_cases.py::test_ranks_see_a_walk_without_its_correction",
    ),
    Fault(
        PAPER,
        "mu* taken as a constant, by ranks",
        "tests/lab/calibration/test_cases.py::"
        "test_ranks_see_the_smallest_weight_taken_as_a_constant",
    ),
]


class Recorder:
    """A pytest plugin: outcome, time and measured numbers of each test."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self._began = 0.0

    def pytest_runtest_setup(self, item: Any) -> None:
        MEASURED.clear()
        self._began = time.monotonic()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call":
            numbers = [found._asdict() for found in MEASURED]
            self.rows[report.nodeid] = {
                "caught": report.outcome == "passed",
                "measured": numbers,
                "seconds": round(time.monotonic() - self._began, 1),
            }


def run(record: Path, arguments: list[str]) -> int:
    """Run the tests of the table, and write what they found; the exit code is that of pytest."""
    recorder = Recorder()
    tests = [fault.test for fault in FAULTS]
    code = pytest.main(["-q", "-p", "no:cacheprovider", *arguments, *tests], plugins=[recorder])
    record.parent.mkdir(parents=True, exist_ok=True)
    where = machine.describe()
    with record.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # parts may run side by side
        file.seek(0)
        earlier = json.loads(file.read() or '{"rows": []}')["rows"]
        known = {row["test"]: row for row in earlier}
        for fault in FAULTS:
            if fault.test in recorder.rows:
                found = recorder.rows[fault.test] | {"commit": where["commit"]}
                known[fault.test] = fault._asdict() | found
        not_run = {"caught": None, "measured": []}
        rows = [known.get(fault.test, fault._asdict() | not_run) for fault in FAULTS]
        file.truncate(0)
        file.write(json.dumps({**where, "rows": rows}, indent=1) + "\n")
    return int(code)


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.exit(run(Path(sys.argv[1]), sys.argv[2:]))
