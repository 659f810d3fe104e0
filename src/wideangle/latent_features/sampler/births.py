r"""Births and deaths of features, so that their number keeps moving.

Two kinds, with the level s of the slice held. In both a weight :math:`\mu` comes from the rate of
the process above s, and a birth with K' possible victims of the reverse death is accepted with

.. math:: \log\int_s^1\!\rho + F + \Delta\log p_{\mathrm{chain}}
          - \log K' + \log b_{\mathrm{old}} - \log b_{\mathrm{new}}

with b the bound of the level (for a rate with a factor :math:`(1-u)^{c+d-1}`, its log at
:math:`\mu` is added).

*Null*: a vector from the prior (directions uniform), and the rows that use it from their
conditional distribution: a feature that explains nothing. With
:math:`l_n = (r_n\cdot w - |w|^2/2)/\sigma^2`, :math:`F = \sum_n\log(1-\mu+\mu e^{l_n})`; a birth
that no row uses is rejected; any active feature may die.

*Single*: a random row n and a vector drawn from its distribution given that this row alone uses it.
For polar features of length r, the direction from :math:`\mathrm{vMF}(r\,r_n/\sigma^2)`,

.. math:: F = \log N + \log\mu + (N-1)\log(1-\mu) + G_D(r|r_n|/\sigma^2) - r^2/2\sigma^2;

for Gaussian ones the last two terms are the ratio of the row's densities with and without a
feature. Only features of one row may die.

Births and deaths take turns many times in a sweep. Meanwhile the features are a pool of slots, in
which newborns are put behind and the dead leave a gap, so that no large array is moved.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wideangle.infer.kernel import accept
from wideangle.latent_features import state
from wideangle.latent_features.sampler.assignments import decide
from wideangle.latent_features.state import (
    Design,
    Features,
    Hyper,
    StoredAssignments,
    level_bound,
    reorder,
)
from wideangle.priors import stick_breaking
from wideangle.priors.mutual_angular import pull_in_order
from wideangle.sphere import vmf
from wideangle.sphere.vmf import log_mean_exp
from wideangle.types import Array, Components, Key, Scalar


class RowProducts(NamedTuple):
    """What the moves need of the rows."""

    features: Array
    """(N, L) inner products with the first L features; there are none behind."""
    newborns: Array
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
    stay outside (:class:`RowsBefore`), so that a move touches no large array; those of the dead
    remain, and count for nothing because weight and length are zero.
    """

    weights: Array
    components: Components
    cosines: Array
    """(K, K) between directions; empty where they do not matter."""
    counts: Array
    born_assignments: Array
    """(N, n) of newborns, as floats."""
    born_products: Array
    n_slots: Array
    n_accepted: Array


class RowsBefore(NamedTuple):
    """What is known of the rows before the first move."""

    assignments: Array
    """(N, L) assignments of these features as floats."""
    n_live: Array
    """Number of features then: later slots are newborns'."""
    products: RowProducts


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


def birth_moves(
    key: Key,
    features: Features,
    newborns: Components,
    products: RowProducts,
    level: Scalar,
    design: Design,
) -> tuple[Features, Array, Array]:
    """All births and deaths of a sweep.

    ``newborns`` are vectors from the prior, first those of the null births. Returns the features
    with their assignments set aside, the columns from which those are taken up again, and the
    number of moves accepted.
    """
    hyper = features.hyper
    pool, rows = gather(features, products, design)

    def move(turn: Array, pool: Pool) -> Pool:
        key_kind, key_move = jax.random.split(jax.random.fold_in(key, turn))
        newborn = jax.tree.map(lambda leaf: leaf[turn], newborns)
        null = turn < design.n_null_moves
        birth = jax.random.bernoulli(key_kind)
        # Null moves come first: they need the products of every feature with all rows, and those
        # of a feature born of a single row are known for that row alone.
        return lax.switch(
            jnp.where(null, 0, 2) + jnp.where(birth, 0, 1),
            [
                lambda: _null_birth(key_move, pool, newborn, rows, turn, level, hyper, design),
                lambda: _null_death(key_move, pool, rows, level, hyper, design),
                lambda: _single_birth(key_move, pool, newborn, rows, turn, level, hyper, design),
                lambda: _single_death(key_move, pool, rows, level, hyper, design),
            ],
        )

    if design.n_births:  # a loop over none would still be traced, over vectors that are not there
        pool = lax.fori_loop(0, design.n_births, move, pool)
    features, columns = release(pool, rows, features)
    return features, columns, pool.n_accepted


# ---------------------------------------------------------------- features that explain nothing


def _null_birth(
    key: Key,
    pool: Pool,
    newborn: Components,
    rows: RowsBefore,
    turn: Array,
    level: Scalar,
    hyper: Hyper,
    design: Design,
) -> Pool:
    key_weight, key_rows, key_accept = jax.random.split(key, 3)
    weight = stick_breaking.inside(stick_breaking.draw_weight(key_weight, hyper.buffet, level))
    product = rows.products.newborns[:, turn]
    cosines = cosines_with(pool, newborn.directions, pool.n_slots)
    gain = _gain(pool, rows, newborn.magnitudes, cosines, product, hyper)
    logit = jnp.log(weight) - jnp.log1p(-weight) + gain
    column = decide(logit, jax.random.uniform(key_rows, gain.shape, gain.dtype)).astype(gain.dtype)
    new = Feature(pool.n_slots, weight, *newborn, cosines, column, product)
    n_victims = jnp.sum(pool.counts > 0) + 1
    log_ratio = _log_ratio(pool, new, _null_fit(weight, gain), n_victims, level, hyper, design)
    log_ratio = jnp.where(jnp.any(column > 0), log_ratio, -jnp.inf)
    return born(key_accept, pool, new, rows, log_ratio)


def _null_death(
    key: Key, pool: Pool, rows: RowsBefore, level: Scalar, hyper: Hyper, design: Design
) -> Pool:
    key_pick, key_accept = jax.random.split(key)
    active = pool.counts > 0
    old, without = take_out(key_pick, pool, rows, active)
    gain = _gain(without, rows, old.length, old.cosines, old.product, hyper)
    fit = _null_fit(old.weight, gain)
    log_ratio = -_log_ratio(without, old, fit, jnp.sum(active), level, hyper, design)
    return dies(key_accept, without, old, jnp.where(jnp.any(active), log_ratio, -jnp.inf))


def _null_fit(weight: Scalar, gain: Array) -> Scalar:
    return jnp.sum(jnp.logaddexp(jnp.log1p(-weight), jnp.log(weight) + gain))


def _gain(
    pool: Pool, rows: RowsBefore, length: Scalar, cosines: Array, product: Array, hyper: Hyper
) -> Array:
    """Log-likelihood that each row gains from a feature that is not in the pool."""
    overlap = pool.components.magnitudes * cosines * length
    of_newborns = lax.dynamic_slice_in_dim(overlap, rows.n_live, pool.born_assignments.shape[1])
    explained = (
        rows.assignments @ overlap[: rows.assignments.shape[1]]
        + pool.born_assignments @ of_newborns
    )
    return (product - explained - 0.5 * length**2) / hyper.noise_variance


# ---------------------------------------------------------------- features of a single row


def _single_birth(
    key: Key,
    pool: Pool,
    newborn: Components,
    rows: RowsBefore,
    turn: Array,
    level: Scalar,
    hyper: Hyper,
    design: Design,
) -> Pool:
    key_weight, key_vector, key_accept = jax.random.split(key, 3)
    weight = stick_breaking.inside(stick_breaking.draw_weight(key_weight, hyper.buffet, level))
    products, place = rows.products, turn - design.n_null_moves
    row, x = products.seeds[place], products.seed_rows[place]
    assignments, _ = of_row(pool, rows, row)
    rest = x - (assignments * pool.components.magnitudes) @ pool.components.directions
    vector = _given_row(key_vector, rest, newborn, hyper, design)
    here = jnp.arange(len(products.energy)) == row
    new = Feature(
        pool.n_slots,
        weight,
        *vector,
        cosines_with(pool, vector.directions, pool.n_slots),
        here.astype(x.dtype),
        jnp.where(here, (x @ vector.directions) * vector.magnitudes, 0.0),
    )
    fit = _single_fit(
        weight, vector.magnitudes, rest @ rest, len(products.energy), x.size, hyper, design
    )
    n_victims = jnp.sum(pool.counts == 1) + 1
    log_ratio = _log_ratio(pool, new, fit, n_victims, level, hyper, design)
    return born(key_accept, pool, new, rows, log_ratio)


def _given_row(
    key: Key, rest: Array, newborn: Components, hyper: Hyper, design: Design
) -> Components:
    """A vector given that one row uses it, from one of the prior (its length, or its noise)."""
    if design.features == "gaussian":
        shrink = 1 / (1 + hyper.noise_variance * hyper.rate)
        draw = shrink * rest + jnp.sqrt(1 - shrink) * newborn.vectors
        return Components.from_vectors(draw)
    natural = newborn.magnitudes / hyper.noise_variance * rest
    return Components(vmf.sample(key, natural).astype(rest.dtype), newborn.magnitudes)


def _single_fit(
    weight: Scalar,
    length: Scalar,
    square: Scalar,
    n_rows: int,
    dim: int,
    hyper: Hyper,
    design: Design,
) -> Scalar:
    """The F of a single birth; ``square`` is the squared length of what is left of the row."""
    choice = jnp.log(n_rows) + jnp.log(weight) + (n_rows - 1) * jnp.log1p(-weight)
    if design.features == "gaussian":
        shrink = 1 / (1 + hyper.noise_variance * hyper.rate)
        return (
            choice + 0.5 * dim * jnp.log1p(-shrink) + 0.5 * shrink * square / hyper.noise_variance
        )
    pull = log_mean_exp(length * jnp.sqrt(jnp.maximum(square, 0.0)) / hyper.noise_variance, dim)
    return choice + pull - 0.5 * length**2 / hyper.noise_variance


def _single_death(
    key: Key, pool: Pool, rows: RowsBefore, level: Scalar, hyper: Hyper, design: Design
) -> Pool:
    key_pick, key_accept = jax.random.split(key)
    single = pool.counts == 1
    old, without = take_out(key_pick, pool, rows, single)
    row, energy = jnp.argmax(old.column), rows.products.energy
    assignments, products = of_row(without, rows, row)
    mean = (assignments * without.components.magnitudes) @ without.components.directions
    # |x - mean|^2 without x: the products with its own features are known of every row.
    square = energy[row] - 2 * assignments @ products + mean @ mean
    fit = _single_fit(old.weight, old.length, square, len(energy), mean.size, hyper, design)
    log_ratio = -_log_ratio(without, old, fit, jnp.sum(single), level, hyper, design)
    return dies(key_accept, without, old, jnp.where(jnp.any(single), log_ratio, -jnp.inf))


# ---------------------------------------------------------------- shared


def _log_ratio(
    without: Pool,
    new: Feature,
    fit: Scalar,
    n_victims: Array,
    level: Scalar,
    hyper: Hyper,
    design: Design,
) -> Scalar:
    """Log acceptance ratio of the birth of ``new`` into the pool ``without`` it."""
    rate = stick_breaking.log_total_rate(hyper.buffet, level) + stick_breaking.log_tilt(
        hyper.buffet, new.weight
    )
    n_rows = without.born_assignments.shape[0]
    bound = level_bound(without.weights, without.counts > 0, n_rows)
    bounds = jnp.log(bound) - jnp.log(jnp.minimum(bound, new.weight))
    chain = _change_of_chain(without, new, hyper) if design.ordered else 0.0
    return rate + fit + chain - jnp.log(1.0 * n_victims) + bounds


def _change_of_chain(without: Pool, new: Feature, hyper: Hyper) -> Scalar:
    """What one more direction adds to the log density of all, against uniform directions."""
    slot = new.slot
    cosines = without.cosines.at[slot].set(new.cosines, mode="drop")
    cosines = cosines.at[:, slot].set(new.cosines, mode="drop")
    more = without.weights.at[slot].set(new.weight, mode="drop")
    change = pull_in_order(cosines, more) - pull_in_order(cosines, without.weights)
    # The first direction of all has no mean direction, and no normaliser.
    normaliser = log_mean_exp(hyper.concentration, new.direction.shape[0])
    normaliser = jnp.where(jnp.any(without.weights > 0), normaliser, 0.0)
    return hyper.concentration * change - normaliser


# ---------------------------------------------------------------- the pool


def gather(features: Features, products: RowProducts, design: Design) -> tuple[Pool, RowsBefore]:
    """A pool of these features, and what stays outside of it."""
    assert not isinstance(features.assignments, StoredAssignments)
    width = products.features.shape[1]
    assignments = jnp.asarray(features.assignments[:, :width], products.features.dtype)
    directions = features.components.directions
    nobody = jnp.zeros((len(assignments), design.n_births), assignments.dtype)
    pool = Pool(
        features.weights,
        features.components,
        directions @ directions.T if design.ordered else jnp.zeros((0, 0), directions.dtype),
        jnp.zeros_like(features.weights).at[:width].set(jnp.sum(assignments, axis=0)),
        nobody,
        nobody,
        features.n_live,
        jnp.zeros((), jnp.int32),
    )
    return pool, RowsBefore(assignments, features.n_live, products)


def release(pool: Pool, before: RowsBefore, features: Features) -> tuple[Features, Array]:
    """The features of the pool in order of weight, assignments set aside, and their columns."""
    assignments = features.assignments
    assert not isinstance(assignments, StoredAssignments)
    width = before.assignments.shape[1]
    columns = jnp.concatenate(
        [assignments[:, :width], pool.born_assignments.astype(assignments.dtype)], axis=1
    )
    index = jnp.arange(features.room)
    newborn = index - before.n_live
    stored = jnp.where(newborn < 0, index, width + newborn)
    features = features._replace(
        weights=pool.weights,
        components=pool.components,
        assignments=StoredAssignments(pool.counts.astype(jnp.int32), stored, len(assignments)),
    )
    order = jnp.argsort(-pool.weights, stable=True)
    return reorder(features, order, jnp.sum(pool.weights > 0)), columns


def cosines_with(pool: Pool, direction: Array, slot: Array) -> Array:
    """Cosines of a direction with those of the pool; 1 with its own slot."""
    return (pool.components.directions @ direction).at[slot].set(1.0, mode="drop")


def of_row(pool: Pool, rows: RowsBefore, row: Array) -> tuple[Array, Array]:
    """Assignments of one row and its products with the features, (K,) each, the dead without."""

    def joined(before: Array, born: Array) -> Array:
        whole = jnp.zeros_like(pool.weights).at[: before.shape[1]].set(before[row])
        whole = lax.dynamic_update_slice_in_dim(whole, born[row], rows.n_live, 0)
        return jnp.where(pool.weights > 0, whole, 0.0)

    return joined(rows.assignments, pool.born_assignments), joined(
        rows.products.features, pool.born_products
    )


def take_out(key: Key, pool: Pool, rows: RowsBefore, candidates: Array) -> tuple[Feature, Pool]:
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
        column(rows.assignments, pool.born_assignments),
        column(rows.products.features, pool.born_products),
    )
    nothing = jax.tree.map(jnp.zeros_like, old)._replace(slot=k)
    return old, _put(pool, nothing, jnp.zeros_like(pool.counts[0]))


def born(key: Key, pool: Pool, new: Feature, rows: RowsBefore, log_ratio: Scalar) -> Pool:
    """The pool with ``new``, if that is accepted."""
    # That there is a slot was made sure of when the atoms were drawn.
    room = pool.weights.shape[0]
    fits = (new.slot < room) & (jnp.sum(pool.weights > 0) < most_slots(pool))
    accepted, _ = accept(key, jnp.where(fits, log_ratio, -jnp.inf))
    slot = jnp.where(accepted, new.slot, room)  # beyond the end: not written
    place = slot - rows.n_live
    return _put(pool, new._replace(slot=slot), jnp.sum(new.column))._replace(
        born_assignments=pool.born_assignments.at[:, place].set(new.column, mode="drop"),
        born_products=pool.born_products.at[:, place].set(new.product, mode="drop"),
        n_slots=pool.n_slots + accepted,
        n_accepted=pool.n_accepted + accepted,
    )


def most_slots(pool: Pool) -> int:
    """Features that a pool may have; in wide arrays, as many as a sweep may begin with.

    A sweep that could not be undone, because the next one would begin with too many features to
    change any assignment, would be wrong.
    """
    room, n_births = pool.weights.shape[0], pool.born_assignments.shape[1]
    return room - n_births if room >= state.WIDE else room


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
