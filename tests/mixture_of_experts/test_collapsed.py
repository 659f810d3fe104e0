from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random
from jax.flatten_util import ravel_pytree
from scipy import stats
from scipy.special import logsumexp

from statistical import FOUR, central_difference, relative_error, z_score
from wideangle.mixture_of_experts.classes import LogisticExperts, SoftmaxExperts
from wideangle.mixture_of_experts.collapsed import (
    Terms,
    expected_log_lik,
    n_noise,
    objective,
)
from wideangle.mixture_of_experts.coordinates import as_weights
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.guides import GaussianGuide, Guides, VmfGuide
from wideangle.mixture_of_experts.likelihood import Pair, log_lik
from wideangle.mixture_of_experts.task import Regulariser
from wideangle.priors.components import GaussianComponents, PolarComponents
from wideangle.priors.dpp import DeterminantalComponents
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.sphere import vmf

K, P, N = 3, 4, 12
EXPERTS = [LogisticExperts(), SoftmaxExperts(3)]
SLOWER = [LogisticExperts(), pytest.param(SoftmaxExperts(3), marks=pytest.mark.slow)]
KINDS = ["vmf", "diagonal"]


def make_guide(key, kind, size, n=K):
    keys = random.split(key, 2)
    centres = random.normal(keys[0], (n, size))
    if kind == "diagonal":
        return GaussianGuide(centres, -1.5 + 0.3 * random.normal(keys[1], (n, size)))
    return VmfGuide(centres, jnp.log(jnp.linspace(20.0, 60.0, n)), jnp.log(jnp.linspace(15, 40, n)))


def make_guides(key, kind, expert):
    keys = random.split(key)
    return Guides(make_guide(keys[0], kind, P), make_guide(keys[1], kind, P * expert.n_outputs))


def make_batch(key, expert):
    keys = random.split(key, 3)
    rows = random.normal(keys[0], (N, P)).at[:, -1].set(1.0)
    targets = random.randint(keys[1], (N,), 0, max(2, expert.n_outputs))
    return Data(rows, targets, random.uniform(keys[2], (N,), minval=0.5, maxval=1.5))


def make_terms(kind="II", concentration=3.0, outputs=1, **options):
    gate = PolarComponents(MutualAngular(K, P, concentration, kind), 2.0, 0.5)
    experts = PolarComponents(MutualAngular(K, P * outputs, concentration, kind), 2.0, 0.5)
    return Terms(Pair(gate, experts), **({"temperature": jnp.array(0.7)} | options))


def make_noise(key, expert, guides, *shape):
    return random.normal(key, (*shape, n_noise(expert, guides), K, N))


def numpy_scores(guide, rows, noise, outputs):
    """The documented distribution, one row and one component at a time."""
    scores = np.empty((K, outputs, len(rows)))
    for k in range(K):
        for n, x in enumerate(np.asarray(rows)):
            blocks = np.asarray(guide.centres[k]).reshape(outputs, -1)
            if isinstance(guide, GaussianGuide):
                scale = np.exp(np.asarray(guide.log_scales[k])).reshape(outputs, -1)
                scores[k, :, n] = blocks @ x + np.sqrt(scale**2 @ x**2) * noise[:, k, n]
                continue
            length, kappa = np.linalg.norm(blocks), np.exp(guide.log_concentrations[k])
            r = float(np.exp(guide.log_shapes[k]))
            along = blocks @ x / length
            alpha, beta = (float(w) for w in vmf.scatter_weights(kappa, blocks.size))
            ratio = float(vmf.mean_resultant(kappa, blocks.size))
            cov = alpha * x @ x * np.eye(outputs) + (beta - ratio**2) * np.outer(along, along)
            values, vectors = np.linalg.eigh(cov)
            root = vectors @ np.diag(np.sqrt(values)) @ vectors.T
            cube = max(1 - 1 / (9 * r) + noise[0, k, n] / (3 * np.sqrt(r)), 0.02) ** 3
            scores[k, :, n] = length * cube * (ratio * along + root @ noise[1:, k, n])
    return scores


def numpy_log_lik(expert, gate, scores, batch):
    y = np.asarray(batch.targets)
    if expert.n_outputs == 1:
        own = -np.logaddexp(0, -(2 * y - 1) * scores[:, 0])
    else:
        own = scores[:, y, np.arange(N)] - logsumexp(scores, axis=1)
    return np.sum(batch.weights * (logsumexp(gate + own, axis=0) - logsumexp(gate, axis=0)))


@pytest.mark.parametrize("expert", EXPERTS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_data_term_is_the_documented_distribution_with_the_choice_summed_out(key, kind, expert):
    keys = random.split(key, 3)
    guides, batch = make_guides(keys[0], kind, expert), make_batch(keys[1], expert)
    noise = make_noise(keys[2], expert, guides)
    split = guides.gate.n_noise(1)
    gate = numpy_scores(guides.gate, batch.rows, np.asarray(noise[:split]), 1)[:, 0]
    scores = numpy_scores(guides.experts, batch.rows, np.asarray(noise[split:]), expert.n_outputs)
    truth = numpy_log_lik(expert, gate, scores, batch)
    found = jax.jit(expected_log_lik, static_argnums=0)(expert, guides, noise, batch)
    assert relative_error(found, truth) < 1e-10


@pytest.mark.parametrize("expert", SLOWER)
@pytest.mark.parametrize(("kind", "bias"), [("vmf", 0.05), ("diagonal", 0.0)])
def test_the_data_term_agrees_with_exact_draws_of_q(key, kind, bias, expert):
    keys = random.split(key, 4)
    guides, batch = make_guides(keys[0], kind, expert), make_batch(keys[1], expert)
    n = 4000
    noise = make_noise(keys[2], expert, guides, n)
    local = jax.jit(jax.vmap(lambda z: expected_log_lik(expert, guides, z, batch)))(noise)
    sample = jax.jit(lambda guide, key: guide.sample(key, n))
    draws = sample(guides.gate, keys[3]), sample(guides.experts, keys[2])
    draws = as_weights(*draws, expert.n_outputs)
    exact = jax.jit(jax.vmap(lambda w: log_lik(expert, w, batch)))(draws)
    error = np.sqrt((np.var(local) + np.var(exact)) / n)
    assert abs(np.mean(local) - np.mean(exact)) < FOUR * error + bias
    means = jax.jit(lambda guides: [guide.means for guide in guides])(guides)
    mean = as_weights(*means, expert.n_outputs)
    assert z_score(draws.gate, mean.gate) < FOUR
    assert z_score(draws.experts, mean.experts) < FOUR


@pytest.mark.parametrize("expert", SLOWER)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_finite_differences(key, kind, expert):
    keys = random.split(key, 4)
    guides, batch = make_guides(keys[0], kind, expert), make_batch(keys[1], expert)
    noise = make_noise(keys[2], expert, guides)
    terms = make_terms(outputs=expert.n_outputs, regulariser=Regulariser(Pair(3.0, 2.0), 0.5))
    flat, back = ravel_pytree(guides)
    value = jax.jit(lambda x: objective(expert, keys[3], back(x), noise, batch, terms))
    gradient = jax.jit(jax.grad(value))(flat)
    assert np.allclose(gradient, central_difference(value, flat), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_both_signs_of_the_noise_leave_the_mean_and_take_variance_away(key, kind):
    expert = LogisticExperts()
    keys = random.split(key, 3)
    guides, batch = make_guides(keys[0], kind, expert), make_batch(keys[1], expert)
    terms = make_terms(temperature=jnp.array(0.0))
    noise = make_noise(keys[2], expert, guides, 4000)
    pairs = jax.jit(jax.vmap(lambda z: objective(expert, key, guides, z, batch, terms)))(noise)
    one = jax.jit(jax.vmap(lambda z: expected_log_lik(expert, guides, z, batch)))
    single, other = one(noise), one(-noise)
    assert np.allclose(pairs, 0.5 * (single + other))
    assert z_score(pairs - single, 0.0) < FOUR
    assert np.var(pairs) < 0.3 * np.var(single)


def test_the_temperature_weighs_the_divergence_and_nothing_else(key):
    expert = LogisticExperts()
    keys = random.split(key, 3)
    guides, batch = make_guides(keys[0], "vmf", expert), make_batch(keys[1], expert)
    noise = make_noise(keys[2], expert, guides)
    value = jax.jit(lambda terms: objective(expert, key, guides, noise, batch, terms))
    at = [value(make_terms(temperature=jnp.array(tau))) for tau in (0.0, 1.0, 2.0)]
    terms = make_terms()
    kl = sum(divergence(guide, key, terms.priors.gate) for guide in guides)
    one = jax.jit(lambda z: expected_log_lik(expert, guides, z, batch))
    data = [one(noise), one(-noise)]
    assert np.allclose(at[0], np.mean(data))
    assert np.allclose(np.diff(at), kl)


@jax.jit
def divergence(guide, key, prior):
    return guide.negative_kl(key, prior)


@partial(jax.jit, static_argnames="n")
def polar_divergence(key, guide, prior, n):
    parts = guide.factors.sample(key, (n,))
    return prior.log_prob_polar(parts) - guide.factors.log_prob_polar(parts)


def brute_divergence(key, guide, prior, n=100_000):
    """Draws of log p - log q, from densities of the vectors or in polar coordinates."""
    if isinstance(guide, VmfGuide):
        return polar_divergence(key, guide, prior, n)
    draws = guide.sample(key, n)
    q = stats.norm(guide.centres, np.exp(guide.log_scales)).logpdf(np.asarray(draws))
    return prior.log_prob(draws) - q.sum(axis=(-2, -1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "prior",
    [
        pytest.param(
            PolarComponents(MutualAngular(K, P, 0.0, "independent"), 2.0, 0.5),
            marks=pytest.mark.slow,
        ),
        PolarComponents(MutualAngular(K, P, 2.0, "independent", jnp.eye(P)[0]), 3.0, 1.0),
        GaussianComponents(K, P, 1.5),
    ],
)
def test_the_divergence_is_that_of_brute_force(key, kind, prior):
    keys = random.split(key, 3)
    guide = make_guide(keys[0], kind, P)
    truth = np.asarray(brute_divergence(keys[1], guide, prior))
    many = jax.jit(jax.vmap(lambda k: guide.negative_kl(k, prior)))(random.split(keys[2], 4000))
    error = np.sqrt(np.var(truth) / len(truth) + np.var(many) / len(many))
    assert abs(np.mean(many) - truth.mean()) < FOUR * error


@pytest.mark.slow
def test_type_two_is_bounded_from_below_by_a_little(key):
    prior = PolarComponents(MutualAngular(K, P, 2.0, "II"), 2.0, 0.5)
    guide = make_guide(key, "vmf", P)
    truth = np.asarray(brute_divergence(key, guide, prior))
    gap = truth.mean() - divergence(guide, key, prior)
    assert -FOUR * truth.std() / np.sqrt(len(truth)) < gap < 0.2


@pytest.mark.slow
def test_a_gaussian_guide_takes_the_determinantal_prior(key):
    guide = make_guide(key, "diagonal", P)
    prior = DeterminantalComponents(K, P)
    truth = brute_divergence(key, guide, prior, 2000)
    many = jax.jit(jax.vmap(lambda k: guide.negative_kl(k, prior)))(random.split(key, 500))
    assert abs(np.mean(many) - np.mean(truth)) < FOUR * np.hypot(
        np.std(truth) / np.sqrt(2000), np.std(many) / np.sqrt(500)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_zero_rows_and_zero_vectors_have_finite_gradients(key, kind):
    expert = LogisticExperts()
    guides = make_guides(key, kind, expert)
    guides = Guides(*(g._replace(centres=jnp.zeros_like(g.centres)) for g in guides))
    batch = make_batch(key, expert)._replace(rows=jnp.zeros((N, P)).at[0].set(1e3))
    noise = make_noise(key, expert, guides)
    terms = make_terms(regulariser=Regulariser(Pair(1.0, 1.0), 1.0))

    def of(guides):
        return objective(expert, key, guides, noise, batch, terms)

    value, gradient = jax.jit(jax.value_and_grad(of))(guides)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((value, gradient)))
