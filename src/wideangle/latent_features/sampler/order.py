r"""The chain of directions: each given those of larger weight, and moves of that order.

Under the infinite mutual-angular prior a direction is drawn given the resultant of all directions
with larger weights, so the order of the weights is part of the state, and a feature that changes
its place changes the mean directions of those it passes.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wideangle.infer.kernel import accept, choose
from wideangle.latent_features.sampler.design import Design
from wideangle.latent_features.state import Features, counts_of, level_bound, reorder
from wideangle.priors import stick_breaking as sticks
from wideangle.priors.mutual_angular import VANISHING
from wideangle.sphere import vmf
from wideangle.sphere.bessel import log_mean_exp
from wideangle.sphere.geometry import normalise
from wideangle.types import Array, Key, Scalar

GROUP = 8
"""Directions drawn between two looks at whether any are left."""


def draw_directions_in_order(
    key: Key, directions: Array, new: Array, concentration: Scalar
) -> Array:
    """Draw the marked rows one after the other from the mutual-angular chain (type I).

    All have one concentration, so the cosines to their mean directions, which need rejection, are
    drawn together; what is left of a turn has no loop in it. Turns are taken in groups because a
    loop of unknown length asks the host after every turn whether to go on.
    """
    room, dim = directions.shape
    index = jnp.arange(room)
    places = jnp.where(jnp.sort(~new), room, jnp.argsort(~new, stable=True))  # marked ones first
    keys = jax.vmap(lambda i: jax.random.split(jax.random.fold_in(key, i)))(index)
    cosines = jax.vmap(lambda k: vmf.sample_cosine(k, concentration, dim, ()))(keys[:, 0])

    def draw(i: Array, directions: Array) -> Array:
        place = places.at[i].get(mode="fill", fill_value=room)
        mean = -towards((index < place).astype(directions.dtype) @ directions)
        known = jnp.any(mean != 0)  # otherwise the law is uniform: nothing along, all sideways
        cosine, sine = jnp.where(known, cosines[0][i], 0.0), jnp.where(known, cosines[1][i], 1.0)
        normal = jax.random.normal(keys[i, 1], (dim,), directions.dtype)
        value = vmf.place_around(mean, cosine, sine, normal)
        return directions.at[place].set(value.astype(directions.dtype), mode="drop")

    def draw_group(group: Array, directions: Array) -> Array:
        first = group * GROUP
        return lax.fori_loop(0, GROUP, lambda i, now: draw(first + i, now), directions)

    return lax.fori_loop(0, -(-jnp.sum(new) // GROUP), draw_group, directions)


def towards(resultant: Array) -> Array:
    """Direction of a resultant; zero where it has none."""
    known = jnp.sum(resultant**2, axis=-1, keepdims=True) > VANISHING
    return jnp.where(known, normalise(resultant), 0.0)


def chain_pull(cosines: Array, live: Array) -> Array:
    r"""For every k :math:`-S_{k-1}\cdot\hat w_k/|S_{k-1}|`, from the cosines between all rows.

    The log density of the chain is :math:`\kappa` times their sum, up to normalisers that depend on
    the number of rows only. ``cosines`` is (K, K) in the order of the rows.
    """
    cross = jnp.sum(jnp.tril(cosines, -1), axis=1)
    square = jnp.cumsum(jnp.where(live, 2 * cross + 1, 0.0))
    square = jnp.concatenate([jnp.zeros(1, square.dtype), square[:-1]])
    known = live & (square > VANISHING)
    return jnp.where(known, -cross / jnp.sqrt(jnp.where(known, square, 1.0)), 0.0)


def pull_in_order(cosines: Array, weights: Array) -> Scalar:
    """The sum of :func:`chain_pull` over rows put in decreasing order of their weights.

    Rows of weight zero count for nothing. Nothing is sorted or moved: who comes before whom is a
    (K, K) comparison, and both sums over those before are masked sums.
    """
    index = jnp.arange(weights.shape[0])
    mine, other = weights[:, None], weights[None, :]
    first = (other > mine) | ((other == mine) & (index[None, :] < index[:, None]))
    first = first & (other > 0)
    cross = jnp.sum(jnp.where(first, cosines, 0.0), axis=1)
    square = jnp.sum(jnp.where(first, 2 * cross[None, :] + 1, 0.0), axis=1)
    known = (weights > 0) & (square > VANISHING)
    return jnp.sum(jnp.where(known, -cross / jnp.sqrt(jnp.where(known, square, 1.0)), 0.0))


def log_chain(features: Features, chosen: Array) -> Scalar:
    """Log density of the chosen rows, each given those before it, against uniform directions.

    The first row has no mean direction and counts for nothing.
    """
    directions = features.components.directions
    concentration = features.hyper.concentration
    pull = chain_pull(directions @ directions.T, features.live)
    terms = concentration * pull - log_mean_exp(concentration, directions.shape[1])
    return jnp.sum(jnp.where(chosen & (jnp.arange(features.room) > 0), terms, 0.0))


class _Ordering(NamedTuple):
    """Weights in the original numbering, and the pull of the chain in the order they induce."""

    weights: Array
    pull: Scalar


def relocate_all(key: Key, features: Features, level: Scalar, design: Design) -> Features:
    r"""Offer active features new weights over all of (0, 1), and so a new place in the order.

    An active atom carries :math:`\alpha B(m, N-m+1)\,\mathrm{Beta}(\mu; m, N-m+1)`, so weights
    drawn from that Beta cost nothing; the chain of directions in the new order and the density of
    the level, one over its bound, decide. First all of them at once, which is accepted where the
    repulsion is weak, then single ones.
    """
    directions = features.components.directions
    cosines = directions @ directions.T
    counts, n_rows = counts_of(features), features.assignments.shape[0]
    active = counts > 0
    key_all, key_picks, key_singles, key = jax.random.split(key, 4)
    index = jnp.arange(features.room)
    all_drawn = sticks.draw_active(key_all, features.hyper.buffet, counts, n_rows)
    # Who is offered what is decided beforehand: a weight takes two Gamma draws, which are dear.
    n_active = jnp.maximum(jnp.sum(active), 1)
    picks = jax.random.randint(key_picks, (design.n_relocations,), 0, n_active)
    places = jnp.argsort(~active, stable=True)[picks]
    singles = sticks.draw_active(key_singles, features.hyper.buffet, counts[places], n_rows)
    places, singles = jnp.pad(places, (1, 0)), jnp.pad(singles, (1, 0))  # turn 0 is that of all

    def offer(i: Array, now: _Ordering) -> _Ordering:
        key_accept = jax.random.fold_in(key, i)
        first = i == 0
        chosen = active & (first | (index == places[i]))
        drawn = jnp.where(first, all_drawn, singles[i]).astype(now.weights.dtype)
        weights = jnp.where(chosen, drawn, now.weights)
        pull = pull_in_order(cosines, weights)
        bound = level_bound(weights, active, n_rows)
        log_ratio = features.hyper.concentration * (pull - now.pull)
        log_ratio += jnp.log(level_bound(now.weights, active, n_rows)) - jnp.log(bound)
        accepted, _ = accept(key_accept, jnp.where(bound > level, log_ratio, -jnp.inf))
        return choose(accepted, _Ordering(weights, pull), now)

    start = _Ordering(features.weights, pull_in_order(cosines, features.weights))
    end = lax.fori_loop(0, 1 + design.n_relocations, offer, start)
    order = jnp.argsort(-end.weights, stable=True)
    return reorder(features._replace(weights=end.weights), order, features.n_live)
