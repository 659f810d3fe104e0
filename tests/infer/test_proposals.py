import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from wideangle.infer import positive_walk, vmf_walk
from wideangle.sphere.geometry import angle_between


@pytest.mark.parametrize("p", [3, 10, 100, 1000])
def test_the_typical_step_is_the_angle_in_any_dimension(key, p):
    start = jnp.tile(jnp.eye(p)[0], (2000, 1))
    moved, log_hastings = vmf_walk(0.2)(key, start)
    angles = angle_between(start, moved)
    assert abs(np.sqrt(np.mean(angles**2)) / 0.2 - 1) < 0.05
    assert log_hastings == 0.0
    np.testing.assert_allclose(jnp.linalg.norm(moved, axis=-1), 1.0, atol=1e-12)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("mean", [1e-6, 0.01, 0.5, 2.0, 20.0])
def test_positive_walk_draws_the_truncated_normal(key, dtype, mean):
    sigma = 0.5
    start = jnp.full(50_000, mean, dtype)
    moved, _ = positive_walk(sigma)(key, start)
    assert moved.dtype == dtype
    assert (moved > 0).all()
    exact = stats.truncnorm(-mean / sigma, np.inf, loc=mean, scale=sigma)
    assert stats.kstest(np.asarray(moved, float), exact.cdf).pvalue > 0.001


def test_positive_walk_is_right_in_both_tails_in_float32(key):
    # The inverse of the distribution function would have run out of float32 digits here.
    start = jnp.full(400_000, 2.0, jnp.float32)
    moved = np.asarray(positive_walk(0.5)(key, start)[0], float)
    exact = stats.truncnorm(-4.0, np.inf, loc=2.0, scale=0.5)
    for low, high in ((0.0, 0.25), (4.0, np.inf)):
        expected = (exact.cdf(high) - exact.cdf(low)) * moved.size
        seen = np.sum((moved > low) & (moved <= high))
        assert abs(seen - expected) < 4 * np.sqrt(expected)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_positive_walk_reports_the_ratio_of_its_densities(key, dtype):
    sigma = 0.5
    start = jnp.array([1e-4, 0.3, 2.0, 30.0], dtype)
    moved, log_hastings = positive_walk(sigma)(key, start)

    def log_q(to, of):
        return stats.truncnorm.logpdf(to, -of / sigma, np.inf, loc=of, scale=sigma).sum()

    there, back = np.asarray(moved, float), np.asarray(start, float)
    np.testing.assert_allclose(log_hastings, log_q(back, there) - log_q(there, back), atol=1e-5)


def test_a_mean_that_is_not_a_number_does_not_hang(key):
    moved, log_hastings = jax.jit(positive_walk(1.0))(key, jnp.array([jnp.nan, 1.0]))
    assert jnp.isnan(moved[0])
    assert moved[1] > 0
    del log_hastings


def test_padded_magnitudes_stay_zero(key):
    moved, log_hastings = positive_walk(0.5)(key, jnp.array([1.0, 0.0, 2.0]))
    assert moved[1] == 0.0
    assert (moved[::2] > 0).all()
    assert jnp.isfinite(log_hastings)


def test_padded_directions_stay_zero(key):
    moved, _ = vmf_walk(0.5)(key, jnp.eye(4).at[2].set(0.0))
    np.testing.assert_array_equal(moved[2], 0.0)
    assert not np.allclose(moved[0], jnp.eye(4)[0])
