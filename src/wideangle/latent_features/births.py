r"""Births, deaths and cycles of small features, so that they keep coming and going.

A posterior holds features that explain little: a few rows whose noise happens to point the same
way. They dominate the log-likelihood and the number of features, and mix slowly if each of their
parts is updated once a sweep given the others. Here they have separate moves, with the level s of
the slice held fixed. A feature is *small* while its weight is below :math:`c` (:func:`small`);
moves keep it small, so the set of small features to choose from is the same before and after.

A *birth* starts from a random row a, its anchor: a weight :math:`\mu` from the rate :math:`\rho` of
the process above s (and below c), a vector drawn from its distribution given that the anchor uses
it, and the other rows from their conditional distribution. With
:math:`l_n = (e_n\cdot w - |w|^2/2)/\sigma^2`, residuals e and K' possible victims of the reverse
death the log acceptance ratio is

.. math:: \log\int\!\rho + F + \Delta\log p_{\mathrm{chain}}
          - \log K' + \log b_{\mathrm{old}} - \log b_{\mathrm{new}}

with b the bound of the level (for a rate with a factor :math:`(1-u)^{c+d-1}`, its log at
:math:`\mu` is added). For polar features of length r, the direction comes from
:math:`\mathrm{vMF}(r\,e_a/\sigma^2)`, and

.. math:: F = \log N - \log m + \log\mu + G_D(r|e_a|/\sigma^2) - r^2/2\sigma^2
          + \sum_{n\ne a}\log(1-\mu+\mu e^{l_n})

with m the rows that use it; for Gaussian ones the two terms with r are the ratio of the densities
of row a with and without a feature. A *death* chooses a small feature that is used and one of its
rows as the anchor, and has the opposite ratio. So features that explain the noise of a few rows
come and go as a whole.

*Cycle* of a small feature: weight and length with its column summed out, by random steps of
:math:`(\log\mu, \log r)` on

.. math:: \rho(\mu)\,p(r)\,\Bigl\{\prod_n\bigl[1-\mu+\mu e^{l_n(r)}\bigr] - (1-\mu)^N\Bigr\}
          \,\frac{p_{\mathrm{chain}}}{b}, \qquad s < \mu < c;

its column, given that it is not empty; its direction given the column, from
:math:`\mathrm{vMF}(r\sum_n z_n e_n/\sigma^2)` and accepted on the chain of directions. With the
column held fixed, the weight and the number of rows that use the feature would follow each other in
small steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wideangle.latent_features.assignments import decide
from wideangle.latent_features.pool import (
    Feature,
    Pool,
    along,
    at_slot,
    choose,
    empty_slot,
    gather,
    most_slots,
    pick,
    put,
    release,
    take_out,
    with_cosines,
)
from wideangle.latent_features.state import Design, Features, Hyper, level_bound
from wideangle.priors import stick_breaking
from wideangle.priors.mutual_angular import pull_in_order
from wideangle.sphere import vmf
from wideangle.sphere.vmf import log_mean_exp
from wideangle.types import Array, Components, Key, Scalar


class Setting(NamedTuple):
    """What all moves of a sweep share."""

    level: Scalar
    hyper: Hyper
    lengths: Array
    """Of newborns, from the prior, one for each birth."""
    rows: Any
    """As ``rows.DenseRows``."""
    highest: float
    """Upper bound of the weights of small features."""
    log_total: Scalar
    """Log of the rate of the process over the weights that a newborn may have."""
    normaliser: Scalar
    """Log normaliser of a direction that others repel; 0 without repulsion."""


class Chances(NamedTuple):
    """Random numbers of a move, drawn for all moves at once: each call in a loop costs time."""

    weight: Scalar
    """Weight of a newborn."""
    uniforms: Array
    """(4,)"""
    picks: Array
    """(2,) random bits, to choose one of any number of items."""
    rows: Array
    """(N,) uniform."""
    steps: Array
    """(OFFERS, 2) normal."""
    side: Array
    """(D,) normal."""
    key: Key
    """For draws that may be rejected."""


SMALL = 0.2
"""Weight below which a feature is small, where rows are many. Sweeps as such move common features
well, and cycles spent on them would be lost for the rare ones."""


def small(n_rows: int) -> float:
    """Weight below which a feature is small; always above the levels of the slice."""
    return min(max(SMALL, 2.0 / n_rows), 1.0)


def birth_moves(
    key: Key,
    features: Features,
    rows: Any,
    products: Array,
    lengths: Array,
    level: Scalar,
    design: Design,
) -> tuple[Features, Array]:
    """All births, deaths and cycles of a sweep.

    ``rows`` are as ``rows.DenseRows``, ``products`` those with the features, and ``lengths`` from
    the prior, one for each birth. Returns the features with detached assignments, and the columns
    from which to attach them again.
    """
    pool = gather(features, products, design)
    setting = _setting(features, rows, len(products), lengths, level, design)
    kinds = (design.n_births, _birth_or_death), (design.n_cycles, _cycle)
    n_moves = sum(n for n, _ in kinds)
    dim = features.components.directions.shape[1]
    sizes = n_moves, len(products), dim
    chances = _draw_chances(key, sizes, products.dtype, setting) if n_moves else None
    first = 0
    for n, move in kinds:
        if n:  # an empty loop would still be traced, over vectors that do not exist

            def turn(i: Array, pool: Pool, move=move) -> Pool:
                mine = jax.tree.map(lambda leaf: leaf[i], chances)
                return move(mine, i, pool, setting, design)

            pool = lax.fori_loop(first, first + n, turn, pool)
            first += n
    return release(pool, features)


def _setting(
    features: Features, rows: Any, n_rows: int, lengths: Array, level: Scalar, design: Design
) -> Setting:
    hyper, highest = features.hyper, small(n_rows)
    total = stick_breaking.log_total_rate(hyper.buffet, level, highest)
    normaliser = jnp.zeros_like(hyper.concentration)
    if design.ordered:
        normaliser = log_mean_exp(hyper.concentration, features.components.directions.shape[1])
    return Setting(level, hyper, lengths, rows, highest, total, normaliser)


def _draw_chances(
    key: Key, sizes: tuple[int, int, int], dtype: jnp.dtype, setting: Setting
) -> Chances:
    """Random numbers of so many moves, for so many rows and columns."""
    n, n_rows, dim = sizes
    keys = jax.random.split(key, 6)
    buffet, share = setting.hyper.buffet, jax.random.uniform(keys[0], (n, 5), dtype)
    weights = stick_breaking.place_weight(share[:, 4], buffet, setting.level, setting.highest)
    return Chances(
        stick_breaking.inside(weights),
        share[:, :4],
        jax.random.bits(keys[1], (n, 2), jnp.uint32),
        jax.random.uniform(keys[2], (n, n_rows), dtype),
        jax.random.normal(keys[3], (n, OFFERS, 2), dtype),
        jax.random.normal(keys[4], (n, dim), dtype),
        jax.random.split(keys[5], n),
    )


# ---------------------------------------------------------------- births and deaths


def _birth_or_death(
    chances: Chances, turn: Array, pool: Pool, setting: Setting, design: Design
) -> Pool:
    """Birth or death of a feature that explains a row, and others with it."""
    birth = chances.uniforms[0] < 0.5  # noqa: PLR2004
    candidates = small_ones(pool, setting)
    old = at_slot(pool, pick(chances.picks[0], candidates))
    without = take_out(pool, jnp.where(birth, len(candidates), old.slot))
    row = chances.picks[1] % len(old.column)
    row = jnp.where(birth, row, pick(chances.picks[1], old.column > 0))
    rest = _residual(without, row, setting)
    vector = _newborn(chances, setting.lengths[turn], rest, setting.hyper, design)
    product = setting.rows.products(vector.directions[None])[:, 0] * vector.magnitudes
    empty = jnp.zeros_like(old.column)
    one = choose(birth, Feature(empty_slot(pool), chances.weight, *vector, empty, product), old)
    gain = _gain(without, one, setting.hyper)
    column = decide(_logit(one.weight) + gain, chances.rows).astype(gain.dtype).at[row].set(1.0)
    one = one._replace(column=jnp.where(birth, column, one.column))
    offer = Offer(birth, birth | jnp.any(candidates), jnp.sum(candidates) + birth)
    fit = _anchored_fit(one, gain, row, rest, setting.hyper, design)
    return _settle(chances.uniforms[1], without, one, offer, fit, setting, design)


def _residual(without: Pool, row: Array, setting: Setting) -> Array:
    """What the features leave of one row, (D,)."""
    vectors = without.components.vectors[: len(without.columns)]
    present = without.weights[: len(vectors)] > 0
    return setting.rows.take(row[None])[0] - (present * without.columns[:, row]) @ vectors


class Offer(NamedTuple):
    """A birth or a death."""

    birth: Array
    possible: Array
    n_victims: Array
    """Number of features that a death chooses from, including the newborn."""


def _settle(
    uniform: Scalar,
    without: Pool,
    one: Feature,
    offer: Offer,
    fit: Scalar,
    setting: Setting,
    design: Design,
) -> Pool:
    """The pool with or without ``one``, depending on whether its birth or death is accepted."""
    birth = offer.birth
    log_ratio = _log_ratio(without, one, fit, offer, setting, design)
    log_ratio = jnp.where(birth, log_ratio, -log_ratio)
    # A free slot was ensured when the atoms were drawn.
    n_features = jnp.sum(without.weights > 0)
    fits = (one.slot < len(without.columns)) & (n_features < most_slots(without, design))
    possible = offer.possible & (fits | ~birth)
    accepted = _accepts(uniform, jnp.where(possible, log_ratio, -jnp.inf))
    present = accepted == birth
    return put(without, one._replace(slot=jnp.where(present, one.slot, len(without.weights))))


def _newborn(
    chances: Chances, length: Scalar, rest: Array, hyper: Hyper, design: Design
) -> Components:
    """A vector given that one row uses it; the length of a polar one is from the prior."""
    if design.features == "gaussian":
        shrink = 1 / (1 + hyper.noise_variance * hyper.rate)
        spread = jnp.sqrt((1 - shrink) / hyper.rate)
        return Components.from_vectors(shrink * rest + spread * chances.side)
    drawn = vmf.sample(chances.key, length / hyper.noise_variance * rest, gaussian=chances.side)
    return Components(drawn.astype(rest.dtype), length)


def _anchored_fit(
    one: Feature, gain: Array, row: Array, rest: Array, hyper: Hyper, design: Design
) -> Scalar:
    """The F of a birth from this row, which adds nothing to the sum over rows."""
    dim, square = rest.size, rest @ rest
    fit = jnp.log(1.0 * len(gain)) - jnp.log(jnp.sum(one.column)) + jnp.log(one.weight)
    fit += log_used(one.weight, gain) - log_used(one.weight, gain[row])
    if design.features == "gaussian":
        shrink = 1 / (1 + hyper.noise_variance * hyper.rate)
        return fit + 0.5 * dim * jnp.log1p(-shrink) + 0.5 * shrink * square / hyper.noise_variance
    pull = log_mean_exp(one.length * jnp.sqrt(square) / hyper.noise_variance, dim)
    return fit + pull - 0.5 * one.length**2 / hyper.noise_variance


def _log_ratio(
    without: Pool,
    new: Feature,
    fit: Scalar,
    offer: Offer,
    setting: Setting,
    design: Design,
) -> Scalar:
    """Log acceptance ratio of the birth of ``new`` into the pool ``without`` it."""
    rate = setting.log_total + stick_breaking.log_tilt(setting.hyper.buffet, new.weight)
    n_rows = without.columns.shape[1]
    bound = level_bound(without.weights, without.counts > 0, n_rows)
    bounds = jnp.log(bound) - jnp.log(jnp.minimum(bound, new.weight))
    chain = _change_of_chain(without, new, setting) if design.ordered else 0.0
    return rate + fit + chain - jnp.log(1.0 * offer.n_victims) + bounds


def _change_of_chain(without: Pool, new: Feature, setting: Setting) -> Scalar:
    """Change of the log density of all directions by one more, relative to uniform directions."""
    change = _pull_with(without, new) - pull_in_order(without.cosines, without.weights)
    # The first direction of all has no mean direction, and no normaliser.
    normaliser = jnp.where(jnp.any(without.weights > 0), setting.normaliser, 0.0)
    return setting.hyper.concentration * change - normaliser


def _pull_with(without: Pool, new: Feature) -> Scalar:
    """The sum of all pulls with one more direction."""
    weights = without.weights.at[new.slot].set(new.weight, mode="drop")
    return pull_in_order(with_cosines(without, new), weights)


# ---------------------------------------------------------------- cycles of small features


STRIDE = (1.5, 0.7)
"""Standard deviations of the steps of log weight and log length."""
OFFERS = 2
"""Steps tried in a cycle."""


def _cycle(chances: Chances, turn: Array, pool: Pool, setting: Setting, design: Design) -> Pool:
    """Weight and length of a small feature with its column summed out, its column, its vector."""
    candidates = small_ones(pool, setting)
    old = at_slot(pool, pick(chances.picks[0], candidates))
    # Large arrays stay outside the branches, which would copy them.
    moved = lax.cond(
        jnp.any(candidates),
        lambda: _moved(chances, take_out(pool, old.slot), old, setting, design),
        lambda: old._replace(slot=jnp.full_like(old.slot, len(candidates))),
    )
    return put(pool, moved)


def _moved(
    chances: Chances, without: Pool, old: Feature, setting: Setting, design: Design
) -> Feature:
    aligned = along(without, old)
    new = _move_numbers(chances, without, old, aligned, setting, design)
    gain = new.length * (aligned - 0.5 * new.length) / setting.hyper.noise_variance
    column = _not_empty(chances.uniforms[2], chances.rows, _logit(new.weight) + gain)
    return _move_vector(chances, without, new._replace(column=column), setting, design)


def _move_numbers(
    chances: Chances, without: Pool, old: Feature, along: Array, setting: Setting, design: Design
) -> Feature:
    """New weight and length of a feature, its column summed out."""
    hyper = setting.hyper
    bound = level_bound(without.weights, without.counts > 0, len(along))
    cosines = with_cosines(without, old) if design.ordered else without.cosines
    dim = old.direction.shape[0]

    def density(point: Array) -> Scalar:
        weight, length = stick_breaking.inside(jnp.exp(point[0])), jnp.exp(point[1])
        gain = length * (along - 0.5 * length) / hyper.noise_variance
        total = _log_weight(point[0], hyper) + _log_length(point[1], hyper, design, dim)
        total += log_any(weight, gain) - jnp.log(jnp.minimum(bound, weight))
        if design.ordered:
            weights = without.weights.at[old.slot].set(weight)
            total += hyper.concentration * pull_in_order(cosines, weights)
        allowed = (weight > setting.level) & (weight < setting.highest)
        return jnp.where(allowed, total, -jnp.inf)

    def offer(i: Array, now: tuple[Array, Scalar]) -> tuple[Array, Scalar]:
        point = now[0] + jnp.array(STRIDE, along.dtype) * chances.steps[i]
        reached = density(point)
        accepted = _accepts(chances.uniforms[i], reached - now[1])
        return jnp.where(accepted, point, now[0]), jnp.where(accepted, reached, now[1])

    point = jnp.log(jnp.stack([old.weight, old.length]))
    point, _ = lax.fori_loop(0, OFFERS, offer, (point, density(point)))
    weight, length = jnp.exp(point)
    product = old.product * length / old.length
    return old._replace(weight=stick_breaking.inside(weight), length=length, product=product)


def _move_vector(
    chances: Chances, without: Pool, old: Feature, setting: Setting, design: Design
) -> Feature:
    """The direction (for Gaussian features, the vector) given the column."""
    hyper, rows = setting.hyper, setting.rows
    n_slots = len(without.columns)
    shared = without.columns @ old.column * without.components.magnitudes[:n_slots]
    pull = rows.cross(old.column[:, None])[0] - shared @ without.components.directions[:n_slots]
    accepted = jnp.array(True)
    if design.features == "gaussian":
        precision = jnp.sum(old.column) / hyper.noise_variance + hyper.rate
        mean = pull / (hyper.noise_variance * precision)
        vector = mean + chances.side / jnp.sqrt(precision)
        new = Components.from_vectors(vector)
    else:
        natural = old.length / hyper.noise_variance * pull
        drawn = vmf.sample(chances.key, natural, gaussian=chances.side)
        new = Components(drawn.astype(pull.dtype), old.length)
    one = old._replace(direction=new.directions, length=new.magnitudes)
    if design.ordered:
        change = hyper.concentration * (_pull_with(without, one) - _pull_with(without, old))
        accepted = _accepts(chances.uniforms[3], change)
    along = rows.products(one.direction[None])[:, 0]
    return choose(accepted, one._replace(product=along * one.length), old)


def _log_weight(log_weight: Scalar, hyper: Hyper) -> Scalar:
    """Log density of the logarithm of a weight: the rate of the process."""
    weight = stick_breaking.inside(jnp.exp(log_weight))
    return stick_breaking.log_rate(hyper.buffet, weight) + log_weight


def _log_length(log_length: Scalar, hyper: Hyper, design: Design, dim: int) -> Scalar:
    """Log density of the logarithm of a length."""
    if design.features == "gaussian":
        return dim * log_length - 0.5 * hyper.rate * jnp.exp(2 * log_length)
    return design.magnitude_shape * log_length - hyper.rate * jnp.exp(log_length)


def log_used(weight: Scalar, gain: Array) -> Scalar:
    """Log likelihood of the rows with a column summed out, relative to no feature."""
    return jnp.sum(jnp.logaddexp(jnp.log1p(-weight), jnp.log(weight) + gain))


def log_any(weight: Scalar, gain: Array) -> Scalar:
    """The same for columns that are not empty."""
    # Without the empty column: log(e^a - e^b) = a + log(1 - e^(b - a)).
    logit = _logit(weight) + gain
    excess = jnp.sum(jax.nn.softplus(logit))
    return len(gain) * jnp.log1p(-weight) + excess + jnp.log(-jnp.expm1(-excess))


def _not_empty(uniform: Scalar, uniforms: Array, logit: Array) -> Array:
    """A column given that it is not empty: its first row, then the others."""
    excess = jax.nn.softplus(logit)
    # The first n rows leave it unused with the probability exp(-sum of their excess).
    share = -jnp.expm1(-jnp.sum(excess))
    reached = jnp.cumsum(excess) < -jnp.log1p(-uniform * share)
    first = jnp.minimum(jnp.sum(reached), len(logit) - 1)
    index = jnp.arange(len(logit))
    free = decide(logit, uniforms)
    return ((index == first) | ((index > first) & free)).astype(logit.dtype)


def small_ones(pool: Pool, setting: Setting) -> Array:
    """Which slots hold small features that are used."""
    return (pool.counts > 0) & (pool.weights < setting.highest)


def _gain(without: Pool, one: Feature, hyper: Hyper) -> Array:
    """Log-likelihood that each row gains from a feature that is not in the pool."""
    return one.length * (along(without, one) - 0.5 * one.length) / hyper.noise_variance


def _accepts(uniform: Scalar, log_ratio: Scalar) -> Array:
    """Whether a move is accepted; a NaN ratio is rejected."""
    return uniform < jnp.exp(jnp.minimum(log_ratio, 0.0))


def _logit(weight: Scalar) -> Scalar:
    return jnp.log(weight) - jnp.log1p(-weight)
