"""Gaussian experts: the density against SciPy, its slopes, and what keeps it proper."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp
from scipy.stats import norm

from mutants import mutant
from statistical import central_difference, measured, relative_error
from wideangle.mixture_of_experts import likelihood, quantities
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import Weights, log_lik
from wideangle.mixture_of_experts.quantities import GaussianExperts

N, P, K = 17, 3, 4
FLOOR = 0.03
EXPERT = GaussianExperts(FLOOR)


def problem(size=1.0, dtype=np.float64, seed=0):
    generator = np.random.default_rng(seed)
    gate = size * generator.normal(size=(K, P))
    experts = size * generator.normal(size=(K, 2, P))
    rows, targets = generator.normal(size=(N, P)), generator.normal(size=N)
    data = Data(*(jnp.asarray(x, dtype) for x in (rows, targets, generator.uniform(0, 3, N))))
    return Weights(jnp.asarray(gate, dtype), jnp.asarray(experts, dtype)), data


def deviation(scores, floor=FLOOR):
    """The noise, written out."""
    t = np.clip(scores, -20.0, 20.0)
    return np.sqrt(floor**2 + 1.0 / (np.exp(-t) + 1e-2))


def naive(weights, data):
    """Loops over rows, densities by SciPy."""
    total = 0.0
    for row, target, weight in zip(*(np.asarray(leaf, float) for leaf in data), strict=True):
        gate = log_softmax(np.asarray(weights.gate, float) @ row)
        mean, noise = (np.asarray(weights.experts, float) @ row).T
        total += weight * logsumexp(gate + norm(mean, deviation(noise)).logpdf(target))
    return total


@pytest.mark.parametrize("size", [0.0, 1.0, 10.0])
def test_log_lik_is_that_of_scipy(size):
    weights, data = problem(size)
    assert relative_error(log_lik(EXPERT, weights, data), naive(weights, data)) < 1e-12


@pytest.mark.parametrize("size", [0.3, 2.0])
def test_the_gradient_is_that_of_finite_differences(size):
    weights, data = problem(size)
    gradient = jax.grad(lambda w: log_lik(EXPERT, w, data))(weights)
    for name in Weights._fields:
        moved = central_difference(
            lambda x, name=name: naive(weights._replace(**{name: x}), data), getattr(weights, name)
        )
        scale = np.abs(moved).max()
        np.testing.assert_allclose(getattr(gradient, name) / scale, moved / scale, atol=1e-6)


FAULTS = {
    "no normaliser": ("self.floor * xp.sqrt(precision)", "xp.ones_like(precision)"),
    "variance for deviation": ("xp.sqrt(precision)", "precision"),
    "no half": ("-0.5 * square", "-square"),
    "no floor in the variance": ("self.floor**2 + free", "free"),
    "slope of a noise without floor": ("(inverse * free) / variance", "(inverse * free) / free"),
    "no log of two pi": ("(math.log(self.floor) + HALF_LOG_TWO_PI)", "math.log(self.floor)"),
    "no floor in the constant": ("(math.log(self.floor) + HALF_LOG_TWO_PI)", "HALF_LOG_TWO_PI"),
    "no ceiling": ("(inverse + CEILING**-2)", "inverse"),
    "slope without minus one": ("(square - 1.0) * noise.slope", "square * noise.slope"),
    "sign of the residual": ("[away * precision,", "[-away * precision,"),
}


def broken(fault):
    old, new = FAULTS[fault]
    return mutant(quantities, old, new, ExpertTerms=likelihood.ExpertTerms).GaussianExperts(FLOOR)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_density_or_slope_is_found(fault):
    expert, (weights, data) = broken(fault), problem()
    value, gradient = jax.value_and_grad(lambda w: log_lik(expert, w, data))(weights)
    moved = central_difference(lambda x: naive(weights._replace(experts=x), data), weights.experts)
    away = max(
        relative_error(value, naive(weights, data)),
        np.abs(gradient.experts - moved).max() / np.abs(moved).max(),
    )
    assert measured("relative error", away, 1e-3) > 1e-3


def test_information_is_the_expected_negative_hessian():
    scores = jnp.asarray([[[0.3], [-0.8]]])

    def said(flat, target):
        terms = EXPERT.terms(flat.reshape(scores.shape), jnp.array([target]))
        return (terms.exponent + jnp.log(terms.factor))[0, 0]

    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    targets = 0.3 + deviation(-0.8) * nodes
    each = jax.vmap(lambda y: jax.hessian(said)(scores.ravel(), y))(jnp.asarray(targets))
    expected = -np.tensordot(weights / weights.sum(), each, 1)
    np.testing.assert_allclose(EXPERT.information(scores)[0, :, 0], np.diag(expected), atol=1e-9)


@pytest.mark.parametrize("size", [1e2, 1e4])
def test_extreme_scores_in_float32_keep_value_and_gradient_finite(size):
    weights, data = problem(size, np.float32)
    value, gradient = jax.value_and_grad(lambda w: log_lik(EXPERT, w, data))(weights)
    assert value.dtype == gradient.gate.dtype == jnp.float32
    assert all(np.isfinite(leaf).all() for leaf in (value, *gradient))
    assert relative_error(value, naive(weights, data)) < 1e-4


def test_whole_weights_count_rows_as_often():
    weights, data = problem()
    counts = np.arange(N) % 3
    chosen = np.repeat(np.arange(N), counts)
    repeated = Data(data.rows[chosen], data.targets[chosen], jnp.ones(len(chosen)))
    weighted = data._replace(weights=jnp.asarray(counts, float))
    np.testing.assert_allclose(
        log_lik(EXPERT, weights, weighted), log_lik(EXPERT, weights, repeated), rtol=1e-10
    )


def test_rows_of_one_value_cannot_make_the_likelihood_grow_without_end():
    """An expert that says 0 exactly, of rows that are all 0, with ever less noise."""
    data = Data(jnp.ones((50, 1)), jnp.zeros(50), jnp.ones(50))
    sure = [Weights(jnp.zeros((1, 1)), jnp.asarray([[[0.0], [t]]])) for t in (-20.0, -1e3, -1e9)]
    values = [float(log_lik(EXPERT, w, data)) for w in sure]
    np.testing.assert_allclose(values, 50 * norm(0, FLOOR).logpdf(0), rtol=1e-5)


def test_the_start_is_a_linear_regression_and_the_noise_it_leaves():
    generator = np.random.default_rng(0)
    rows = np.column_stack([generator.normal(size=(4000, 2)), np.ones(4000)])
    targets = rows @ [1.0, -2.0, 0.5] + 0.3 * generator.normal(size=4000)
    mean, noise = EXPERT.start(Data(rows.astype(np.float32), targets, np.ones(4000)))
    np.testing.assert_allclose(mean, [1.0, -2.0, 0.5], atol=0.02)
    np.testing.assert_allclose(noise, [0.0, 0.0, 2.0 * np.log(0.3)], atol=0.04)
