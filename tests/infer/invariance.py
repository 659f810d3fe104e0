"""Is the target left alone? Exact draws in, kernel steps, the same distribution out.

Each check returns z-scores of the paired change of some statistics, so that one function serves
for "the kernel is right" (all below 4) and for "a broken kernel is found" (one above 6).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from wideangle.infer.kernel import Kernel
from wideangle.sphere import vmf

N_STARTS = 20_000
PASS, FAIL = 4.0, 6.0


class Target(NamedTuple):
    draw: Callable[[jax.Array], Any]
    """key -> one exact draw."""
    log_density: Callable[[Any], jax.Array]
    statistics: Callable[[Any], jax.Array]
    """position -> vector of numbers whose distribution must not change."""


@cache
def exact_draws(target: Target) -> Any:
    """Exact draws of a target, made once for all the kernels that are tried on it."""
    keys = jax.random.split(jax.random.key(1), N_STARTS)
    return jax.jit(jax.vmap(target.draw))(keys)


def changes(kernel: Kernel, target: Target, n_steps: int = 3, seed: int = 0) -> np.ndarray:
    """Statistics after minus before, one row per exact start."""

    def one(key: jax.Array, start: Any) -> jax.Array:
        def step(state, subkey):
            return kernel.step(subkey, state, target.log_density)[0], None

        state = kernel.init(start, target.log_density)
        state, _ = jax.lax.scan(step, state, jax.random.split(key, n_steps))
        return target.statistics(state.position) - target.statistics(start)

    keys = jax.random.split(jax.random.key(seed), N_STARTS)
    return np.asarray(jax.jit(jax.vmap(one))(keys, exact_draws(target)))


def worst_z(kernel: Kernel, target: Target, n_steps: int = 3, seed: int = 0) -> float:
    """Largest absolute z-score of the paired changes; checks that the states did move."""
    change = changes(kernel, target, n_steps, seed)
    if not np.isfinite(change).all():
        return np.inf
    # Lengths of unit vectors change by rounding only, and rounding has a direction.
    change = np.where(np.abs(change) < 1e-9, 0.0, change)
    assert np.mean(np.any(change != 0, axis=1)) > 0.3, "most states did not move"
    error = np.maximum(change.std(0) / np.sqrt(len(change)), 1e-12)
    worst = float(np.max(np.abs(change.mean(0)) / error))
    print(f"max|z| = {worst:.1f}")  # shown by `pytest -rP`
    return worst


def draw_on_two_sphere(key: jax.Array, natural: jax.Array) -> jax.Array:
    """vMF draw for p = 3 in closed form, independent of the library."""
    kappa = jnp.linalg.norm(natural)
    key_cosine, key_side = jax.random.split(key)
    u = jax.random.uniform(key_cosine)
    cosine = 1 + jnp.log(u + (1 - u) * jnp.exp(-2 * kappa)) / kappa
    side = jnp.cross(natural, jax.random.normal(key_side, (3,)))
    sine = jnp.sqrt(jnp.maximum(1 - cosine**2, 0.0))
    return cosine * natural / kappa + sine * side / jnp.linalg.norm(side)


@cache
def von_mises_fisher(p: int, kappa: float) -> Target:
    natural = jnp.zeros(p).at[0].set(kappa)
    draw = draw_on_two_sphere if p == 3 else vmf.sample

    def statistics(x):
        return jnp.stack([x[0], x[0] ** 2, x[1], x[1] ** 2, jnp.sum(x**2)])

    return Target(lambda key: draw(key, natural), lambda x: kappa * x[0], statistics)


@cache
def repelling_chain(kappa: float = 4.0) -> Target:
    """x_1 ~ vMF(kappa e_1), x_2 ~ vMF(-kappa x_1), x_3 ~ vMF(-kappa x_2): no normaliser moves."""
    pole = jnp.array([1.0, 0.0, 0.0])

    def draw(key):
        rows = [-pole]
        for subkey in jax.random.split(key, 3):
            rows.append(draw_on_two_sphere(subkey, -kappa * rows[-1]))
        return jnp.stack(rows[1:])

    def log_density(x):
        return kappa * (x[0] @ pole - x[0] @ x[1] - x[1] @ x[2])

    def statistics(x):
        cosines = (x @ x.T)[jnp.triu_indices(3, 1)]
        return jnp.concatenate([x[:, 0], cosines, cosines**2, jnp.sum(x**2, axis=1)])

    return Target(draw, log_density, statistics)


@cache
def gamma_magnitudes(shape: float = 1.0, n_rows: int = 3) -> Target:
    """Gamma(1, 1) or Gamma(1/2, 1), whose draws are an exponential and half a squared normal."""
    draw = {
        1.0: lambda key: jax.random.exponential(key, (n_rows,)),
        0.5: lambda key: 0.5 * jax.random.normal(key, (n_rows,)) ** 2,
    }[shape]

    def log_density(g):
        inside = jnp.sum((shape - 1) * jnp.log(g) - g)
        return jnp.where(jnp.all(g > 0), inside, -jnp.inf)

    def statistics(g):
        return jnp.concatenate([g, jnp.log(g), g < 0.2])

    return Target(draw, log_density, statistics)


@cache
def direction_with_magnitude() -> Target:
    """g ~ Gamma(3, 1), direction given g ~ vMF(g e_1), in the coordinates (direction, log g)."""
    pole = jnp.array([1.0, 0.0, 0.0])

    def draw(key):
        key_g, key_x = jax.random.split(key)
        g = jnp.sum(jax.random.exponential(key_g, (3,)))
        return {"direction": draw_on_two_sphere(key_x, g * pole), "log": jnp.log(g)}

    def log_density(z):
        g = jnp.exp(z["log"])
        log_normaliser = jnp.log(jnp.sinh(g) / g)
        return g * z["direction"][0] - log_normaliser + 3.0 * z["log"] - g

    def statistics(z):
        x, log = z["direction"], z["log"]
        return jnp.stack([x[0], x[0] ** 2, x[1] ** 2, log, log**2, jnp.exp(log), x[0] * log])

    return Target(draw, log_density, statistics)


@cache
def two_bumps() -> Target:
    """0.3 N(-2, 0.5^2) + 0.7 N(2, 1)."""
    weights, means, scales = jnp.array([0.3, 0.7]), jnp.array([-2.0, 2.0]), jnp.array([0.5, 1.0])

    def draw(key):
        key_which, key_value = jax.random.split(key)
        which = jax.random.choice(key_which, 2, p=weights)
        return means[which] + scales[which] * jax.random.normal(key_value)

    def log_density(x):
        return logsumexp(jnp.log(weights / scales) - 0.5 * ((x - means) / scales) ** 2)

    def statistics(x):
        return jnp.stack([x, x**2, x < 0, x < -2.5, x > 3.5]).astype(float)

    return Target(draw, log_density, statistics)
