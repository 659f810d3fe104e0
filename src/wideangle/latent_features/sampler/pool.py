"""Features while some of them are born and others die, without moving a large array.

Births and deaths (``latent_features/sampler/births.py``) take turns many times in a sweep. Here is
what they share: a pool of slots, one for each feature, in which newborns are put behind and the
dead leave a gap, and the way into it and out of it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wideangle.infer.kernel import accept
from wideangle.latent_features.sampler import design as lfm_design
from wideangle.latent_features.sampler.design import Design
from wideangle.latent_features.state import Elsewhere, Features, reorder
from wideangle.types import Array, Components, Key, Scalar


class Seen(NamedTuple):
    """What the moves need of the rows."""

    products: Array
    """(N, L) inner products with the first L features; there are none behind."""
    new_products: Array
    """(N, n) with the vectors of null births."""
    seeds: Array
    """(m,) numbers of the rows of single births."""
    seed_rows: Array
    """(m, D) these rows."""
    energy: Array
    """(N,) squared lengths of all rows."""


class Pool(NamedTuple):
    """Features while some of them come and go: newborns are put behind, the dead leave a gap.

    In order of weight again only at the end. The columns of the features that were there before
    stay outside (:class:`Before`), so that a move touches no large array; those of the dead remain,
    and count for nothing because weight and length are zero.
    """

    weights: Array
    components: Components
    cosines: Array
    """(K, K) between directions; empty where they do not matter."""
    counts: Array
    born_used: Array
    """(N, n) assignments of newborns as floats."""
    born_products: Array
    n_slots: Array
    n_accepted: Array


class Before(NamedTuple):
    """What is known of the rows before the first move."""

    used: Array
    """(N, L) assignments of these features as floats."""
    n_live: Array
    """Number of features then: later slots are newborns'."""
    seen: Seen


class Feature(NamedTuple):
    """One feature, its slot and what goes with it."""

    slot: Array
    weight: Scalar
    direction: Array
    length: Scalar
    cosines: Array
    """(K,) with the directions of the pool, its own slot 1."""
    column: Array
    """(N,) rows that use it."""
    product: Array
    """(N,)"""


def gather(features: Features, seen: Seen, design: Design) -> tuple[Pool, Before]:
    """A pool of these features, and what stays outside of it."""
    assert not isinstance(features.assignments, Elsewhere)
    width = seen.products.shape[1]
    used = jnp.asarray(features.assignments[:, :width], seen.products.dtype)
    directions = features.components.directions
    nobody = jnp.zeros((len(used), design.n_births), used.dtype)
    pool = Pool(
        features.weights,
        features.components,
        directions @ directions.T if design.ordered else jnp.zeros((0, 0), directions.dtype),
        jnp.zeros_like(features.weights).at[:width].set(jnp.sum(used, axis=0)),
        nobody,
        nobody,
        features.n_live,
        jnp.zeros((), jnp.int32),
    )
    return pool, Before(used, features.n_live, seen)


def release(pool: Pool, before: Before, features: Features) -> tuple[Features, Array]:
    """The features of the pool in order of weight, assignments set aside, and their columns."""
    used = features.assignments
    assert not isinstance(used, Elsewhere)
    width = before.used.shape[1]
    columns = jnp.concatenate([used[:, :width], pool.born_used.astype(used.dtype)], axis=1)
    index = jnp.arange(features.room)
    newborn = index - before.n_live
    stored = jnp.where(newborn < 0, index, width + newborn)
    features = features._replace(
        weights=pool.weights,
        components=pool.components,
        assignments=Elsewhere(pool.counts.astype(jnp.int32), stored, len(used)),
    )
    order = jnp.argsort(-pool.weights, stable=True)
    return reorder(features, order, jnp.sum(pool.weights > 0)), columns


def cosines_with(pool: Pool, direction: Array, slot: Array) -> Array:
    """Cosines of a direction with those of the pool; 1 with its own slot."""
    return (pool.components.directions @ direction).at[slot].set(1.0, mode="drop")


def of_row(pool: Pool, rows: Before, row: Array) -> tuple[Array, Array]:
    """Assignments of one row and its products with the features, (K,) each, the dead without."""

    def joined(before: Array, born: Array) -> Array:
        whole = jnp.zeros_like(pool.weights).at[: before.shape[1]].set(before[row])
        whole = lax.dynamic_update_slice_in_dim(whole, born[row], rows.n_live, 0)
        return jnp.where(pool.weights > 0, whole, 0.0)

    return joined(rows.used, pool.born_used), joined(rows.seen.products, pool.born_products)


def take_out(key: Key, pool: Pool, rows: Before, candidates: Array) -> tuple[Feature, Pool]:
    """A random candidate, and the pool without it."""
    pick = jax.random.randint(key, (), 0, jnp.maximum(jnp.sum(candidates), 1))
    k = jnp.argmax(candidates & (jnp.cumsum(candidates) - 1 == pick))
    directions, lengths = pool.components
    newborn = jnp.maximum(k - rows.n_live, 0)

    def column(before: Array, born: Array) -> Array:
        # Where there is no candidate k may be one of the dead, whose column is still there.
        found = jnp.where(k < rows.n_live, before[:, k], born[:, newborn])
        return jnp.where(pool.weights[k] > 0, found, 0.0)

    old = Feature(
        k,
        pool.weights[k],
        directions[k],
        lengths[k],
        directions @ directions[k],
        column(rows.used, pool.born_used),
        column(rows.seen.products, pool.born_products),
    )
    nothing = jax.tree.map(jnp.zeros_like, old)._replace(slot=k)
    return old, _put(pool, nothing, jnp.zeros_like(pool.counts[0]))


def born(key: Key, pool: Pool, new: Feature, rows: Before, log_ratio: Scalar) -> Pool:
    """The pool with ``new``, if that is accepted."""
    # That there is a slot was made sure of when the atoms were drawn.
    room = pool.weights.shape[0]
    fits = (new.slot < room) & (jnp.sum(pool.weights > 0) < most_slots(pool))
    accepted, _ = accept(key, jnp.where(fits, log_ratio, -jnp.inf))
    slot = jnp.where(accepted, new.slot, room)  # beyond the end: not written
    place = slot - rows.n_live
    return _put(pool, new._replace(slot=slot), jnp.sum(new.column))._replace(
        born_used=pool.born_used.at[:, place].set(new.column, mode="drop"),
        born_products=pool.born_products.at[:, place].set(new.product, mode="drop"),
        n_slots=pool.n_slots + accepted,
        n_accepted=pool.n_accepted + accepted,
    )


def most_slots(pool: Pool) -> int:
    """Features that a pool may have; in wide arrays, as many as a sweep may begin with.

    A sweep that could not be undone, because the next one would begin with too many features to
    change any assignment, would be wrong.
    """
    room, n_births = pool.weights.shape[0], pool.born_used.shape[1]
    return room - n_births if room >= lfm_design.WIDE else room


def dies(key: Key, without: Pool, old: Feature, log_ratio: Scalar) -> Pool:
    """The pool ``without`` a feature, or with it again if its death is not accepted."""
    accepted, _ = accept(key, log_ratio)
    slot = jnp.where(accepted, without.weights.shape[0], old.slot)
    back = _put(without, old._replace(slot=slot), jnp.sum(old.column))
    return back._replace(n_accepted=without.n_accepted + accepted)


def _put(pool: Pool, one: Feature, count: Array) -> Pool:
    """Write a feature into its slot, but for its columns; a slot beyond the end is not written."""
    directions, lengths = pool.components
    slot = one.slot
    cosines = pool.cosines
    if cosines.size:
        cosines = cosines.at[slot].set(one.cosines, mode="drop")
        cosines = cosines.at[:, slot].set(one.cosines, mode="drop")
    return pool._replace(
        weights=pool.weights.at[slot].set(one.weight, mode="drop"),
        components=Components(
            directions.at[slot].set(one.direction, mode="drop"),
            lengths.at[slot].set(one.length, mode="drop"),
        ),
        cosines=cosines,
        counts=pool.counts.at[slot].set(count, mode="drop"),
    )
