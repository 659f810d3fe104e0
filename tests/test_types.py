"""Components in polar form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from wideangle.types import Components, as_floating, in_order


def test_polar_form_round_trip():
    vectors = np.random.default_rng(0).normal(size=(4, 3, 5))
    polar = Components.from_vectors(vectors)
    assert polar.directions.shape == (4, 3, 5)
    assert polar.magnitudes.shape == (4, 3)
    np.testing.assert_allclose(polar.vectors, vectors, rtol=1e-13)
    np.testing.assert_allclose(polar.magnitudes, np.linalg.norm(vectors, axis=-1), rtol=1e-13)
    np.testing.assert_allclose(np.linalg.norm(polar.directions, axis=-1), 1.0, rtol=1e-13)


def test_a_zero_vector_keeps_a_zero_direction():
    polar = Components.from_vectors(jnp.zeros((2, 3)))
    assert not np.any(polar.directions)
    assert not np.any(polar.magnitudes)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_squares_neither_vanish_nor_overflow(scale):
    polar = Components.from_vectors(jnp.asarray([[3.0, 4.0]], jnp.float32) * jnp.float32(scale))
    np.testing.assert_allclose(polar.magnitudes, 5 * scale, rtol=1e-6)
    np.testing.assert_allclose(polar.directions, [[0.6, 0.8]], rtol=1e-6)


def test_gradients_of_the_polar_form():
    vector = jnp.array([[1.0, 2.0, 2.0]])
    gradient = jax.grad(lambda v: Components.from_vectors(v).magnitudes.sum())(vector)
    np.testing.assert_allclose(gradient, vector / 3, rtol=1e-12)
    turned = jax.grad(lambda v: Components.from_vectors(v).directions[0, 0])(vector)
    np.testing.assert_allclose(turned, [[8 / 27, -2 / 27, -2 / 27]], rtol=1e-10)
    at_zero = jax.grad(lambda v: Components.from_vectors(v).vectors.sum())(jnp.zeros((1, 3)))
    assert np.all(np.isfinite(at_zero))


def test_whole_numbers_take_the_precision_at_hand():
    assert as_floating(3).dtype == jnp.float64
    assert as_floating(3, like=jnp.float32(1)).dtype == jnp.float32
    assert as_floating(np.float32(3)).dtype == jnp.float32


def test_rows_in_order_are_given_back_and_others_are_copied():
    good = sp.csr_array(np.eye(3))
    assert in_order(good) is good
    assert in_order("anything else") == "anything else"
    bad = sp.csr_array((np.array([1.0, 2.0, 4.0]), np.array([1, 0, 1]), np.array([0, 3])))
    found = in_order(bad)
    assert bad.indices.tolist() == [1, 0, 1]
    assert found.indices.tolist() == [0, 1]
    assert found.data.tolist() == [2.0, 5.0]
