r"""Births and deaths of features, so that their number keeps moving.

Two kinds, with the level s of the slice held. In both a weight :math:`\mu` comes from the rate of
the process above s, and a birth with K' possible victims of the reverse death is accepted with

.. math:: \log\int_s^1\!\rho + F + \Delta\log p_{\mathrm{chain}}
          - \log K' + \log b_{\mathrm{old}} - \log b_{\mathrm{new}}

with b the bound of the level (for a rate with a factor :math:`(1-u)^{c+d-1}`, its log at
:math:`\mu` is added).

*Null*: a vector from the prior (directions uniform), and the rows that use it from their
conditional law: a feature that explains nothing. With
:math:`l_n = (r_n\cdot w - |w|^2/2)/\sigma^2`, :math:`F = \sum_n\log(1-\mu+\mu e^{l_n})`; a birth
that no row uses is rejected; any active feature may die.

*Single*: a random row n and a vector drawn from its law given that this row alone uses it. For
polar features of length r, the direction from
:math:`\mathrm{vMF}(r\,r_n/\sigma^2)`,

.. math:: F = \log N + \log\mu + (N-1)\log(1-\mu) + G_D(r|r_n|/\sigma^2) - r^2/2\sigma^2;

for Gaussian ones the last two terms are the ratio of the row's densities with and without a
feature. Only features of one row may die.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from wideangle.latent_features.sampler.assignments import decide
from wideangle.latent_features.sampler.design import Design
from wideangle.latent_features.sampler.order import pull_in_order
from wideangle.latent_features.sampler.pool import (
    Before,
    Feature,
    Pool,
    Seen,
    born,
    cosines_with,
    dies,
    gather,
    of_row,
    release,
    take_out,
)
from wideangle.latent_features.state import Features, Hyper, level_bound
from wideangle.priors import stick_breaking as sticks
from wideangle.sphere import vmf
from wideangle.sphere.bessel import log_mean_exp
from wideangle.types import Array, Components, Key, Scalar


def birth_moves(
    key: Key, features: Features, newborns: Components, seen: Seen, level: Scalar, design: Design
) -> tuple[Features, Array, Array]:
    """All births and deaths of a sweep.

    ``newborns`` are vectors from the prior, first those of the null births. Returns the features
    with their assignments set aside, the columns from which those are taken up again, and the
    number of moves accepted.
    """
    hyper = features.hyper
    pool, rows = gather(features, seen, design)

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

    pool = lax.fori_loop(0, design.n_births, move, pool)
    features, columns = release(pool, rows, features)
    return features, columns, pool.n_accepted


# ---------------------------------------------------------------- features that explain nothing


def _null_birth(
    key: Key,
    pool: Pool,
    newborn: Components,
    rows: Before,
    turn: Array,
    level: Scalar,
    hyper: Hyper,
    design: Design,
) -> Pool:
    key_weight, key_rows, key_accept = jax.random.split(key, 3)
    weight = sticks.inside(sticks.draw_weight(key_weight, hyper.buffet, level))
    product = rows.seen.new_products[:, turn]
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
    key: Key, pool: Pool, rows: Before, level: Scalar, hyper: Hyper, design: Design
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
    pool: Pool, rows: Before, length: Scalar, cosines: Array, product: Array, hyper: Hyper
) -> Array:
    """Log-likelihood that each row gains from a feature that is not in the pool."""
    overlap = pool.components.magnitudes * cosines * length
    of_newborns = lax.dynamic_slice_in_dim(overlap, rows.n_live, pool.born_used.shape[1])
    explained = rows.used @ overlap[: rows.used.shape[1]] + pool.born_used @ of_newborns
    return (product - explained - 0.5 * length**2) / hyper.noise


# ---------------------------------------------------------------- features of a single row


def _single_birth(
    key: Key,
    pool: Pool,
    newborn: Components,
    rows: Before,
    turn: Array,
    level: Scalar,
    hyper: Hyper,
    design: Design,
) -> Pool:
    key_weight, key_vector, key_accept = jax.random.split(key, 3)
    weight = sticks.inside(sticks.draw_weight(key_weight, hyper.buffet, level))
    seen, place = rows.seen, turn - design.n_null_moves
    row, x = seen.seeds[place], seen.seed_rows[place]
    used, _ = of_row(pool, rows, row)
    rest = x - (used * pool.components.magnitudes) @ pool.components.directions
    vector = _given_row(key_vector, rest, newborn, hyper, design)
    here = jnp.arange(len(seen.energy)) == row
    new = Feature(
        pool.n_slots,
        weight,
        *vector,
        cosines_with(pool, vector.directions, pool.n_slots),
        here.astype(x.dtype),
        jnp.where(here, (x @ vector.directions) * vector.magnitudes, 0.0),
    )
    fit = _single_fit(
        weight, vector.magnitudes, rest @ rest, len(seen.energy), x.size, hyper, design
    )
    n_victims = jnp.sum(pool.counts == 1) + 1
    log_ratio = _log_ratio(pool, new, fit, n_victims, level, hyper, design)
    return born(key_accept, pool, new, rows, log_ratio)


def _given_row(
    key: Key, rest: Array, newborn: Components, hyper: Hyper, design: Design
) -> Components:
    """A vector given that one row uses it, from one of the prior (its length, or its noise)."""
    if design.features == "gaussian":
        shrink = 1 / (1 + hyper.noise * hyper.rate)
        draw = shrink * rest + jnp.sqrt(1 - shrink) * newborn.vectors
        return Components.from_vectors(draw)
    natural = newborn.magnitudes / hyper.noise * rest
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
        shrink = 1 / (1 + hyper.noise * hyper.rate)
        return choice + 0.5 * dim * jnp.log1p(-shrink) + 0.5 * shrink * square / hyper.noise
    pull = log_mean_exp(length * jnp.sqrt(jnp.maximum(square, 0.0)) / hyper.noise, dim)
    return choice + pull - 0.5 * length**2 / hyper.noise


def _single_death(
    key: Key, pool: Pool, rows: Before, level: Scalar, hyper: Hyper, design: Design
) -> Pool:
    key_pick, key_accept = jax.random.split(key)
    single = pool.counts == 1
    old, without = take_out(key_pick, pool, rows, single)
    row, energy = jnp.argmax(old.column), rows.seen.energy
    used, products = of_row(without, rows, row)
    mean = (used * without.components.magnitudes) @ without.components.directions
    # |x - mean|^2 without x: the products with its own features are known of every row.
    square = energy[row] - 2 * used @ products + mean @ mean
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
    rate = sticks.log_total_rate(hyper.buffet, level) + sticks.log_tilt(hyper.buffet, new.weight)
    n_rows = without.born_used.shape[0]
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
