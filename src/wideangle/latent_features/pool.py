"""The features of a chain while some of them come and go: a pool of slots.

New features go into empty slots, so that no large array is moved.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from wideangle.latent_features import state
from wideangle.latent_features.state import Design, Features, StoredAssignments, reorder
from wideangle.types import Array, Components, Scalar


class Pool(NamedTuple):
    """Features in slots while some of them come and go; sorted by weight again at the end.

    An empty slot has zero weight, length and count; its other contents are ignored.
    """

    weights: Array
    components: Components
    cosines: Array
    """(K, K) between directions; empty where their order does not matter."""
    counts: Array
    columns: Array
    """(K, N) rows that use each feature, as floats."""
    products: Array
    """(K, N) inner products of the features with the rows."""


class Feature(NamedTuple):
    """One feature, its slot and what goes with it."""

    slot: Array
    weight: Scalar
    direction: Array
    length: Scalar
    column: Array
    """(N,) rows that use it."""
    product: Array
    """(N,)"""


def gather(features: Features, products: Array, design: Design) -> Pool:
    """A pool of these features, followed by empty slots.

    ``products``, (N, L), are those of the rows with the first L features; no feature follows these.
    """
    assert not isinstance(features.assignments, StoredAssignments)
    width = products.shape[1]
    columns = jnp.asarray(features.assignments[:, :width], products.dtype).T
    directions = features.components.directions
    spare = ((0, min(design.n_spare, features.room - width)), (0, 0))
    return Pool(
        features.weights,
        features.components,
        directions @ directions.T if design.ordered else jnp.zeros((0, 0), directions.dtype),
        jnp.zeros_like(features.weights).at[:width].set(jnp.sum(columns, axis=1)),
        jnp.pad(columns, spare),
        jnp.pad(products.T, spare),
    )


def release(pool: Pool, features: Features) -> tuple[Features, Array]:
    """The features of the pool sorted by weight, with detached assignments, and their columns."""
    n_rows = pool.columns.shape[1]
    columns = pool.columns.T.astype(jnp.uint8)
    index = jnp.arange(features.room)
    stored = jnp.where(index < len(pool.columns), index, -1)
    features = features._replace(
        weights=pool.weights,
        components=pool.components,
        assignments=StoredAssignments(pool.counts.astype(jnp.int32), stored, n_rows),
    )
    order = jnp.argsort(-pool.weights, stable=True)
    return reorder(features, order, jnp.sum(pool.weights > 0)), columns


def pick(bits: Array, candidates: Array) -> Array:
    """One of the marked slots at random; the first slot if none is marked."""
    place = bits % jnp.maximum(jnp.sum(candidates), 1).astype(bits.dtype)
    return jnp.argmax(candidates & (jnp.cumsum(candidates) - 1 == place))


def empty_slot(pool: Pool) -> Array:
    """The first free slot, or one beyond the end."""
    free = pool.weights[: len(pool.columns)] == 0
    return jnp.where(jnp.any(free), jnp.argmax(free), len(pool.weights))


def at_slot(pool: Pool, slot: Array) -> Feature:
    """The feature of a slot."""
    directions, lengths = pool.components
    parts = (pool.weights, directions, lengths, pool.columns, pool.products)
    return Feature(slot, *(part[slot] for part in parts))


def take_out(pool: Pool, slot: Array) -> Pool:
    """The pool without the feature of a slot, whose column stays but is ignored."""
    directions, lengths = pool.components
    return pool._replace(
        weights=pool.weights.at[slot].set(0.0, mode="drop"),
        components=Components(directions, lengths.at[slot].set(0.0, mode="drop")),
        counts=pool.counts.at[slot].set(0, mode="drop"),
    )


def put(pool: Pool, one: Feature) -> Pool:
    """Write a feature into its slot; a slot beyond the end is not written."""
    directions, lengths = pool.components
    slot = one.slot
    return pool._replace(
        weights=pool.weights.at[slot].set(one.weight, mode="drop"),
        components=Components(
            directions.at[slot].set(one.direction, mode="drop"),
            lengths.at[slot].set(one.length, mode="drop"),
        ),
        cosines=with_cosines(pool, one) if pool.cosines.size else pool.cosines,
        counts=pool.counts.at[slot].set(
            jnp.where(one.weight > 0, jnp.sum(one.column), 0), mode="drop"
        ),
        columns=pool.columns.at[slot].set(one.column, mode="drop"),
        products=pool.products.at[slot].set(one.product, mode="drop"),
    )


def with_cosines(pool: Pool, one: Feature) -> Array:
    """Cosines of the pool with those of one feature in its slot."""
    slot = one.slot
    own = (
        (pool.components.directions @ one.direction)
        .at[slot]
        .set(one.direction @ one.direction, mode="drop")
    )
    return pool.cosines.at[slot].set(own, mode="drop").at[:, slot].set(own, mode="drop")


def most_slots(pool: Pool, design: Design) -> int:
    """Most features in a pool; in wide arrays, as many as a sweep may begin with.

    Otherwise a sweep could be irreversible, and so wrong: the next one would begin with too many
    features to change any assignment.
    """
    room = pool.weights.shape[0]
    return room - design.n_spare if room >= state.WIDE else room


def along(without: Pool, one: Feature) -> Array:
    """Products of the direction of a feature with the residuals of the other features, (N,)."""
    lengths = without.components.magnitudes[: len(without.columns)]
    cosines = without.components.directions[: len(without.columns)] @ one.direction
    product = one.product / jnp.where(one.length > 0, one.length, 1.0)
    return product - (lengths * cosines) @ without.columns


def choose(condition: Array, new: Feature, old: Feature) -> Feature:
    """One of two features."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
