"""Priors over whole components: Jacobian, polar form, lengths, the Gaussian baseline."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from priors.prior_checks import cartesian_mass, unit_rows
from statistical import FOUR, RARE, ks_pvalue, relative_error, z_score
from wideangle import (
    Components,
    DeterminantalComponents,
    GaussianComponents,
    MutualAngular,
    PolarComponents,
)
from wideangle.priors.components import ComponentPrior

PRIORS = {
    "polar": PolarComponents(MutualAngular(3, 4, 2.0), 3.0, 0.5),
    "gaussian": GaussianComponents(3, 4, 1.5),
    "determinantal": DeterminantalComponents(3, 4, 1.5),
}


def some_vectors(*shape):
    return np.random.default_rng(0).normal(size=shape)


def test_density_of_vectors_integrates_to_one():
    assert z_score(cartesian_mass(), 1.0) < FOUR


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_polar_density_is_the_cartesian_one_times_the_volume(prior):
    polar = Components.from_vectors(some_vectors(5, 3, 4))
    expected = ComponentPrior.log_prob_polar(prior, polar)
    np.testing.assert_allclose(prior.log_prob_polar(polar), expected, rtol=1e-12)


def test_polar_density_is_direction_times_gamma():
    prior = PRIORS["polar"]
    polar = Components.from_vectors(some_vectors(3, 4))
    gamma = stats.gamma(3.0, scale=2.0).logpdf(np.asarray(polar.magnitudes)).sum()
    angular = prior.directions.log_ratio_to_uniform(polar.directions)
    assert relative_error(prior.log_prob_polar(polar), gamma + angular) < 1e-12
    # Padding adds nothing.
    padded = Components(*(jnp.concatenate([part, jnp.zeros_like(part[:1])]) for part in polar))
    assert relative_error(prior.log_prob_polar(padded), gamma + angular) < 1e-12


def test_lengths_of_draws_are_gamma_and_free_of_the_directions():
    prior = PRIORS["polar"]
    polar = prior.sample_polar(jax.random.key(0), (10_000,))
    assert ks_pvalue(polar.magnitudes, stats.gamma(3.0, scale=2.0).cdf) > RARE
    np.testing.assert_allclose(jnp.linalg.norm(polar.directions, axis=-1), 1.0, atol=1e-12)
    cross = (polar.magnitudes - 6.0)[..., None] * polar.directions
    assert z_score(cross, 0.0) < FOUR
    vectors = prior.sample(jax.random.key(0), (10_000,))
    np.testing.assert_allclose(vectors, polar.vectors, rtol=1e-12)


def test_a_tiny_shape_still_gives_positive_lengths():
    prior = PolarComponents(
        MutualAngular(2, 3, jnp.float32(1.0)), jnp.float32(0.01), jnp.float32(9)
    )
    draws = prior.sample_polar(jax.random.key(0), (2000,))
    assert np.all(draws.magnitudes > 0)
    assert np.all(np.isfinite(prior.log_prob_polar(draws)))


@pytest.mark.parametrize("prior", [PRIORS["polar"], PRIORS["gaussian"]], ids=["polar", "gaussian"])
def test_one_more_component(prior):
    polar = prior.sample_polar(jax.random.key(1))
    keys = jax.random.split(jax.random.key(2), 4000)
    new = jax.vmap(lambda key: prior.draw_next(key, polar))(keys)
    assert new.directions.shape == (4000, 4)
    expected = stats.gamma(3.0, scale=2.0) if prior is PRIORS["polar"] else stats.chi(4, scale=1.5)
    assert ks_pvalue(new.magnitudes, expected.cdf) > RARE


def test_gaussian_density():
    vectors = some_vectors(5, 3, 4)
    expected = stats.norm(0, 1.5).logpdf(vectors).sum((-2, -1))
    np.testing.assert_allclose(PRIORS["gaussian"].log_prob(vectors), expected, rtol=1e-12)
    draws = np.asarray(PRIORS["gaussian"].sample(jax.random.key(0), (5000,)))
    assert ks_pvalue(draws, stats.norm(0, 1.5).cdf) > RARE


def test_lengths_with_more_batch_axes_get_directions_of_their_own():
    prior = PolarComponents(MutualAngular(2, 3, 1.0), jnp.ones(2), 1.0)
    left, right = prior.sample_polar(jax.random.key(0)).directions
    assert not np.allclose(left, right)


def test_directions_must_have_a_density():
    with pytest.raises(ValueError, match=r"directions=.*log_ratio_to_uniform"):
        PolarComponents(GaussianComponents(2, 3), 1.0, 1.0)


def test_single_precision_is_kept():
    prior = PolarComponents(MutualAngular(2, 3, jnp.float32(1)), jnp.float32(2), jnp.float32(1))
    draws = prior.sample(jax.random.key(0))
    assert draws.dtype == jnp.float32
    assert prior.log_prob(draws).dtype == jnp.float32
    assert (
        prior.directions.log_ratio_to_uniform(jnp.float32(unit_rows(0, 2, 3))).dtype == jnp.float32
    )
