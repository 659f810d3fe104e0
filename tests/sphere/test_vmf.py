"""The von Mises-Fisher distribution: density, exact draws, moments, entropy, divergence."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from sphere import bessel_reference, vmf_checks
from statistical import FOUR, RARE, relative_error, z_score
from wideangle.sphere import vmf

F32, F64 = jnp.float32, jnp.float64


def cases(quick, dims):
    """All dimensions in both precisions; those not in ``quick`` are slow."""
    pairs = [(dim, dtype) for dim in dims for dtype in (F32, F64)]
    return pytest.mark.parametrize(
        ("dim", "dtype"),
        [pytest.param(*p, marks=[] if p in quick else pytest.mark.slow) for p in pairs],
    )


@pytest.mark.parametrize("kappa", [0.0, 2.0, 50.0])
def test_density_integrates_to_one_on_the_circle_and_the_sphere(kappa):
    turns = np.linspace(0, 2 * np.pi, 4001)
    circle = np.stack([np.cos(turns), np.sin(turns)], axis=-1)
    density = np.exp(vmf.log_prob(kappa * np.array([0.6, 0.8]), circle))
    assert integrate.simpson(density, x=turns) == pytest.approx(1, rel=1e-10)
    heights = np.linspace(-1, 1, 20001)  # the area between two heights is 2 pi times the step
    points = np.stack([np.sqrt(1 - heights**2), 0 * heights, heights], axis=-1)
    density = np.exp(vmf.log_prob(kappa * np.array([0, 0, 1.0]), points))
    assert 2 * np.pi * integrate.simpson(density, x=heights) == pytest.approx(1, rel=1e-9)


def test_density_integrates_to_one_in_five_dimensions():
    assert vmf_checks.mass(vmf, 5) < FOUR


@cases([(2, F32), (3, F64), (50, F32), (1000, F64)], [2, 3, 5, 50, 1000])
def test_angle_to_the_mean_has_its_exact_distribution(dim, dtype):
    assert min(vmf_checks.angle_pvalues(vmf, dim, dtype)) > RARE


def test_exact_distribution_of_the_angle_is_itself_right():
    """In three dimensions the cosine has a closed-form distribution."""
    for kappa in (0.5, 10.0, 1e6):
        drop = np.array([0.1, 1.0, 3.0]) / max(kappa, 2.0)
        closed = np.expm1(-kappa * drop) / np.expm1(-2 * kappa)
        angles = 2 * np.arcsin(np.sqrt(drop / 2))
        np.testing.assert_allclose(vmf_checks.angle_cdf(3, kappa)(angles), closed, atol=1e-6)


@cases([(2, F32), (5, F64)], [2, 5])
def test_draws_have_the_exact_moments(dim, dtype):
    assert max(vmf_checks.moment_z_scores(vmf, dim, dtype)) < FOUR


def test_draws_are_isotropic_around_the_mean():
    draws = vmf.sample(jax.random.key(0), jnp.array([0.0, 0.0, 5.0]), (20_000,))
    turn = np.arctan2(draws[:, 1], draws[:, 0]) / (2 * np.pi) + 0.5
    assert stats.kstest(turn, "uniform").pvalue > RARE


@cases([(2, F32), (1000, F64)], [2, 3, 1000])
def test_draws_lie_on_the_sphere(dim, dtype):
    """Also the one in 1e5 whose Gaussian part was almost along the mean."""
    mean = np.ones(dim) / np.sqrt(dim)
    natural = jnp.asarray(np.array([0.0, 1.0, 1e6])[:, None] * mean, dtype)
    draws = vmf.sample(jax.random.key(0), natural, (200_000 if dim < 5 else 50,))
    assert draws.dtype == dtype
    lengths = np.linalg.norm(np.asarray(draws, float), axis=-1)
    assert np.abs(lengths - 1).max() < 8 * jnp.finfo(dtype).eps


def test_shapes_of_draws():
    natural = jnp.asarray(np.ones((4, 1, 3)) * np.arange(5.0)[:, None])
    assert jax.eval_shape(vmf.sample, jax.random.key(0), natural).shape == (4, 5, 3)
    draws = vmf.sample(jax.random.key(0), natural, (2, 6))
    assert draws.shape == (2, 6, 4, 5, 3)
    assert len(np.unique(np.asarray(draws).ravel())) > 0.99 * draws.size


def test_one_trace_serves_every_call_of_a_shape():
    traces = []

    @jax.jit
    def draw(key, natural):
        traces.append(natural.shape)
        return vmf.sample(key, natural, (3,))

    for seed in range(3):
        draw(jax.random.key(seed), jnp.full(4, float(seed)))
    assert traces == [(4,)]
    draw(jax.random.key(0), jnp.ones((2, 4)))
    assert traces == [(4,), (2, 4)]


@pytest.mark.parametrize("dim", [2, 1000])
def test_a_round_accepts_often(dim, monkeypatch):
    kappas = jnp.asarray([0.0, 0.1, 1.0, 30.0, 1e3, 1e8]) * dim
    arguments = jax.random.key(0), kappas, dim, (5000, len(kappas))
    final = vmf.sample_cosine(*arguments)[0]
    monkeypatch.setattr(vmf, "MAX_ROUNDS", 1)
    first = vmf.sample_cosine(*arguments)[0]
    accepted = np.mean(np.asarray(first == final), axis=0)
    assert np.all(accepted > 0.65 - 4 * 0.007)
    assert np.all(accepted < 1.0 + 1e-9)


def test_entropy_is_minus_the_mean_log_density():
    assert vmf_checks.entropy_z_score(vmf, 4) < FOUR


def test_entropy_is_largest_when_uniform():
    entropy = jax.jit(vmf.entropy_to_uniform, static_argnums=1)
    values = entropy(jnp.array([0.0, 1e-3, 1.0, 50.0, 1e6]), 10)
    assert values[0] == 0
    assert np.all(np.diff(values) < 0)


def test_divergence_is_the_mean_log_ratio():
    assert vmf_checks.divergence_z_score(vmf, 4) < FOUR


def test_divergence_vanishes_only_between_equals():
    natural = vmf_checks.naturals(6)
    divergence = jax.jit(vmf.kl_divergence)
    np.testing.assert_allclose(divergence(natural, natural), 0.0, atol=1e-12)
    assert np.all(divergence(natural, np.roll(natural, 1, axis=0)) > 1e-3)


def test_scatter_weights_do_not_cancel():
    assert vmf_checks.scatter_error(vmf, bessel_reference.mean_resultant) < 1e-12
    across, along = vmf.scatter_weights(jnp.zeros(()), 7)
    assert (across, along) == (pytest.approx(1 / 7), 0)


def test_second_moment_of_draws_is_the_scatter():
    natural = jnp.asarray(vmf_checks.naturals(3))
    draws = np.asarray(vmf.sample(jax.random.key(5), natural, (20_000,)))
    kappa = jnp.linalg.norm(natural, axis=-1)
    across, along = vmf.scatter_weights(kappa, 3)
    unit = np.asarray(natural) / np.maximum(kappa, 1e-300)[:, None]
    outer = unit[:, :, None] * unit[:, None, :]
    expected = across[:, None, None] * np.eye(3) + along[:, None, None] * outer
    assert z_score(draws[..., :, None] * draws[..., None, :], expected) < FOUR


def test_covariance_keeps_its_digits_at_high_concentration():
    covariance = jax.jit(vmf.covariance)(jnp.array([0.0, 0.0, 1e6]))
    # Along the mean (p-1)/(2 kappa^2), across 1/kappa, to leading order.
    assert relative_error(covariance[2, 2], 1e-12) < 1e-4
    assert relative_error(covariance[0, 0], 1e-6) < 1e-5


def test_gradients_exist_at_the_uniform_distribution():
    point = jnp.array([0.6, 0.8, 0.0])
    gradient = jax.jit(jax.grad(vmf.log_prob))(jnp.zeros(3), point)
    np.testing.assert_allclose(gradient, point)  # x minus the mean, which is 0
