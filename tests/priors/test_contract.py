"""What NumPyro asks of a distribution, for every prior of the package."""

import os
import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import biject_to
from numpyro.infer import MCMC, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from scipy import integrate, stats

from priors.prior_checks import unit_rows
from statistical import FOUR, relative_error, z_score, z_score_of_two
from wideangle import (
    DeterminantalComponents,
    GaussianComponents,
    MutualAngular,
    PolarComponents,
    VonMisesFisher,
)
from wideangle.priors.support import (
    DirectionTransform,
    PolarTransform,
    nonzero_vectors,
    unit_vector,
)

POLE = np.array([0.0, 0.6, 0.8])
PRIORS = {
    "vmf": lambda scale: VonMisesFisher(POLE, 2.0 * scale),
    "type I": lambda scale: MutualAngular(2, 3, 2.0 * scale, "I", POLE),
    "type II": lambda scale: MutualAngular(2, 3, 2.0 * scale, "II"),
    "independent": lambda scale: MutualAngular(2, 3, 2.0 * scale, "independent", POLE),
    "polar": lambda scale: PolarComponents(MutualAngular(2, 3, 2.0), 3.0 * scale, 1.0),
    "gaussian": lambda scale: GaussianComponents(2, 3, 1.5 * scale),
    "determinantal": lambda scale: DeterminantalComponents(2, 3, 1.5 * scale),
}
EVERY = pytest.mark.parametrize("make", PRIORS.values(), ids=PRIORS)


def quickly(*names):
    """Every prior, but only some in the fast tests."""
    cases = [
        pytest.param(make, id=name, marks=[] if name in names else pytest.mark.slow)
        for name, make in PRIORS.items()
    ]
    return pytest.mark.parametrize("make", cases)


KEY = jax.random.key(0)


@EVERY
def test_shapes(make):
    event = (3,) if make is PRIORS["vmf"] else (2, 3)
    for scale, batch in ((1.0, ()), (jnp.ones(4), (4,)), (jnp.ones((5, 1)), (5, 1))):
        prior = make(scale)
        assert (prior.batch_shape, prior.event_shape) == (batch, event)
        for shape in ((), (6,), (2, 3)):
            draws = jax.eval_shape(lambda k, p=prior, s=shape: p.sample(k, s), KEY)
            assert draws.shape == shape + batch + event
            density = jax.eval_shape(prior.log_prob, draws)
            assert density.shape == shape + batch
    expanded = make(jnp.ones(4)).expand((5, 4))
    assert jax.eval_shape(lambda k: expanded.sample(k, (6,)), KEY).shape == (6, 5, 4, *event)
    joined = make(jnp.ones(4)).to_event(1)
    assert (joined.batch_shape, joined.event_shape) == ((), (4, *event))
    value = jax.ShapeDtypeStruct((6, 4, *event), jnp.float64)
    assert jax.eval_shape(joined.log_prob, value).shape == (6,)


@quickly("type II", "polar")
def test_a_prior_is_a_pytree_that_jit_and_vmap_take_apart(make):
    scales = jnp.array([0.5, 1.0, 2.0])
    prior = make(scales)
    draws = prior.sample(KEY)
    leaves, tree = jax.tree.flatten(prior)
    again = jax.tree.unflatten(tree, leaves)
    assert type(again) is type(prior)
    whole = jax.jit(lambda p, x: p.log_prob(x))(again, draws)
    mapped = jax.vmap(lambda s, x: make(s).log_prob(x))(scales, draws)
    np.testing.assert_allclose(mapped, whole, rtol=1e-12)
    shape = jax.eval_shape(
        jax.vmap(lambda s, k: make(s).sample(k)), scales, jax.random.split(KEY, 3)
    )
    assert shape.shape == draws.shape


@quickly("vmf", "polar")
def test_draws_are_in_the_support_and_survive_the_map(make):
    prior = make(jnp.array([0.5, 2.0]))
    draws = prior.sample(KEY, (5,))
    assert np.all(prior.support(draws))
    assert not np.any(prior.support(jnp.nan * draws))
    transform = biject_to(prior.support)
    np.testing.assert_allclose(transform(transform.inv(draws)), draws, rtol=1e-9, atol=1e-12)
    same = jax.tree.unflatten(*jax.tree.flatten(transform)[::-1])
    np.testing.assert_allclose(same.inv(draws), transform.inv(draws))
    assert transform.eq(same, static=True)


def test_the_support_of_directions_is_the_sphere():
    assert unit_vector(POLE)
    assert not unit_vector(1.1 * POLE)
    vectors = nonzero_vectors(jnp.zeros(1), jnp.ones(1))
    assert vectors(np.ones((2, 3)))
    assert not vectors(np.zeros((2, 3)))


@pytest.mark.parametrize("dim", [2, 5])
def test_density_in_polar_coordinates_integrates_to_one(dim):
    """The map has p + 1 coordinates: integrating one out must give the vector's distribution."""
    transform = PolarTransform(jnp.asarray(0.5 * np.log(dim)), jnp.asarray(0.5))
    raw = np.random.default_rng(0).normal(size=(40_000, dim + 1)) * 1.2
    proposal = stats.norm(0, 1.2).logpdf(raw).sum(-1)

    def density(x):
        y = transform(x)
        normal = jnp.sum(dist.Normal(0.0, 1.0).log_prob(y), axis=-1)
        return normal + transform.log_abs_det_jacobian(x, y), y

    log_density, vectors = jax.jit(density)(raw)
    weights = np.exp(log_density - proposal)
    assert z_score(weights, 1.0) < FOUR
    assert z_score(weights[:, None] * np.square(vectors), 1.0) < FOUR
    assert transform.forward_shape((7, dim + 1)) == (7, dim)
    assert transform.inverse_shape((7, dim)) == (7, dim + 1)


@pytest.mark.parametrize("dim", [2, 3, 7])
def test_lengths_integrate_out_of_the_direction_map(dim):
    """The density handed to NUTS, integrated along a ray, is the density of the direction."""
    transform = DirectionTransform()
    ray = jnp.asarray(unit_rows(0, dim))
    weight = jax.jit(lambda r: transform.log_abs_det_jacobian(r * ray, ray))
    total, _ = integrate.quad(lambda r: r ** (dim - 1) * np.exp(float(weight(r))), 0, 20)
    assert total == pytest.approx(1, rel=1e-8)


def test_divergence_is_found_by_numpyro():
    left, right = VonMisesFisher(POLE, [1.0, 3.0]), VonMisesFisher([1.0, 0, 0], 2.0)
    draws = left.sample(KEY, (20_000,))
    ratio = np.asarray(left.log_prob(draws) - right.log_prob(draws))
    exact = dist.kl_divergence(left, right)
    error = ratio.std(0) / np.sqrt(len(ratio))
    assert np.all(np.abs(ratio.mean(0) - exact) < FOUR * error)


def test_moments_of_the_von_mises_fisher_distribution():
    vmf = VonMisesFisher(POLE, jnp.array([0.0, 3.0, 1e6]))
    np.testing.assert_allclose(vmf.variance, jnp.diagonal(vmf.covariance_matrix, 0, -2, -1))
    single = VonMisesFisher(jnp.array([0, 0, 1.0], jnp.float32), jnp.float32(1e6))
    # Along the mean 1/kappa^2 to leading order: E[x^2] - E[x]^2 would leave no digit of it.
    assert relative_error(single.variance, [1e-6, 1e-6, 1e-12]) < 1e-4
    np.testing.assert_allclose(vmf.mode, np.broadcast_to(POLE, (3, 3)))
    assert vmf.entropy()[0] == pytest.approx(np.log(4 * np.pi))
    assert VonMisesFisher.infer_shapes((4, 3), (5, 1)) == ((5, 4), (3,))


def everything(names=tuple(PRIORS)):
    """One model with a site for every prior, and one in a plate."""
    with numpyro.plate("copies", 2):
        numpyro.sample("plated", MutualAngular(2, 3, 2.0, "II", POLE))
    for name in names:
        numpyro.sample(name, PRIORS[name](1.0))


@pytest.mark.slow
@pytest.mark.parametrize("names", [("polar",), tuple(PRIORS)], ids=["some", "all"])
def test_variational_inference_runs(names):
    model = partial(everything, names)
    svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(0.02), Trace_ELBO())
    losses = svi.run(KEY, 150, progress_bar=False).losses
    assert np.all(np.isfinite(losses))
    assert np.mean(losses[-30:]) < np.mean(losses[:30])


def statistics(draws):
    """Means and products of a flattened site, lengths and inner products included."""
    rows = np.asarray(draws).reshape(len(draws), -1, 3)
    gram = np.einsum("nip,njp->nij", rows, rows)
    upper = np.triu_indices(gram.shape[-1])
    return np.concatenate([rows[:, :, 0], rows[:, :, 2], gram[:, *upper]], axis=-1)


@pytest.mark.slow
def test_nuts_draws_every_prior():
    """Moments of the chain against exact draws (a long chain for the determinantal prior)."""
    sampler = MCMC(
        NUTS(everything), num_warmup=300, num_samples=800, num_chains=4,
        chain_method="vectorized", progress_bar=False,
    )  # fmt: skip
    sampler.run(jax.random.key(1))
    chains = sampler.get_samples(group_by_chain=True)
    for name, make in PRIORS.items():
        prior = make(1.0)
        exact = statistics(prior.sample(jax.random.key(2), (20_000,)))
        ours = np.stack([statistics(chain) for chain in chains[name]])
        live = exact.std(0) > 1e-6  # the length of a unit vector has no spread
        size = np.clip(numpyro.diagnostics.effective_sample_size(ours[..., live]), 1, 3200)
        error = np.sqrt(ours[..., live].var((0, 1)) / size + exact[:, live].var(0) / len(exact))
        away = np.abs(ours.mean((0, 1)) - exact.mean(0))[live]
        assert np.all(away < FOUR * error), name


@quickly("type II", "polar")
def test_expanding_draws_independent_copies(make):
    draws = np.asarray(make(1.0).expand((2,)).sample(KEY, (2000,)))
    assert not np.allclose(draws[:, 0], draws[:, 1])
    assert z_score_of_two(draws[:, 0], draws[:, 1]) < FOUR


LEAVES = """
import jax
from wideangle import DeterminantalComponents, MutualAngular, PolarComponents, VonMisesFisher
priors = [
    PolarComponents(MutualAngular(2, 3, 2.0, "I", [0.0, 0.6, 0.8]), 3.0, 5.0),
    DeterminantalComponents(2, 3, 1.5, 0.5),
    VonMisesFisher([0.0, 0.6, 0.8], 7.0),
]
print([float(value) for leaf in jax.tree.leaves(priors) for value in jax.numpy.ravel(leaf)])
"""


def test_leaves_come_in_one_order_in_every_process():
    """NumPyro's own order is that of a set of names, which hashes decide."""
    found = {
        subprocess.run(
            [sys.executable, "-c", LEAVES],
            env={**os.environ, "PYTHONHASHSEED": seed, "JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "3", "11")
    }
    assert len(found) == 1
