"""The sampler of the latent feature model leaves its posterior alone, and its faults do not."""

import jax.numpy as jnp
import numpy as np
import pytest

from feature_geweke import FIXED, N_ROWS, geweke
from statistical import measured
from wideangle.latent_features import births as lfm_births
from wideangle.latent_features import columns, directions
from wideangle.latent_features import hyper as lfm_hyper
from wideangle.latent_features import sweep as lfm_sweep
from wideangle.latent_features import weights as lfm_weights
from wideangle.latent_features.state import Design, Gamma
from wideangle.priors import mutual_angular, stick_breaking
from wideangle_lab.calibration.features import HYPERPRIORS, pitman_yor, unknown
from wideangle_lab.calibration.features import LEARNED as LEARNED_NUMBERS

LIMIT = 4.2
"""Of about 20 correlated z-scores, the largest a right sampler may show."""
HARMONIC = sum(1 / n for n in range(1, N_ROWS + 1))

EXCHANGEABLE = {
    "gaussian": Design("gaussian", False),
    "vmf": Design("polar", False),
    "vmf, together": Design("polar", False, hamiltonian=True),
}
ORDERED = {
    "mutual-angular": Design(),
    "mutual-angular, together": Design(hamiltonian=True),
}


LEARNED = Design(learned=LEARNED_NUMBERS, **HYPERPRIORS)


@pytest.mark.slow
@pytest.mark.usefixtures("compile_quickly")
def test_a_few_sweeps_leave_the_joint_distribution_alone():
    verdict = geweke(n=500, n_sweeps=2)
    assert verdict.worst < LIMIT, verdict.z
    assert verdict.n_overflow == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", [*EXCHANGEABLE, *ORDERED])
def test_sweeps_leave_the_joint_distribution_alone(name):
    verdict = geweke({**EXCHANGEABLE, **ORDERED}[name], n=6000, n_sweeps=6)
    assert verdict.worst < LIMIT, verdict.z
    assert verdict.n_overflow <= 3


@pytest.mark.slow
@pytest.mark.parametrize("kappa", [0.5, 20.0])
def test_sweeps_leave_the_joint_distribution_alone_for_weak_and_strong_repulsion(kappa):
    verdict = geweke(
        Design(magnitude_shape=3.0), lambda rng: {**FIXED, "kappa": kappa}, n=4000, seed=1
    )
    assert verdict.worst < LIMIT, verdict.z


@pytest.mark.slow
@pytest.mark.parametrize("design", [EXCHANGEABLE["gaussian"], EXCHANGEABLE["vmf"]])
def test_sweeps_leave_the_power_law_model_alone(design):
    verdict = geweke(design, pitman_yor, n=4000, room=128, seed=2)
    assert verdict.worst < LIMIT, verdict.z
    # The number of features has a heavy tail; those few are left out, and may move no mean by more.
    assert verdict.n_overflow <= 8


@pytest.mark.slow
@pytest.mark.parametrize("features", ["gaussian", "polar"])
def test_many_births_and_deaths_leave_the_joint_distribution_alone(features):
    """What few of them do wrong is too rare to be seen."""
    design = Design(features, False, n_births=20, n_cycles=20)
    verdict = geweke(design, n=6000, n_sweeps=6, seed=4)
    assert verdict.worst < LIMIT, verdict.z


@pytest.mark.slow
def test_sweeps_leave_the_joint_distribution_of_learned_hyperparameters_alone():
    verdict = geweke(LEARNED, unknown, n=6000, room=96, seed=3)
    assert verdict.worst < LIMIT, verdict.z


@pytest.mark.slow
def test_sweeps_leave_learned_discount_and_strength_alone(monkeypatch):
    def values(rng):
        return {
            **FIXED,
            "alpha": rng.gamma(3.0) / 4.0,
            "rate": rng.gamma(4.0) / 4.0,
            "discount": rng.uniform(0, lfm_hyper.MAX_DISCOUNT),
            "strength": rng.gamma(1.0) + 1e-3,
        }

    priors = {**HYPERPRIORS, "mass": Gamma(3.0, 4.0)}
    learned = frozenset({"discount", "strength", "rate", "mass"})
    # A discount near 1/2 would need very many features: its prior is truncated below that.
    monkeypatch.setattr(lfm_hyper, "MAX_DISCOUNT", 0.25)
    verdict = geweke(Design("gaussian", False, learned=learned, **priors), values, n=3000, room=160)
    assert verdict.worst < LIMIT, verdict.z


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gaussian", "vmf", "mutual-angular"])
def test_the_number_of_features_has_its_known_distribution_where_the_rows_say_nothing(name):
    design = {**EXCHANGEABLE, **ORDERED}[name]
    n = 6000
    verdict = geweke(
        design, lambda rng: {**FIXED, "noise": 1e8}, n=n, n_sweeps=6, rows_from_model=False
    )
    exact = FIXED["alpha"] * HARMONIC
    assert abs(verdict.mean_active - exact) < 4 * np.sqrt(exact / n)
    assert verdict.worst < LIMIT, verdict.z


# ---------------------------------------------------------------- faults, put in on purpose


def _mean_constant(monkeypatch):
    """The weight of the last active feature taken as a constant."""
    monkeypatch.setattr(columns, "_coupled", lambda logit, free, *rest: free)


def _tail_kept(monkeypatch):
    """Inactive features after the last active one kept from sweep to sweep."""
    monkeypatch.setattr(lfm_sweep, "without_tail", lambda features, counts: features)
    monkeypatch.setattr(lfm_weights, "without_tail", lambda features, counts: features)


def _sd_for_variance(monkeypatch):
    right = lfm_sweep.sweep_columns

    def sweep(*arrays, **options):
        return right(*arrays[:-1], jnp.sqrt(arrays[-1]), **options)

    monkeypatch.setattr(lfm_sweep, "sweep_columns", sweep)


def _last_stick_like_others(monkeypatch):
    monkeypatch.setattr(stick_breaking, "log_below", lambda value, n, mass: 0.0 * value)


def _later_terms_ignored(monkeypatch):
    right = directions._judge

    def judge(key, k, change, turn, kappa, n_live):
        return right(key, k, change, turn, 0.0 * kappa, n_live)

    monkeypatch.setattr(directions, "_judge", judge)


def _lengths_in_the_chain(monkeypatch):
    """Vectors instead of directions in the prior terms of later features."""
    right = mutual_angular.pull_in_order
    monkeypatch.setattr(lfm_births, "pull_in_order", lambda *both: 2.0 * right(*both))


def _count_forgotten_in_lengths(monkeypatch):
    """The square of a length weighed as if one row used the feature."""
    right = directions._length_kernel

    def kernel(hyper, design):
        move = right(hyper, design)
        return lambda key, length, pull, count: move(key, length, pull, jnp.minimum(count, 1.0))

    monkeypatch.setattr(directions, "_length_kernel", kernel)


def _all_rows_in_the_pull(monkeypatch):
    """A feature drawn towards every row, and not only towards those that use it."""
    right = lfm_sweep.stats_of

    def stats_of(data, assignments):
        stats = right(data, assignments)
        total = right(data, jnp.ones_like(assignments)).cross
        return stats._replace(cross=jnp.where(stats.counts[:, None] > 0, total, 0.0))

    monkeypatch.setattr(lfm_sweep, "stats_of", stats_of)


def _victims_forgotten(monkeypatch):
    right = lfm_births._log_ratio

    def ratio(without, new, fit, offer, *rest):
        return right(without, new, fit, offer._replace(n_victims=1), *rest)

    monkeypatch.setattr(lfm_births, "_log_ratio", ratio)


def _bound_forgotten_in_births(monkeypatch):
    """The same bound before and after, so that the density of the level drops out."""
    monkeypatch.setattr(lfm_births, "level_bound", lambda *arrays: jnp.full((), 1e-30))


def _anchor_forgotten(monkeypatch):
    """A death that takes any user of a feature as its anchor, and does not say of how many."""
    right = lfm_births._anchored_fit

    def fit(one, *rest):
        return right(one, *rest) + jnp.log(jnp.sum(one.column))

    monkeypatch.setattr(lfm_births, "_anchored_fit", fit)


def _empty_column_in_cycles(monkeypatch):
    """The column summed out with the empty one, and then drawn without it."""
    monkeypatch.setattr(lfm_births, "log_any", lfm_births.log_used)


def _no_jacobian_of_weights_in_cycles(monkeypatch):
    right = lfm_births._log_weight
    monkeypatch.setattr(lfm_births, "_log_weight", lambda log, hyper: right(log, hyper) - log)


def _no_jacobian_of_lengths_in_cycles(monkeypatch):
    right = lfm_births._log_length
    monkeypatch.setattr(lfm_births, "_log_length", lambda log, *rest: right(log, *rest) - log)


def _others_forgotten_in_cycles(monkeypatch):
    """A direction drawn towards the rows of its feature, with what other features explain."""
    right = lfm_births._move_vector

    def move(chances, without, *rest):
        return right(chances, without._replace(columns=0.0 * without.columns), *rest)

    monkeypatch.setattr(lfm_births, "_move_vector", move)


def _order_ignored(monkeypatch):
    """Relocations accepted whatever they do to the chain of directions."""
    monkeypatch.setattr(lfm_weights, "pull_in_order", lambda cosines, weights: 0.0 * weights[0])


def _no_thinning(monkeypatch):
    right = stick_breaking.draw_inactive

    def draw(key, buffet, n_rows, low, high, room):
        return right(key, buffet, 0, low, high, room)

    monkeypatch.setattr(stick_breaking, "draw_inactive", draw)


FAULTS = [
    _mean_constant,
    _tail_kept,
    _sd_for_variance,
    _last_stick_like_others,
    _later_terms_ignored,
    _lengths_in_the_chain,
    _count_forgotten_in_lengths,
    _all_rows_in_the_pull,
    _victims_forgotten,
    _bound_forgotten_in_births,
    _order_ignored,
    _no_thinning,
]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(monkeypatch, fault):
    fault(monkeypatch)
    assert measured("max |z|", geweke(n=6000, n_sweeps=6, until=LIMIT).worst, LIMIT) > LIMIT


@pytest.mark.slow
def test_a_scan_in_order_of_age_is_seen(monkeypatch):
    """Exchangeable features sorted by age instead of weight: a scan that depends on the state."""
    right = jnp.argsort

    def argsort(array, *args, **kwargs):
        is_weights = jnp.issubdtype(array.dtype, jnp.floating)
        return jnp.arange(array.shape[0]) if is_weights else right(array, *args, **kwargs)

    monkeypatch.setattr(lfm_weights.jnp, "argsort", argsort)
    verdict = geweke(EXCHANGEABLE["gaussian"], n=6000, n_sweeps=6, until=LIMIT)
    assert measured("max |z|", verdict.worst, LIMIT) > LIMIT


def test_the_pull_in_order_of_weight_needs_no_sorting():
    rng = np.random.default_rng(0)
    for n_zero in (0, 3):
        rows = rng.normal(size=(9, 4))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        weights = rng.random(9)
        weights[:n_zero] = 0.0
        weights[5] = weights[7]  # in order of their numbers
        order = np.argsort(-weights, kind="stable")
        sorted_rows = rows[order][: 9 - n_zero]
        before = np.cumsum(sorted_rows, axis=0)[:-1]
        units = before / np.linalg.norm(before, axis=1, keepdims=True)
        exact = -np.sum(units * sorted_rows[1:])
        found = mutual_angular.pull_in_order(jnp.asarray(rows @ rows.T), jnp.asarray(weights))
        np.testing.assert_allclose(found, exact, rtol=1e-12)
