"""Learning the prior: parameters come back, each update is a maximum, EM climbs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special

from priors.prior_checks import some_factors, unit_rows
from statistical import relative_error
from wideangle import Components, MutualAngular, PolarComponents, VmfGammaFactors, update_prior
from wideangle.priors.expected import expected_log_directions
from wideangle.priors.learning import update_concentration, update_magnitudes
from wideangle.sphere.vmf import log_mean_exp, mean_resultant

ALL = ("first", "magnitudes", "concentration")
FIRST = np.array([0.0, 0.6, 0.8])
OTHER = np.array([1.0, 0.0, 0.0])


def start(kind, n=5):
    return PolarComponents(MutualAngular(n, 3, 0.5, kind, OTHER), 1.0, 1.0)


@pytest.mark.parametrize("kind", ["I", "II", pytest.param("independent", marks=pytest.mark.slow)])
def test_parameters_come_back_from_draws(kind):
    truth = PolarComponents(MutualAngular(5, 3, 3.0, kind, FIRST), 4.0, 2.0)
    draws = truth.sample_polar(jax.random.key(0), (4000,))
    learned = update_prior(start(kind), draws, ALL)
    assert relative_error(learned.directions.concentration, 3.0) < 0.05
    assert float(jnp.vdot(learned.directions.first, FIRST)) > 0.999
    assert relative_error(learned.magnitude_shape, 4.0) < 0.05
    assert relative_error(learned.magnitude_rate, 2.0) < 0.05
    # Padding is not a component.
    padded = Components(
        jnp.concatenate([draws.directions, jnp.zeros((4000, 2, 3))], axis=-2),
        jnp.concatenate([draws.magnitudes, jnp.zeros((4000, 2))], axis=-1),
    )
    again = update_prior(start(kind, 7), padded, ALL)
    assert relative_error(again.directions.concentration, learned.directions.concentration) < 1e-9
    assert relative_error(again.magnitude_shape, learned.magnitude_shape) < 1e-9


@pytest.mark.slow
def test_parameters_come_back_from_factors():
    """Factors that are nearly points carry the same information as the draws they sit on."""
    truth = PolarComponents(MutualAngular(400, 3, 3.0, "independent", FIRST), 4.0, 2.0)
    points = truth.sample_polar(jax.random.key(1))
    sharp = jnp.full(400, 1e7)
    factors = VmfGammaFactors(points.directions, sharp, sharp, sharp / points.magnitudes)
    learned = update_prior(start("independent", 400), factors, ALL)
    from_draws = update_prior(start("independent", 400), points, ALL)
    for ours, theirs in zip(jax.tree.leaves(learned), jax.tree.leaves(from_draws), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-5)


def test_only_what_is_asked_for_is_learned():
    draws = start("II").sample_polar(jax.random.key(2), (50,))
    kept = update_prior(start("II"), draws, ())
    np.testing.assert_array_equal(kept.directions.first, OTHER)
    assert (kept.magnitude_shape, kept.directions.concentration) == (1.0, 0.5)
    uniform = PolarComponents(MutualAngular(5, 3, 0.5, "II"), 1.0, 1.0)
    assert update_prior(uniform, draws, ALL).directions.first is None
    with pytest.raises(ValueError, match=r"learn='mean'.*'first', 'magnitudes', 'concentration'"):
        update_prior(start("II"), draws, ("mean",))


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
    prior = update_prior(start("independent", 1), draws, ALL, max_shape=50.0, max_cosine=0.9)
    assert prior.magnitude_shape <= 50.0
    assert relative_error(prior.magnitude_shape / prior.magnitude_rate, 2.0) < 1e-12
    assert mean_resultant(prior.directions.concentration, 3) <= 0.9 + 1e-9


def best_concentration(objective):
    found = optimize.minimize_scalar(
        lambda log_k: -float(objective(jnp.exp(log_k))), bounds=(-6, 6), method="bounded",
        options={"xatol": 1e-9},
    )  # fmt: skip
    return np.exp(found.x)


@pytest.mark.parametrize("kind", ["I", "II", pytest.param("independent", marks=pytest.mark.slow)])
def test_concentration_maximises_the_density_of_draws(kind):
    draws = MutualAngular(4, 3, 2.0, kind, FIRST).sample(jax.random.key(3), (30,))

    @jax.jit
    def objective(kappa):
        return jnp.mean(MutualAngular(4, 3, kappa, kind, FIRST).log_ratio_to_uniform(draws))

    posterior = Components(draws, jnp.ones((30, 4)))
    ours = update_concentration(MutualAngular(4, 3, 1.0, kind, FIRST), posterior)
    assert relative_error(ours, best_concentration(objective)) < 1e-5


@pytest.mark.parametrize("kind", ["II", pytest.param("independent", marks=pytest.mark.slow)])
def test_concentration_maximises_the_expectation_under_q(kind):
    rows = MutualAngular(4, 3, 4.0, kind, FIRST).sample(jax.random.key(4))
    factors = some_factors(strength=20.0)._replace(mean_directions=rows)

    @jax.jit
    def objective(kappa):
        return expected_log_directions(factors, MutualAngular(4, 3, kappa, kind, FIRST))

    ours = update_concentration(MutualAngular(4, 3, 1.0, kind, FIRST), factors)
    assert relative_error(ours, best_concentration(objective)) < 1e-5


def test_type_one_needs_draws():
    with pytest.raises(ValueError, match=r"kind='I'.*Pass draws"):
        update_concentration(MutualAngular(4, 3, 1.0), some_factors())


def test_attracted_components_leave_no_repulsion():
    rows = jnp.asarray(np.tile(FIRST, (10, 4, 1)))
    for kind in ("I", "II"):
        prior = MutualAngular(4, 3, 1.0, kind)
        assert update_concentration(prior, Components(rows, jnp.ones((10, 4)))) == 0


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
        prior = update_prior(prior, e_step(prior), ALL)
    assert np.all(np.diff(history) > -1e-9)
    assert history[-1] > history[0] + 10
