"""Bounds on logistic and softmax terms: below the truth, tight where they say, and solved."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from statistical import FOUR, central_difference, measured
from wideangle_lab.paper.coordinate_ascent import bounds


def gauss_hermite(f, mean, variance):
    """E f(x) for Gaussian x, one at a time."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    points = np.asarray(mean)[..., None] + np.sqrt(np.asarray(variance))[..., None] * nodes
    return f(points) @ weights / np.sqrt(2.0 * np.pi)


def scores(seed, n_components, n_rows, spread=3.0):
    rng = np.random.default_rng(seed)
    means = jnp.asarray(spread * rng.normal(size=(n_components, n_rows)))
    variances = jnp.asarray(rng.gamma(1.0, spread, size=(n_components, n_rows)))
    return means, variances


solve = jax.jit(bounds.solve_softmax_shift)


@jax.jit
def at_best_splits(means, variances, shift):
    splits = bounds.softmax_splits(means, variances, shift)
    return bounds.softmax_bound(means, variances, shift, splits)


def test_curvature_is_even_smooth_and_an_eighth_at_zero():
    x = jnp.array([0.0, 1e-8, 0.99e-4, 1.01e-4, 1e-3, 1.0, 50.0])
    exact = np.array([0.125 - v**2 / 96 if v < 0.01 else np.tanh(v / 2) / 4 / v for v in x])
    np.testing.assert_allclose(bounds.logistic_curvature(x), exact, rtol=1e-9)


def test_logistic_bound_is_below_the_expectation_for_any_split():
    means, variances = scores(0, 20, 30)
    truth = gauss_hermite(lambda x: -np.logaddexp(0.0, -x), means, variances)
    for split in (0.0, 0.3, 2.0, 20.0):
        assert np.all(bounds.logistic_bound(means, variances, jnp.full_like(means, split)) <= truth)
    best = bounds.logistic_split(means, variances)
    at_best = bounds.logistic_bound(means, variances, best)
    assert np.all(at_best <= truth)
    for factor in (0.9, 1.1):
        assert np.all(at_best >= bounds.logistic_bound(means, variances, factor * best))


def test_logistic_bound_touches_at_the_split():
    x = jnp.array([-30.0, -2.0, 0.0, 2.0, 30.0])
    value = bounds.logistic_bound(x, jnp.zeros_like(x), jnp.abs(x))
    np.testing.assert_allclose(value, jax.nn.log_sigmoid(x), rtol=1e-13, atol=1e-14)


def test_the_opposite_sign_of_the_curvature_is_not_a_bound():
    means, variances = scores(1, 5, 30)
    split = jnp.ones_like(means)
    truth = gauss_hermite(lambda x: -np.logaddexp(0.0, -x), means, variances)
    excess = variances + means**2 - split**2
    wrong = bounds.logistic_bound(means, variances, split)
    wrong += 2.0 * bounds.logistic_curvature(split) * excess
    assert measured("nats above the truth", np.max(wrong - truth), 1.0) > 1.0


@pytest.mark.parametrize("n_components", [1, 2, 30])
def test_softmax_bound_is_below_the_expectation(n_components):
    means, variances = scores(2, n_components, 8)
    rng = np.random.default_rng(3)
    noise = rng.normal(size=(4_000, n_components, 8))
    draws = -logsumexp(np.asarray(means) + np.sqrt(np.asarray(variances)) * noise, axis=1)
    error = FOUR * draws.std(axis=0) / np.sqrt(len(draws))
    shift = solve(means, variances)
    for c in (shift, shift - 1.0, shift + 3.0, jnp.zeros_like(shift)):
        splits = bounds.softmax_splits(means, variances, c)
        for d in (splits, splits + 1.0):
            value = bounds.softmax_bound(means, variances, c, d)
            assert np.all(value <= draws.mean(axis=0) + error)


@pytest.mark.parametrize("n_components", [2, 30])
@pytest.mark.parametrize("spread", [1e-3, 1.0, 100.0])
def test_solved_shift_is_the_maximum_and_the_fixed_point(n_components, spread):
    means, variances = scores(4, n_components, 50, spread)
    shift = solve(means, variances)
    best = at_best_splits(means, variances, shift)
    for move in (-1.0, -1e-3, 1e-3, 1.0):
        moved = at_best_splits(means, variances, shift + move)
        assert np.all(moved <= best + 1e-10 * (1.0 + np.abs(best)))
    splits = bounds.softmax_splits(means, variances, shift)
    np.testing.assert_allclose(bounds.softmax_shift(means, splits), shift, rtol=1e-6, atol=1e-6)
    again = jax.jit(bounds.solve_softmax_shift)(means, variances, shift + 10.0)  # any start will do
    np.testing.assert_allclose(at_best_splits(means, variances, again), best, rtol=1e-12)


def test_the_fixed_point_alone_is_far_away_after_six_rounds():
    means, variances = scores(5, 30, 50, spread=10.0)
    shift = jnp.zeros(50)
    for _ in range(6):
        shift = bounds.softmax_shift(means, bounds.softmax_splits(means, variances, shift))
    best = at_best_splits(means, variances, solve(means, variances))
    gap = best - at_best_splits(means, variances, shift)
    assert np.all(gap > -1e-9) and np.sum(gap) > 1.0


def test_a_shift_per_component_is_not_a_bound():
    means, variances = scores(6, 3, 20)
    means -= 20.0
    shift = solve(means, variances)
    value = at_best_splits(means, variances, shift)
    above = -jnp.max(means, axis=0)  # E log-sum-exp is at least the largest mean
    assert np.all(value <= above)
    wrong = value - 2.0 * shift  # c_n subtracted for each of the three components
    assert measured("nats above the truth", np.min(wrong - above), 0.0) > 0.0


def test_one_component_is_exact():
    means, variances = scores(7, 1, 5)
    shift = solve(means, variances)
    value = bounds.softmax_bound(means, variances, shift, jnp.ones_like(means))
    np.testing.assert_array_equal(value, -means[0])
    general = jnp.sum(bounds.logistic_bound(-1e6 - means, variances, 1e6 + means), axis=0) + 1e6
    np.testing.assert_allclose(general, -means[0], atol=1e-4)


def test_gradients_agree_with_differences():
    mean, variance, split = 0.7, 0.4, 1.3
    slopes = jax.grad(bounds.logistic_bound, argnums=(0, 1, 2))(mean, variance, split)
    numbers = central_difference(lambda v: bounds.logistic_bound(*v), [mean, variance, split])
    np.testing.assert_allclose(slopes, numbers, rtol=1e-6)


def test_float32_stays_float32_and_extreme_scores_stay_finite():
    means = jnp.array([[1e4, -1e4, 0.0], [-1e4, -1e4, 0.0], [3.0, 1e4, 0.0]], jnp.float32)
    variances = jnp.array([[1e6, 0.0, 0.0], [0.0, 1e-8, 0.0], [1.0, 1e6, 0.0]], jnp.float32)
    shift = solve(means, variances)
    splits = bounds.softmax_splits(means, variances, shift)
    value = bounds.softmax_bound(means, variances, shift, splits)
    assert value.dtype == shift.dtype == jnp.float32
    assert np.isfinite(value).all()
