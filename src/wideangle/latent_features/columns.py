"""Redrawing assignments column by column, all rows at once: ``assignments.py`` for devices.

It draws from the same distributions with the same random numbers as the pass row by row, so both
give the same assignments.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wideangle.latent_features.assignments import Randomness, decide, site_uniforms
from wideangle.latent_features.state import level_bound
from wideangle.types import Array, Scalar

TOGETHER = 8
"""Columns before the last active one that are drawn in one program."""
AHEAD = 64
"""Columns after it that are drawn at once."""


def sweep_columns(
    randomness: Randomness,
    assignments: Array,
    products: Array,
    inner: Array,
    weights: Array,
    n_live: Array,
    noise_variance: Scalar,
    *,
    fixed_length: bool = False,
) -> Array:
    r"""Redraw every column in turn.

    Parameters
    ----------
    randomness
        From :func:`draw_randomness`.
    assignments
        (N, K) of 0 and 1.
    products, inner
        :math:`XW^\top` (N, K) and :math:`WW^\top` (K, K).
    weights
        (K,) in falling order.
    n_live
        Number of columns to redraw; the ones after it stay empty.
    noise_variance
        :math:`\sigma^2`.
    fixed_length
        Loop over all columns there is room for, live or not: a GPU then runs the loop without
        checking with the host after every column.
    """
    dtype = products.dtype
    columns = products.T
    used = assignments.T.astype(dtype)
    index = jnp.arange(used.shape[0], dtype=jnp.int32)
    last = jnp.max(jnp.where(jnp.any(used > 0, axis=1), index, 0))
    sites = _Sites(randomness, columns, inner, weights, noise_variance)
    # Until the last active column is redrawn, changes before it do not move the bound.
    used = _before(last, used, sites, fixed_length=fixed_length)
    used = _after(last, jnp.asarray(n_live, jnp.int32), used, sites)
    return used.T.astype(jnp.uint8)


class _Sites(NamedTuple):
    """What a column is drawn from."""

    randomness: Randomness
    columns: Array
    inner: Array
    weights: Array
    noise_variance: Scalar

    def part(self, first: Array, size: int, used: Array) -> tuple[Array, Array, Array]:
        """Logits of ``size`` columns, each given the current values of all others.

        Returns the logits (size, N), the inner products among the columns over the variance of the
        noise, and their uniforms (size, N).
        """
        n_rows = used.shape[1]
        inner = lax.dynamic_slice_in_dim(self.inner, first, size)
        among = lax.dynamic_slice_in_dim(inner, first, size, axis=1)
        mine = lax.dynamic_slice_in_dim(used, first, size)
        weights = lax.dynamic_slice_in_dim(self.weights, first, size)
        pull = lax.dynamic_slice_in_dim(self.columns, first, size) - inner @ used
        square = jnp.diagonal(among)[:, None]
        logits = (jnp.log(weights) - jnp.log1p(-weights))[:, None]
        logits = logits + (pull + square * (mine - 0.5)) / self.noise_variance
        keys = lax.dynamic_slice_in_dim(self.randomness.keys, first, size)
        uniforms = jax.vmap(lambda key: site_uniforms(key, n_rows, used.dtype))(keys)
        return logits, among / self.noise_variance, uniforms


def _before(last: Array, used: Array, sites: _Sites, *, fixed_length: bool) -> Array:
    """Columns before the last active one, a few at a time.

    Interactions of a group with all other columns are one matrix product; those within the group
    are a few unrolled operations per row, which the compiler fuses into one kernel.
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
    """The last active column and those after it, whose use by any row moves the bound.

    Nearly all of them come out empty, so many are drawn at once as if the earlier ones did not
    change; this is valid up to the first nonempty one, after which it starts again.
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
        parts = (sites.randomness.any_row, sites.randomness.first_row, sites.weights)
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
