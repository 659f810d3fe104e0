"""Gamma draws side by side."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from wideangle.priors.stick_breaking import draw_gamma


@pytest.mark.parametrize("shape", [0.5, 1.0, 2.0, 1000.0])
def test_draws_have_their_distribution(shape):
    draws = np.asarray(draw_gamma(jax.random.key(1), jnp.full(50_000, shape)), float)
    assert stats.kstest(draws, "gamma", (shape,)).pvalue > 1e-3


def test_a_draw_does_not_depend_on_how_many_there_are():
    few, many = (draw_gamma(jax.random.key(3), jnp.full(n, 1.5)) for n in (7, 70))
    np.testing.assert_array_equal(few, many[:7])
