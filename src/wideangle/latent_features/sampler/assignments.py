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

``latent_features/sampler/assignment_rows.py`` does the same row by row for the CPU, with the same
random numbers.

Differs from the paper: its sampler takes :math:`\mu^*` as a constant.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wideangle.latent_features.state import level_bound
from wideangle.types import Array, Key, Scalar

TOGETHER = 8
"""Columns before the last active one that are drawn in one program."""
AHEAD = 64
"""Columns after it that are drawn at once."""


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
    dtype = products.dtype
    columns = products.T
    used = assignments.T.astype(dtype)
    index = jnp.arange(used.shape[0], dtype=jnp.int32)
    last = jnp.max(jnp.where(jnp.any(used > 0, axis=1), index, 0))
    sites = _Sites(noise, columns, inner, weights, variance)
    # While the last active column is untouched, nothing that happens before it moves the bound.
    used = _before(last, used, sites, fixed_length=fixed_length)
    used = _after(last, jnp.asarray(n_live, jnp.int32), used, sites)
    return used.T.astype(jnp.uint8)


class _Sites(NamedTuple):
    """What a column is drawn from."""

    noise: Noise
    columns: Array
    inner: Array
    weights: Array
    variance: Scalar

    def part(self, first: Array, size: int, used: Array) -> tuple[Array, Array, Array]:
        """Logits of ``size`` columns given all others, as if alone, and what goes with them.

        Returns the logits (size, N), the inner products among the columns over the variance, and
        their uniforms (size, N).
        """
        n_rows = used.shape[1]
        inner = lax.dynamic_slice_in_dim(self.inner, first, size)
        own = lax.dynamic_slice_in_dim(inner, first, size, axis=1)
        mine = lax.dynamic_slice_in_dim(used, first, size)
        weights = lax.dynamic_slice_in_dim(self.weights, first, size)
        pull = lax.dynamic_slice_in_dim(self.columns, first, size) - inner @ used
        square = jnp.diagonal(own)[:, None]
        logits = (jnp.log(weights) - jnp.log1p(-weights))[:, None]
        logits = logits + (pull + square * (mine - 0.5)) / self.variance
        keys = lax.dynamic_slice_in_dim(self.noise.keys, first, size)
        uniforms = jax.vmap(lambda key: site_uniforms(key, n_rows, used.dtype))(keys)
        return logits, own / self.variance, uniforms


def _before(last: Array, used: Array, sites: _Sites, *, fixed_length: bool) -> Array:
    """Columns before the last active one, a few at a time.

    The columns of a group meet all others in one matrix product; how they meet each other is a
    handful of operations per row, written out, which the compiler makes one kernel of.
    """
    room = used.shape[0]
    size = math.gcd(room, TOGETHER)

    def group(number: Array, used: Array) -> Array:
        first = number * size
        logits, coupling, uniforms = sites.part(first, size, used)
        old = lax.dynamic_slice_in_dim(used, first, size)
        new: list[Array] = []
        for j in range(size):
            logit = logits[j]
            for i in range(j):
                logit = logit - coupling[j, i] * (new[i] - old[i])
            free = decide(logit, uniforms[j]).astype(used.dtype)
            new.append(jnp.where(first + j < last, free, old[j]))
        return lax.dynamic_update_slice_in_dim(used, jnp.stack(new), first, axis=0)

    n_groups = room // size if fixed_length else -(-last // size)
    return lax.fori_loop(0, n_groups, group, used)


def _after(last: Array, n_live: Array, used: Array, sites: _Sites) -> Array:
    """The last active column and those after it, where whether any row uses one moves the bound.

    All but a few of them come out empty, so many are drawn at once as if those before stayed as
    they are; that holds up to the first that does not stay empty, and from there it begins anew.
    """
    room, n_rows = used.shape
    size = min(room, AHEAD)
    index = jnp.arange(room, dtype=jnp.int32)
    active = jnp.any(used > 0, axis=1)

    def look_ahead(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        k, used, active = state
        first = jnp.minimum(k, room - size)  # a slice that would run over the end is moved back
        logits, _, uniforms = sites.part(first, size, used)
        mine = lax.dynamic_slice_in_dim(index, first, size)
        bound = level_bound(sites.weights, active & (index < k), n_rows)
        parts = (sites.noise.any_row, sites.noise.first_row, sites.weights)
        any_row, first_row, weights = (lax.dynamic_slice_in_dim(p, first, size) for p in parts)
        with_it = jnp.minimum(weights, 1.0 / n_rows)
        free = decide(logits, uniforms)
        drawn = jax.vmap(_coupled, (0, 0, 0, 0, 0, None))(
            logits, free, any_row, first_row, with_it, bound
        )
        ours = (mine >= k) & (mine < n_live)
        changes = ours & (jnp.any(drawn, axis=1) | (mine == last))
        end = jnp.where(jnp.any(changes), jnp.argmax(changes), size - 1).astype(jnp.int32)
        column = drawn[end] & ours[end]
        place = first + end
        kept = jnp.where(ours[end], column.astype(used.dtype), used[place])
        active = active.at[place].set(jnp.any(kept > 0))
        return place + 1, used.at[place].set(kept), active

    def goes_on(state: tuple[Array, Array, Array]) -> Array:
        return state[0] < n_live

    return lax.while_loop(goes_on, look_ahead, (last, used, active))[1]


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
