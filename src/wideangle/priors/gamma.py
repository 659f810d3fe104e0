"""Gamma draws, all of them at once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from wideangle.types import Array, Key

MAX_ROUNDS = 32
"""Rejection rounds: each accepts with probability above 0.95, so a miss has odds below 1e-41."""


def draw_gamma(key: Key, shapes: Array) -> Array:
    r"""Draws of unit rate, one for each shape, by rejection (Marsaglia and Tsang, 2000).

    A few rounds, each for all draws side by side; ``jax.random.gamma`` makes one after the other on
    a CPU. A draw does not depend on how many others there are. Shapes below 1 are raised by 1, and
    the draw is multiplied by :math:`U^{1/a}`.
    """
    key_raised, key_rounds = jax.random.split(key)
    dtype = shapes.dtype
    least = jnp.finfo(dtype).tiny
    low = shapes < 1.0
    centre = jnp.where(low, shapes + 1.0, shapes) - 1.0 / 3.0
    spread = lax.rsqrt(9.0 * centre)

    def pending(state: tuple[Array, Array, Array]) -> Array:
        return (state[0] < MAX_ROUNDS) & ~jnp.all(state[2])

    def attempt(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        rounds, drawn, done = state
        keys = jax.random.split(jax.random.fold_in(key_rounds, rounds))
        normal = jax.random.normal(keys[0], shapes.shape, dtype)
        uniform = jax.random.uniform(keys[1], shapes.shape, dtype, minval=least)
        root = 1.0 + spread * normal
        cube = root**3
        bound = 0.5 * normal**2 + centre * (1.0 - cube + jnp.log(jnp.maximum(cube, least)))
        good = (root > 0) & (jnp.log(uniform) < bound)
        return rounds + 1, jnp.where(done, drawn, centre * cube), done | good

    start = (jnp.int32(0), jnp.ones_like(shapes), jnp.zeros(shapes.shape, bool))
    drawn = lax.while_loop(pending, attempt, start)[1]
    uniform = jax.random.uniform(key_raised, shapes.shape, dtype, minval=least)
    return drawn * jnp.where(low, uniform ** (1.0 / shapes), 1.0)
