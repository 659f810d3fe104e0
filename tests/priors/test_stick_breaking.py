"""Weights of infinitely many features: draws and densities against integrals and enumeration."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import gammaln

from statistical import FOUR, ks_pvalue, z_score
from wideangle.priors import stick_breaking as sticks
from wideangle.priors.stick_breaking import Buffet

IBP = Buffet(1.7, 0.0, 1.0)
POWER = Buffet(1.2, 0.3, 1.5)
N_ROWS = 6


def rate(buffet, u):
    mass, d, c = buffet
    constant = mass * np.exp(gammaln(1 + c) - gammaln(1 - d) - gammaln(c + d))
    return constant * u ** (-d - 1) * (1 - u) ** (c + d - 1)


def as_arrays(buffet):
    return Buffet(*map(jnp.asarray, buffet))


@pytest.mark.parametrize("buffet", [IBP, POWER])
@pytest.mark.parametrize(("low", "high"), [(0.01, 1.0), (0.003, 0.4)])
def test_inactive_points_have_their_rate(buffet, low, high):
    def draw(key):
        return sticks.draw_inactive(
            key, as_arrays(buffet), N_ROWS, jnp.asarray(low), jnp.asarray(high), 128
        )

    atoms = jax.vmap(draw)(jax.random.split(jax.random.key(0), 5000))
    assert not np.any(atoms.overflow)

    def mass(a, b):
        return integrate.quad(lambda u: rate(buffet, u) * (1 - u) ** N_ROWS, a, b)[0]

    total = mass(low, high)
    assert z_score(atoms.n_atoms, total) < FOUR
    assert z_score((np.asarray(atoms.n_atoms) - total) ** 2, total) < FOUR  # Poisson
    weights = np.asarray(atoms.weights)
    assert np.all(np.diff(weights, axis=1) <= 0)
    points = weights[weights > 0]
    assert points.min() > low
    assert points.max() < high
    some = np.random.default_rng(0).choice(points, 1000, replace=False)
    assert ks_pvalue(some, np.vectorize(lambda u: mass(low, u) / total)) > 1e-4


def test_more_room_gives_the_same_points():
    def draw(room):
        low, high = jnp.asarray(0.001), jnp.asarray(1.0)
        return sticks.draw_inactive(jax.random.key(3), as_arrays(IBP), N_ROWS, low, high, room)

    small, large = draw(64), draw(200)
    n = int(small.n_atoms)
    assert n == int(large.n_atoms) > 0
    np.testing.assert_allclose(small.weights[:n], large.weights[:n])
    assert bool(draw(2).overflow)


@pytest.mark.parametrize("buffet", [IBP, POWER])
def test_weights_of_births_have_their_density(buffet):
    low = 0.02
    share = jax.random.uniform(jax.random.key(1), (2000,))
    draws = sticks.place_weight(share, as_arrays(buffet), jnp.asarray(low))
    total = np.exp(sticks.log_total_rate(as_arrays(buffet), jnp.asarray(low)))

    def below(u):
        plain = buffet._replace(strength=1.0 - buffet.discount)  # without the factor of (1 - u)
        scale = np.exp(sticks.log_constant(as_arrays(buffet)))
        scale /= np.exp(sticks.log_constant(as_arrays(plain)))
        return scale * integrate.quad(lambda v: rate(plain, v), low, u)[0] / total

    assert below(1.0) == pytest.approx(1.0)
    assert ks_pvalue(draws, np.vectorize(below)) > 1e-4
    whole = rate(buffet, 0.3) / np.exp(sticks.log_tilt(as_arrays(buffet), jnp.asarray(0.3)))
    scale = np.exp(sticks.log_constant(as_arrays(buffet)))
    assert whole == pytest.approx(scale * 0.3 ** (-buffet.discount - 1))


@pytest.mark.parametrize("buffet", [IBP, POWER])
def test_the_probability_of_counts_integrates_the_weights_out(buffet):
    counts = np.array([3, 1, 6, 0, 0])
    found = sticks.log_marginal(as_arrays(buffet), jnp.asarray(counts), N_ROWS)
    atoms = [
        integrate.quad(lambda u, m=m: rate(buffet, u) * u**m * (1 - u) ** (N_ROWS - m), 0, 1)[0]
        for m in counts[counts > 0]
    ]
    used = integrate.quad(lambda u: rate(buffet, u) * (1 - (1 - u) ** N_ROWS), 0, 1)[0]
    assert float(found) == pytest.approx(np.sum(np.log(atoms)) - used, rel=1e-6)
    assert float(sticks.expected_features(as_arrays(buffet), N_ROWS)) == pytest.approx(used)


def test_the_indian_buffet_has_a_harmonic_number_of_features():
    harmonic = sum(1 / n for n in range(1, N_ROWS + 1))
    assert float(sticks.expected_features(as_arrays(IBP), N_ROWS)) == pytest.approx(1.7 * harmonic)


@pytest.mark.parametrize("buffet", [IBP, POWER])
def test_active_weights_are_beta(buffet):
    counts = jnp.asarray([2, 5])
    draws = jax.vmap(lambda key: sticks.draw_active(key, as_arrays(buffet), counts, N_ROWS))(
        jax.random.split(jax.random.key(2), 2000)
    )
    d, c = buffet.discount, buffet.strength
    for column, m in zip(np.asarray(draws).T, (2, 5), strict=True):
        expected = stats.beta(m - d, N_ROWS - m + c + d)
        assert ks_pvalue(column, expected.cdf) > 1e-4


def test_the_last_stick_sees_all_sticks_below_it():
    """exp(-mass of rows' uses below) in closed form against its integral."""
    mu, alpha = 0.2, 1.7
    inside = integrate.quad(lambda u: (1 - (1 - u) ** N_ROWS) / u, 0, mu)[0]
    harmonic = sum(1 / n for n in range(1, N_ROWS + 1))
    found = sticks.log_below(jnp.log(mu), N_ROWS, alpha)
    assert float(found) == pytest.approx(alpha * (harmonic - inside + np.log(mu)))
    assert float(sticks.mass_rate(jnp.asarray(mu), N_ROWS)) == pytest.approx(inside - np.log(mu))


def test_the_density_of_a_stick_is_that_of_its_count():
    mu = np.array([0.05, 0.5, 0.9])
    found = sticks.log_stick(jnp.log(mu), 2, N_ROWS)
    np.testing.assert_allclose(found, 2 * np.log(mu) + 4 * np.log1p(-mu), rtol=1e-12)


def test_log_constant_is_the_mass_for_the_indian_buffet():
    assert float(jnp.exp(sticks.log_constant(as_arrays(IBP)))) == pytest.approx(1.7)
    d, c = POWER.discount, POWER.strength
    expected = np.log(1.2) + gammaln(1 + c) - gammaln(1 - d) - gammaln(c + d)
    assert float(sticks.log_constant(as_arrays(POWER))) == pytest.approx(expected)


def test_weights_stay_inside_the_unit_interval_in_float32():
    weights = sticks.inside(jnp.asarray([0.0, 0.5, 1.0], jnp.float32))
    assert np.all(np.isfinite(np.log(weights) - np.log1p(-weights)))
