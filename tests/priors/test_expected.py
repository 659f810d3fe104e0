"""Moments of the variational factors, and the prior's expectation under them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from priors import prior_checks
from priors.prior_checks import some_factors, unit_rows
from statistical import FOUR, central_difference, relative_error, z_score
from wideangle import (
    GaussianComponents,
    MutualAngular,
    PolarComponents,
    VmfGammaFactors,
    expected_log_prior,
)
from wideangle.priors import expected
from wideangle.sphere.vmf import log_mean_exp

FACTORS = some_factors()
FIRST = np.array([0.0, 0.6, 0.8])


def test_moments_of_the_factors():
    draws = FACTORS.sample(jax.random.key(0), (40_000,))
    assert z_score(draws.directions, FACTORS.expected_directions) < FOUR
    assert z_score(draws.magnitudes, FACTORS.expected_magnitudes) < FOUR
    assert z_score(jnp.log(draws.magnitudes), FACTORS.expected_log_magnitudes) < FOUR
    assert z_score(draws.magnitudes**2, FACTORS.expected_square_magnitudes) < FOUR
    expected = FACTORS.expected_magnitudes[..., None] * FACTORS.expected_directions
    assert z_score(draws.vectors, expected) < FOUR
    lengths = np.linalg.norm(FACTORS.expected_directions, axis=-1)
    np.testing.assert_allclose(FACTORS.resultants, lengths)


def test_moments_of_lengths():
    assert prior_checks.length_z_score(FACTORS) < FOUR


def test_entropy_of_the_factors():
    assert prior_checks.entropy_z_score(FACTORS) < FOUR


def test_square_of_the_resultant():
    assert prior_checks.square_resultant_z_score(expected) < FOUR


EXACT = {
    "independent": PolarComponents(MutualAngular(4, 3, 2.0, "independent", FIRST), 3.0, 1.5),
    "uniform": PolarComponents(MutualAngular(4, 3, 5.0, "independent"), 3.0, 1.5),
    "concentration 0": PolarComponents(MutualAngular(4, 3, 0.0, "II", FIRST), 3.0, 1.5),
    "type I at 0": PolarComponents(MutualAngular(4, 3, 0.0, "I"), 3.0, 1.5),
    "gaussian": GaussianComponents(4, 3, 1.7),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow if n in ("uniform", "type I at 0") else [])
        for n in EXACT
    ],
)
def test_expectation_is_exact_where_it_can_be(name):
    prior = EXACT[name]
    draws = FACTORS.sample(jax.random.key(1), (40_000,))
    value = expected_log_prior(FACTORS, prior)
    assert z_score(prior.log_prob_polar(draws), value) < FOUR
    # Divergence of q from the prior.
    assert -value - FACTORS.entropy_to_uniform() > 0


def test_divergence_from_itself_is_zero():
    mean = jnp.asarray(FIRST)
    factors = VmfGammaFactors(
        jnp.stack([mean] * 2), jnp.full(2, 3.0), jnp.full(2, 4.0), jnp.full(2, 0.5)
    )
    prior = PolarComponents(MutualAngular(2, 3, 3.0, "independent", mean), 4.0, 0.5)
    divergence = -expected_log_prior(factors, prior) - factors.entropy_to_uniform()
    assert abs(float(divergence)) < 1e-12


# Dimension, components, concentration of the prior and of q, and the largest share of
# E sum G that the bound may give away (a few times what it does on average).
GAPS = [
    (3, 30, 1.5, 1.5, 0.12),
    pytest.param(123, 30, 61.5, 61.5, 0.004, marks=pytest.mark.slow),
    pytest.param(3, 5, 10.0, 10.0, 0.03, marks=pytest.mark.slow),
    pytest.param(10, 30, 10.0, 10.0, 0.05, marks=pytest.mark.slow),
    pytest.param(10, 5, 1.0, 10.0, 0.004, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("dim", "n", "kappa", "own", "share"), GAPS)
def test_jensen_bound_is_below_the_truth_and_close(dim, n, kappa, own, share):
    ones = jnp.ones(n)
    factors = VmfGammaFactors(jnp.asarray(unit_rows(0, n, dim)), own * ones, 2 * ones, ones)
    prior = MutualAngular(n, dim, kappa, "II")
    rows = factors.sample(jax.random.key(2), (1000,)).directions
    before = np.asarray(jnp.cumsum(rows, axis=-2) - rows)[:, 1:]
    squares = kappa**2 * np.sum(before**2, axis=-1)
    g = jax.jit(lambda u: log_mean_exp(jnp.sqrt(u), dim))
    means = kappa**2 * np.asarray(expected.expected_square_resultants(factors))[1:]
    bound = np.asarray(expected.jensen_log_normaliser(means, dim))
    # The tangent at the mean has the same expectation as the bound, and far less noise.
    slope = (g(means * (1 + 1e-5)) - g(means * (1 - 1e-5))) / (2e-5 * means)
    gap = np.sum(bound + slope * (squares - means) - g(squares), axis=-1)
    assert np.all(gap > -1e-7)  # concavity, draw by draw
    assert 0 < gap.mean() < share * np.sum(g(squares), axis=-1).mean()
    # The companion: log Z is convex in S, so the value at E S is below.
    centre = kappa * np.linalg.norm(np.cumsum(factors.expected_directions, 0)[:-1], axis=-1)
    truth = np.sum(bound) - gap.mean()
    assert np.sum(log_mean_exp(centre, dim)) < truth
    # And the whole expectation is below its truth by the gap.
    exact = np.asarray(prior.log_ratio_to_uniform(rows))
    value = float(expected.expected_log_directions(factors, prior))
    error = FOUR * exact.std() / np.sqrt(len(exact))
    assert abs(exact.mean() - gap.mean() - value) < error


def test_type_two_expectation_is_a_lower_bound():
    prior = PolarComponents(MutualAngular(4, 3, 2.0, "II", FIRST), 3.0, 1.5)
    truth = np.asarray(prior.log_prob_polar(FACTORS.sample(jax.random.key(3), (20_000,))))
    value = float(expected_log_prior(FACTORS, prior))
    assert value < truth.mean() + FOUR * truth.std() / np.sqrt(len(truth))
    assert -value - float(FACTORS.entropy_to_uniform()) > 0


def test_gradients_against_differences():
    prior = PolarComponents(MutualAngular(4, 3, 2.0, "II", FIRST), 3.0, 1.5)

    def objective(concentrations):
        factors = FACTORS._replace(concentrations=jnp.asarray(concentrations))
        return expected_log_prior(factors, prior) + factors.entropy_to_uniform()

    slope = jax.jit(jax.grad(objective))(FACTORS.concentrations)
    differences = central_difference(jax.jit(objective), FACTORS.concentrations, 1e-5)
    assert relative_error(slope, differences) < 1e-5


def test_gradient_is_finite_without_a_resultant():
    assert jax.grad(lambda u: expected.jensen_log_normaliser(u, 3))(0.0) == 0


def test_what_has_no_closed_form_is_refused():
    prior = PolarComponents(MutualAngular(4, 3, 2.0, "I"), 3.0, 1.5)
    with pytest.raises(ValueError, match=r"kind='I'.*no closed form"):
        expected_log_prior(FACTORS, prior)
