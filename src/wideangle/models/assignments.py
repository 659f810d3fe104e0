r"""Redrawing which row uses which feature, one feature at a time and all rows at once.

Given everything else, with :math:`r_n = x_n - \sum_{j\ne k} z_{nj}w_j`,

.. math:: \mathrm{logit}_n = \log\frac{\mu_k}{1-\mu_k}
          + \frac{r_n\cdot w_k - |w_k|^2/2}{\sigma^2},

and the density of the slice level, :math:`1/b(\mu^*)` with :math:`\mu^*` the weight of the last
active feature and :math:`b(\mu) = \min(\mu, 1/N)`, couples the rows: where no later feature is
active, whether *any* row uses feature k decides :math:`\mu^*`. So that bit is drawn first,

.. math:: P(\text{none}) \propto \prod_n(1-p_n)/b(\mu_{L'}), \qquad
          P(\text{any}) \propto \bigl(1 - \prod_n(1-p_n)\bigr)/b(\mu_k),

(L' the last active feature among the others, :math:`\mu_0 = 1`), and, if any, the rows given that
there is at least one. The products :math:`XW^\top` and :math:`WW^\top` are computed once per sweep.

``models/assignment_rows.py`` does the same row by row for the CPU, with the same random numbers.

Differs from the paper: its sampler takes :math:`\mu^*` as a constant.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wideangle.models.latent_features import level_bound
from wideangle.types import Array, Key, Scalar


class Noise(NamedTuple):
    """Random numbers of one sweep over assignments."""

    keys: Array
    """(K, 2) uint32: the threefry key of each column; row n takes the n-th number of it."""
    any_row: Array
    """(K,) uniform: does any row use the feature?"""
    first_row: Array
    """(K,) uniform: which is the first?"""


def draw_noise(key: Key, room: int, dtype: jnp.dtype) -> Noise:
    """Random numbers for ``room`` features; those of a feature do not depend on ``room``."""
    key_sites, key_any, key_first = jax.random.split(key, 3)
    keys = jax.vmap(lambda k: jax.random.fold_in(key_sites, k))(jnp.arange(room))
    return Noise(
        jax.random.key_data(keys).astype(jnp.uint32),
        jax.random.uniform(key_any, (room,), dtype),
        jax.random.uniform(key_first, (room,), dtype),
    )


def site_uniforms(key_data: Array, n_rows: int, dtype: jnp.dtype) -> Array:
    """Uniforms of one column, from all 32 bits: small ones are exact to 1e-10."""
    key = jax.random.wrap_key_data(key_data, impl="threefry2x32")
    bits = jax.random.bits(key, (n_rows,), jnp.uint32)
    return (bits.astype(dtype) + 0.5) * 2.0**-32


def decide(logit: Array, uniform: Array) -> Array:
    """One with probability sigmoid(logit), by comparing with the smaller of the two odds.

    Comparing ``uniform < sigmoid(logit)`` would in float32 switch off a certain feature once in 3e7
    sites, because uniforms above 1 - 3e-8 are rounded to 1.
    """
    return (logit > 0) ^ (uniform < jax.nn.sigmoid(-jnp.abs(logit)))


def sweep_columns(
    noise: Noise,
    assignments: Array,
    products: Array,
    inner: Array,
    weights: Array,
    n_live: Array,
    variance: Scalar,
    *,
    fixed_length: bool = False,
) -> Array:
    r"""Redraw every column in turn.

    Parameters
    ----------
    noise
        From :func:`draw_noise`.
    assignments
        (N, K) of 0 and 1.
    products, inner
        :math:`XW^\top` (N, K) and :math:`WW^\top` (K, K).
    weights
        (K,) in falling order.
    n_live
        Number of columns to redraw; the ones after it stay empty.
    variance
        :math:`\sigma^2`.
    fixed_length
        Loop over all columns there is room for, live or not: a GPU then runs the loop without
        asking the host after every column whether to go on.
    """
    n_rows, room = assignments.shape
    dtype = products.dtype
    columns = products.T
    log_odds = jnp.log(weights) - jnp.log1p(-weights)
    index = jnp.arange(room, dtype=jnp.int32)

    def propose(k: Array, used: Array) -> tuple[Array, Array]:
        own = inner[k, k]
        pull = columns[k] - inner[k] @ used + own * used[k]
        logit = log_odds[k] + (pull - 0.5 * own) / variance
        return logit, decide(logit, site_uniforms(noise.keys[k], n_rows, dtype))

    used = assignments.T.astype(dtype)
    last = jnp.max(jnp.where(jnp.any(used > 0, axis=1), index, 0))

    def before_last(k: Array, used: Array) -> Array:
        _, free = propose(k, used)
        return used.at[k].set(jnp.where(k < last, free.astype(dtype), used[k]))

    def from_last(k: Array, used: Array) -> Array:
        logit, free = propose(k, used)
        earlier = jnp.any(used > 0, axis=1) & (index < k)
        bound = level_bound(weights, earlier, n_rows)
        with_it = jnp.minimum(weights[k], 1.0 / n_rows)
        column = _coupled(logit, free, noise.any_row[k], noise.first_row[k], with_it, bound)
        return used.at[k].set(column.astype(dtype))

    # While the last active column is untouched, nothing that happens before it moves the bound.
    used = lax.fori_loop(0, room if fixed_length else last, before_last, used)
    used = lax.fori_loop(last, jnp.asarray(n_live, jnp.int32), from_last, used)
    return used.T.astype(jnp.uint8)


def _coupled(
    logit: Array, free: Array, any_row: Scalar, first_row: Scalar, with_it: Scalar, without: Scalar
) -> Array:
    """A column after which nothing is active: first whether any row uses it, then which."""
    log_unused = jnp.cumsum(-jax.nn.softplus(logit))
    used_by_now = -jnp.expm1(log_unused)
    log_none = log_unused[-1] - jnp.log(without)
    log_any = jnp.log(used_by_now[-1]) - jnp.log(with_it)
    none = any_row < jax.nn.sigmoid(log_none - log_any)
    first = jnp.sum(used_by_now < first_row * used_by_now[-1])
    rows = jnp.arange(logit.shape[0])
    given_any = (rows == first) | ((rows > first) & free)
    return jnp.where(none, False, given_any)
