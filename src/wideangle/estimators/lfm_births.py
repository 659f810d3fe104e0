r"""Births and deaths of features that explain nothing, so that their number keeps moving.

A birth draws a vector from the prior (directions uniform), a weight :math:`\mu` from the rate of
the process above the level s, and the rows that use it from their conditional law; a death removes
a random active feature. With :math:`l_n = (r_n\cdot w - |w|^2/2)/\sigma^2`, K active features
before the birth and the level s held, a birth is accepted with

.. math:: \log\int_s^1\!\rho + \sum_n\log(1-\mu+\mu e^{l_n}) + \Delta\log p_{\mathrm{chain}}
          - \log(K+1) + \log\mu^*_{\mathrm{old}} - \log\mu^*_{\mathrm{new}},

(for a rate with a factor :math:`(1-u)^{c+d-1}`, its log at :math:`\mu` is added), and a birth that
no row uses is rejected.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wideangle.estimators.lfm_atoms import chain_pull
from wideangle.estimators.lfm_design import Design
from wideangle.infer.kernel import accept
from wideangle.models.assignments import decide
from wideangle.models.latent_features import Features, Hyper, reorder, smallest_active
from wideangle.priors import stick_breaking as sticks
from wideangle.sphere.bessel import log_mean_exp
from wideangle.types import Array, Components, Key, Scalar


class _Pool(NamedTuple):
    """Features while some of them come and go: newborns are put behind, the dead leave a gap.

    In order of weight again only at the end, so that a move touches one column of the large arrays.
    """

    weights: Array
    components: Components
    used: Array
    """(N, K) assignments as floats."""
    counts: Array
    products: Array
    n_slots: Array
    n_accepted: Array


class _Place(NamedTuple):
    """One feature in its slot."""

    slot: Array
    weight: Scalar
    direction: Array
    length: Scalar


def null_moves(
    key: Key,
    features: Features,
    newborns: Components,
    products: Array,
    new_products: Array,
    level: Scalar,
    design: Design,
) -> tuple[Features, Array]:
    """One birth or death for each newborn; returns the number of moves accepted as well.

    ``products`` (N, K) and ``new_products`` (N, n) are the inner products of the rows with the
    features and with the newborns.
    """
    hyper = features.hyper
    used = features.assignments.astype(products.dtype)
    pool = _Pool(
        features.weights,
        features.components,
        used,
        jnp.sum(used, axis=0),
        products,
        features.n_live,
        jnp.zeros((), jnp.int32),
    )

    def move(turn: Array, pool: _Pool) -> _Pool:
        key_kind, key_move = jax.random.split(jax.random.fold_in(key, turn))
        newborn = jax.tree.map(lambda leaf: leaf[turn], newborns)
        return lax.cond(
            jax.random.bernoulli(key_kind),
            lambda: _birth(key_move, pool, newborn, new_products[:, turn], level, hyper, design),
            lambda: _death(key_move, pool, level, hyper, design),
        )

    pool = lax.fori_loop(0, design.n_null_moves, move, pool)
    features = features._replace(
        weights=pool.weights,
        components=pool.components,
        assignments=pool.used.astype(jnp.uint8),
    )
    order = jnp.argsort(-pool.weights, stable=True)
    return reorder(features, order, jnp.sum(pool.weights > 0)), pool.n_accepted


def _birth(
    key: Key,
    pool: _Pool,
    newborn: Components,
    product: Array,
    level: Scalar,
    hyper: Hyper,
    design: Design,
) -> _Pool:
    key_weight, key_rows, key_accept = jax.random.split(key, 3)
    weight = sticks.inside(sticks.draw_weight(key_weight, hyper.buffet, level))
    new = _Place(pool.n_slots, weight, newborn.directions, newborn.magnitudes)
    gain = _gain(pool, new, product, hyper)
    logit = jnp.log(weight) - jnp.log1p(-weight) + gain
    column = decide(logit, jax.random.uniform(key_rows, gain.shape, gain.dtype)).astype(gain.dtype)
    count = jnp.sum(column)
    # That there is a slot was made sure of when the atoms were drawn.
    possible = (count > 0) & (pool.n_slots < pool.weights.shape[0])
    log_ratio = _log_ratio(pool, new, gain, level, hyper, design)
    accepted, _ = accept(key_accept, jnp.where(possible, log_ratio, -jnp.inf))
    return _put(pool, new, column, count, product, accepted)


def _death(key: Key, pool: _Pool, level: Scalar, hyper: Hyper, design: Design) -> _Pool:
    key_pick, key_accept = jax.random.split(key)
    active = pool.counts > 0
    pick = jax.random.randint(key_pick, (), 0, jnp.maximum(jnp.sum(active), 1))
    k = jnp.argmax(active & (jnp.cumsum(active) - 1 == pick))
    directions, lengths = pool.components
    old = _Place(k, pool.weights[k], directions[k], lengths[k])
    column, product = pool.used[:, k], pool.products[:, k]
    empty = _Place(k, jnp.zeros_like(old.weight), old.direction * 0, old.length * 0)
    nobody = jnp.array(True)
    without = _put(pool, empty, column * 0, 0.0, product, nobody)
    gain = _gain(without, old, product, hyper)
    log_ratio = -_log_ratio(without, old, gain, level, hyper, design)
    accepted, _ = accept(key_accept, jnp.where(jnp.any(active), log_ratio, -jnp.inf))
    kept = jnp.where(accepted, 0.0, column)
    return _put(
        pool,
        _Place(k, *(jnp.where(accepted, e, o) for e, o in zip(empty[1:], old[1:], strict=True))),
        kept,
        jnp.where(accepted, 0.0, pool.counts[k]),
        product,
        accepted,
        always=True,
    )


def _put(
    pool: _Pool,
    place: _Place,
    column: Array,
    count: Array | float,
    product: Array,
    accepted: Array,
    always: bool = False,
) -> _Pool:
    """Write one feature into its slot if the move is accepted (or ``always``)."""
    slot = jnp.where(accepted | always, place.slot, pool.weights.shape[0])  # beyond: dropped
    directions, lengths = pool.components
    return _Pool(
        pool.weights.at[slot].set(place.weight, mode="drop"),
        Components(
            directions.at[slot].set(place.direction, mode="drop"),
            lengths.at[slot].set(place.length, mode="drop"),
        ),
        pool.used.at[:, slot].set(column, mode="drop"),
        pool.counts.at[slot].set(count, mode="drop"),
        pool.products.at[:, slot].set(product, mode="drop"),
        jnp.where(accepted & (place.slot == pool.n_slots), pool.n_slots + 1, pool.n_slots),
        pool.n_accepted + accepted,
    )


def _gain(pool: _Pool, new: _Place, product: Array, hyper: Hyper) -> Array:
    """Log-likelihood that each row gains from a feature that is not in the pool."""
    directions, lengths = pool.components
    overlap = lengths * (directions @ new.direction) * new.length
    return (product - pool.used @ overlap - 0.5 * new.length**2) / hyper.noise


def _log_ratio(
    without: _Pool, new: _Place, gain: Array, level: Scalar, hyper: Hyper, design: Design
) -> Scalar:
    """Log acceptance ratio of the birth of ``new`` into the pool ``without`` it."""
    active = without.counts > 0
    rate = sticks.log_total_rate(hyper.buffet, level) + sticks.log_tilt(hyper.buffet, new.weight)
    fit = jnp.sum(jnp.logaddexp(jnp.log1p(-new.weight), jnp.log(new.weight) + gain))
    bound = smallest_active(without.weights, active)
    bounds = jnp.log(bound) - jnp.log(jnp.minimum(bound, new.weight))
    chain = _change_of_chain(without, new, hyper) if design.ordered else 0.0
    return rate + fit + chain - jnp.log(jnp.sum(active) + 1.0) + bounds


def _change_of_chain(without: _Pool, new: _Place, hyper: Hyper) -> Scalar:
    """What one more direction adds to the log density of all, against uniform directions."""
    directions = without.components.directions
    weights = jnp.append(without.weights, new.weight)
    stacked = jnp.concatenate([directions, new.direction[None]])
    cosines = stacked @ stacked.T
    live = weights > 0

    def pull(weights: Array) -> Scalar:
        order = jnp.argsort(-weights, stable=True)
        return jnp.sum(chain_pull(cosines[order][:, order], weights[order] > 0))

    change = pull(weights) - pull(weights.at[-1].set(0.0))
    # The first direction of all has no mean direction, and no normaliser.
    normaliser = jnp.where(
        jnp.sum(live) > 1, log_mean_exp(hyper.concentration, directions.shape[1]), 0.0
    )
    return hyper.concentration * change - normaliser
