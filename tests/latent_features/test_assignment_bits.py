"""Random decisions of the row-by-row sweep: bits of JAX's generator, and exact shortcuts."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wideangle.latent_features.assignments import decide_site, draw_randomness, threefry


def test_bits_are_those_of_jax():
    n_rows, room = 40, 37
    randomness = draw_randomness(jax.random.key(3), room, jnp.float32)
    keys, zero = np.asarray(randomness.keys), np.uint32(0)
    ours = np.array([[threefry(*key, zero, np.uint32(n)) for key in keys] for n in range(n_rows)])
    for k in range(room):
        key = jax.random.wrap_key_data(randomness.keys[k], impl="threefry2x32")
        np.testing.assert_array_equal(ours[:, k], jax.random.bits(key, (n_rows,), jnp.uint32))


@pytest.mark.parametrize("logit", [0.0, 1e-6, 0.3, 1.0, 2.5, 7.0, 15.0, 22.9, 24.0])
def test_the_shortcut_changes_no_decision(logit):
    """Against the plain rule, at random bits and next to where the decision turns."""
    limit = int(2**32 / (1.0 + math.exp(logit)))
    near = np.clip(limit + np.arange(-50, 50), 0, 2**32 - 1)
    settled = int(2**32 / (2.0 + logit + 0.5 * logit**2))
    turn = np.clip(settled + np.arange(-50, 50), 0, 2**32 - 1)
    random = np.random.default_rng(0).integers(0, 2**32, 300)
    for bits in np.concatenate([near, turn, random]).astype(np.uint32):
        uniform = (float(bits) + 0.5) * 2.0**-32
        flip = uniform < 1.0 / (1.0 + math.exp(logit))
        assert decide_site(logit, bits) == ((logit > 0) != flip)
        assert decide_site(-logit, bits) == ((-logit > 0) != flip)
