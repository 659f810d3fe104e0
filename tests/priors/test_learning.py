"""Learning the prior: parameters come back, each update is a maximum, EM climbs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special

from priors.prior_checks import unit_rows
from statistical import relative_error
from wideangle import Components, MutualAngular, PolarComponents, VmfGammaFactors, update_prior
from wideangle.priors.learning import update_magnitudes
from wideangle.sphere.vmf import log_mean_exp

FIRST = np.array([0.0, 0.6, 0.8])
OTHER = np.array([1.0, 0.0, 0.0])


def start(kind, n=5):
    return PolarComponents(MutualAngular(n, 3, 0.5, kind, OTHER), 1.0, 1.0)


@pytest.mark.parametrize("kind", ["I", "II", pytest.param("independent", marks=pytest.mark.slow)])
def test_parameters_come_back_from_draws(kind):
    truth = PolarComponents(MutualAngular(5, 3, 3.0, kind, FIRST), 4.0, 2.0)
    draws = truth.sample_polar(jax.random.key(0), (4000,))
    learned = update_prior(start(kind), draws)
    assert float(jnp.vdot(learned.directions.first, FIRST)) > 0.999
    assert relative_error(learned.magnitude_shape, 4.0) < 0.05
    assert relative_error(learned.magnitude_rate, 2.0) < 0.05
    # Padding is not a component.
    padded = Components(
        jnp.concatenate([draws.directions, jnp.zeros((4000, 2, 3))], axis=-2),
        jnp.concatenate([draws.magnitudes, jnp.zeros((4000, 2))], axis=-1),
    )
    again = update_prior(start(kind, 7), padded)
    assert relative_error(again.magnitude_shape, learned.magnitude_shape) < 1e-9


@pytest.mark.slow
def test_parameters_come_back_from_factors():
    """Factors that are nearly points carry the same information as the draws they sit on."""
    truth = PolarComponents(MutualAngular(400, 3, 3.0, "independent", FIRST), 4.0, 2.0)
    points = truth.sample_polar(jax.random.key(1))
    sharp = jnp.full(400, 1e7)
    factors = VmfGammaFactors(points.directions, sharp, sharp, sharp / points.magnitudes)
    learned = update_prior(start("independent", 400), factors)
    from_draws = update_prior(start("independent", 400), points)
    for ours, theirs in zip(jax.tree.leaves(learned), jax.tree.leaves(from_draws), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-5)


def test_the_concentration_and_a_missing_first_direction_are_kept():
    uniform = PolarComponents(MutualAngular(5, 3, 0.5, "II"), 1.0, 1.0)
    draws = start("II").sample_polar(jax.random.key(2), (50,))
    learned = update_prior(uniform, draws).directions
    assert learned.first is None and learned.concentration == 0.5


@pytest.mark.parametrize("shape", [0.05, 1.0, 30.0])
def test_gamma_shape_solves_its_equation(shape):
    lengths = np.random.default_rng(0).gamma(shape, 2.0, size=(100, 5))
    lengths = np.maximum(lengths, 1e-300)
    ours, rate = update_magnitudes(Components(jnp.asarray(unit_rows(0, 5, 3)), lengths))
    gap = np.log(lengths.mean()) - np.log(lengths).mean()
    root = optimize.brentq(lambda a: np.log(a) - special.digamma(a) - gap, 1e-4, 1e4, xtol=1e-14)
    assert relative_error(ours, root) < 1e-9
    assert relative_error(rate, root / lengths.mean()) < 1e-9


def test_one_component_does_not_run_away():
    draws = Components(jnp.asarray(FIRST[None]), jnp.array([2.0]))
    prior = update_prior(start("independent", 1), draws, max_shape=50.0)
    assert prior.magnitude_shape <= 50.0
    assert relative_error(prior.magnitude_shape / prior.magnitude_rate, 2.0) < 1e-12


def test_em_climbs_on_a_conjugate_model():
    """Counts given lengths (Gamma-Poisson) and noisy directions (vMF-vMF): exact E step."""
    truth = PolarComponents(MutualAngular(40, 3, 6.0, "independent", FIRST), 3.0, 0.5)
    hidden = truth.sample_polar(jax.random.key(5))
    counts = jax.random.poisson(jax.random.key(6), hidden.magnitudes)
    noisy = MutualAngular(40, 3, 8.0, "independent", FIRST)  # same sufficient statistics
    seen = noisy.sample(jax.random.key(7))

    def natural(prior):
        return prior.directions.concentration * prior.directions.first + 8.0 * seen

    def e_step(prior):
        eta = natural(prior)
        length = jnp.linalg.norm(eta, axis=-1)
        shapes, rates = prior.magnitude_shape + counts, prior.magnitude_rate + jnp.ones(40)
        return VmfGammaFactors(eta / length[:, None], length, shapes, rates)

    def evidence(prior):
        a, b = float(prior.magnitude_shape), float(prior.magnitude_rate)
        counted = special.gammaln(a + counts) - special.gammaln(a) + a * np.log(b / (b + 1))
        counted = np.sum(counted - counts * np.log(b + 1))
        after = log_mean_exp(jnp.linalg.norm(natural(prior), axis=-1), 3)
        return counted + float(jnp.sum(after - log_mean_exp(prior.directions.concentration, 3)))

    prior, history = start("independent", 40), []
    for _ in range(12):
        history.append(evidence(prior))
        prior = update_prior(prior, e_step(prior))
    assert np.all(np.diff(history) > -1e-9)
    assert history[-1] > history[0] + 10
