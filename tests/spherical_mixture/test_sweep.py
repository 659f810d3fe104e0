"""The Gibbs sampler leaves the posterior alone: exact restarts, and faults that they see."""

import jax.numpy as jnp
import pytest

from statistical import measured
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.spherical_mixture import split_merge, sweep
from wideangle_lab.calibration import clusters
from wideangle_lab.calibration.verdicts import LIMIT

CASES = {case.process: case for case in clusters.CASES}


def largest(process, **options):
    """Largest mean paired change over exact restarts, in standard errors."""
    found = clusters.restart(CASES[process], n_starts=4000, seed=0, **options)
    assert found.notes["overflow"] < 0.01
    return abs(found.z[found.worst]), found.z


def few_rows(monkeypatch):
    """A problem in which empty clusters among others are common."""
    monkeypatch.setattr(clusters, "N_ROWS", 4)
    monkeypatch.setattr(clusters, "ALPHA", 1.0)


@pytest.mark.slow
def test_restarts_of_few_rows_stay_where_they_are(monkeypatch):
    few_rows(monkeypatch)
    value, found = largest("infinite, alpha given", n_sweeps=8)
    assert value < LIMIT, found


@pytest.mark.slow
@pytest.mark.parametrize("process", CASES)
def test_restarts_stay_where_they_are(process):
    value, found = largest(process)
    assert value < LIMIT, found


def _always(module):
    def plant(monkeypatch):
        monkeypatch.setattr(module, "accept", lambda key, ratio: (jnp.array(True), jnp.ones(())))

    return plant


def _own_term_forgotten(monkeypatch):
    plain = MutualAngular.next_component

    def uniform(self, directions):
        return plain(self, jnp.zeros_like(directions))

    monkeypatch.setattr(MutualAngular, "next_component", uniform)
    _always(sweep)(monkeypatch)


def _order_always_accepted(monkeypatch):
    monkeypatch.setattr(sweep, "log_order", lambda counts, alpha, live: jnp.zeros(()))


def _no_normaliser(monkeypatch):
    monkeypatch.setattr(sweep, "log_mean_exp", lambda kappa, dim: 0.5 * kappa)


def _without(name, replaced):
    def plant(monkeypatch):
        plain = getattr(split_merge, name)
        monkeypatch.setattr(split_merge, name, lambda *args: replaced(plain(*args)))

    return plant


def _empty_last_place(module):
    def plant(monkeypatch):
        monkeypatch.setattr(module, "ends_with_rows", lambda counts, n_places: jnp.array(True))
        few_rows(monkeypatch)

    return plant


FAULTS = {
    "centres and order always accepted": ("finite", _own_term_forgotten),
    "no probability of the order of sticks": ("infinite, alpha given", _order_always_accepted),
    "wrong normaliser": ("finite", _no_normaliser),
    "splits and merges always accepted": ("infinite, alpha given", _always(split_merge)),
    "probability of the division forgotten": (
        "infinite, alpha given",
        _without("divide", lambda found: found._replace(log_chance=0.0 * found.log_chance)),
    ),
    "centres and counts of both left out": (
        "infinite, alpha given",
        _without("log_density", lambda found: 0.0 * found),
    ),
    "constant of the concentration's prior": (
        "infinite, alpha given",
        _without("worth_of", lambda found: found + 1.0),
    ),
    "place of a new cluster forgotten": (
        "infinite, alpha given",
        _without("log_chance_of_place", lambda found: 0.0 * found),
    ),
    "an empty cluster swapped to the end": ("infinite, alpha given", _empty_last_place(sweep)),
    "a merge that leaves an empty cluster at the end": (
        "infinite, alpha given",
        _empty_last_place(split_merge),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(fault, monkeypatch):
    process, plant = FAULTS[fault]
    plant(monkeypatch)
    n_sweeps = 8 if "empty cluster" in fault else 3
    value, _ = largest(process, until=LIMIT, n_sweeps=n_sweeps)
    assert measured("max |z|", value, LIMIT) > LIMIT
