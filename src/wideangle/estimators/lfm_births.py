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

import jax
import jax.numpy as jnp
from jax import lax

from wideangle.estimators.lfm_atoms import log_chain
from wideangle.estimators.lfm_design import Design
from wideangle.infer.kernel import accept, choose
from wideangle.models.assignments import decide
from wideangle.models.latent_features import Features, reorder, smallest_active
from wideangle.priors import stick_breaking as sticks
from wideangle.types import Array, Components, Key, Scalar


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

    def move(turn: Array, carry: tuple[Features, Array, Array]) -> tuple[Features, Array, Array]:
        features, products, n_accepted = carry
        key_kind, key_move = jax.random.split(jax.random.fold_in(key, turn))
        newborn = jax.tree.map(lambda leaf: leaf[turn], newborns)
        features, products, accepted = lax.cond(
            jax.random.bernoulli(key_kind),
            lambda: _birth(
                key_move, features, products, newborn, new_products[:, turn], level, design
            ),
            lambda: _death(key_move, features, products, level, design),
        )
        return features, products, n_accepted + accepted

    start = features, products, jnp.zeros((), jnp.int32)
    features, _, n_accepted = lax.fori_loop(0, design.n_null_moves, move, start)
    return features, n_accepted


def _birth(
    key: Key,
    features: Features,
    products: Array,
    newborn: Components,
    new_product: Array,
    level: Scalar,
    design: Design,
) -> tuple[Features, Array, Array]:
    key_weight, key_rows, key_accept = jax.random.split(key, 3)
    hyper = features.hyper
    weight = sticks.inside(sticks.draw_weight(key_weight, hyper.buffet, level))
    vectors = features.components.vectors
    pull = new_product - features.assignments.astype(products.dtype) @ (vectors @ newborn.vectors)
    gain = (pull - 0.5 * newborn.magnitudes**2) / hyper.noise
    logit = jnp.log(weight) - jnp.log1p(-weight) + gain
    uniforms = jax.random.uniform(key_rows, gain.shape, gain.dtype)
    column = decide(logit, uniforms)
    place = jnp.sum(features.weights > weight)  # in falling order

    def insert(array: Array, value: Array, axis: int = 0) -> Array:
        return _insert(array, value, place, axis)

    proposal = features._replace(
        weights=insert(features.weights, weight),
        components=Components(
            insert(features.components.directions, newborn.directions),
            insert(features.components.magnitudes, newborn.magnitudes),
        ),
        assignments=insert(features.assignments, column.astype(jnp.uint8), 1),
        n_live=features.n_live + 1,
    )
    log_ratio = _log_ratio(features, proposal, weight, gain, level, design)
    # A full array cannot take it; that was made impossible when the atoms were drawn.
    possible = jnp.any(column) & (features.n_live < features.room)
    accepted, _ = accept(key_accept, jnp.where(possible, log_ratio, -jnp.inf))
    moved = insert(products, new_product, 1)
    return *choose(accepted, (proposal, moved), (features, products)), accepted.astype(jnp.int32)


def _death(
    key: Key, features: Features, products: Array, level: Scalar, design: Design
) -> tuple[Features, Array, Array]:
    key_pick, key_accept = jax.random.split(key)
    active = jnp.any(features.assignments > 0, axis=0)
    pick = jax.random.randint(key_pick, (), 0, jnp.maximum(jnp.sum(active), 1))
    k = jnp.argmax(active & (jnp.cumsum(active) - 1 == pick))
    index = jnp.arange(features.room)
    order = jnp.where(index >= k, index + 1, index) % features.room
    proposal = reorder(features, order, features.n_live - 1)
    vectors = features.components.vectors
    used = jnp.where(index == k, 0, features.assignments).astype(products.dtype)
    pull = products[:, k] - used @ (vectors @ vectors[k])
    gain = (pull - 0.5 * features.components.magnitudes[k] ** 2) / features.hyper.noise
    log_ratio = -_log_ratio(proposal, features, features.weights[k], gain, level, design)
    accepted, _ = accept(key_accept, jnp.where(jnp.any(active), log_ratio, -jnp.inf))
    moved = products[:, order]
    return *choose(accepted, (proposal, moved), (features, products)), accepted.astype(jnp.int32)


def _log_ratio(
    without: Features, with_it: Features, weight: Scalar, gain: Array, level: Scalar, design: Design
) -> Scalar:
    """Log acceptance ratio of the birth that turns ``without`` into ``with_it``."""
    buffet = without.hyper.buffet
    n_active = jnp.sum(jnp.any(without.assignments > 0, axis=0))
    rate = sticks.log_total_rate(buffet, level) + sticks.log_tilt(buffet, weight)
    fit = jnp.sum(jnp.logaddexp(jnp.log1p(-weight), jnp.log(weight) + gain))
    bounds = jnp.log(_bound(without)) - jnp.log(_bound(with_it))
    chain = 0.0
    if design.ordered:
        chain = log_chain(with_it, with_it.live) - log_chain(without, without.live)
    return rate + fit + chain - jnp.log(n_active + 1.0) + bounds


def _bound(features: Features) -> Scalar:
    return smallest_active(features.weights, jnp.any(features.assignments > 0, axis=0))


def _insert(array: Array, value: Array, place: Array, axis: int) -> Array:
    """``value`` at ``place``, what follows one further on; the last entry is padding and goes."""
    index = jnp.arange(array.shape[axis])
    shifted = jnp.take(array, jnp.where(index > place, index - 1, index), axis=axis)
    here = jnp.expand_dims(index == place, tuple(i for i in range(array.ndim) if i != axis))
    return jnp.where(here, jnp.expand_dims(value, axis), shifted)
