r"""Weights of the features and the inactive features above the slice: the sampler's first part.

A sweep draws a level :math:`s \sim U(0, \min(\mu^*, 1/N))` below the weight of the last active
feature and instantiates every inactive feature above it; nothing below s can become active in this
sweep. For exchangeable features (Gaussian, or directions that do not repel) inactive features are
discarded and drawn again; if directions repel, inactive features between active ones are part of
the state, and only those after the last active one are redrawn. A direction is then drawn given the
resultant of all directions with larger weights, so the order of the weights is part of the state,
and a feature that changes its place changes the mean directions of those it passes.

Differs from the paper: the slice sampler as printed is wrong in four ways (``docs/paper-map.md``).
New sticks come from thinning a Poisson process, not from adaptive rejection of a density that is
not log-concave, and two further moves change the order.

Draws of one kind are made together, and loops go over kinds of moves where possible: the code of a
random number generator takes longest to compile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wideangle.infer.kernel import accept, choose
from wideangle.latent_features.state import (
    Design,
    Features,
    Hyper,
    counts_of,
    level_bound,
    reorder,
    smallest_active,
)
from wideangle.priors import stick_breaking
from wideangle.priors.mutual_angular import direction_of, log_density, pull_in_order
from wideangle.sphere import vmf
from wideangle.sphere.geometry import normalise
from wideangle.types import Array, Components, Key, Scalar

GROUP = 8
"""Directions drawn between two checks whether any are left."""
MAX_SHRINKS = 100
LOWEST = -80.0
"""Log of the smallest weight a stick can have; its distribution leaves less than 1e-34 below."""


class Slice(NamedTuple):
    """What the rest of the sweep needs from this part."""

    level: Scalar
    overflow: Array
    """True when the arrays are too small: the sweep must be repeated with more room."""


def redraw_atoms(key: Key, features: Features, design: Design) -> tuple[Features, Slice, Array]:
    """Weights, slice level and inactive features, given assignments and active features.

    Also gives lengths from the prior for the features that may be born.
    """
    key_atoms, key_lengths = jax.random.split(key)
    # Those of newborns first: which numbers they get does not depend on the room.
    n_new = design.n_births
    lengths = draw_lengths(key_lengths, features.hyper, (n_new + 2 * features.room,), design)
    of_newborns, lengths = lengths[:n_new], lengths[n_new:].reshape(-1, 2).T
    if design.ordered:
        features, level = _ordered(key_atoms, features, lengths, design)
    else:
        features, level = _exchangeable(key_atoms, features, lengths[0], design)
    return features, level, of_newborns


def only_active(features: Features, counts: Array) -> Features:
    """Without the inactive features, the others in their order."""
    active = counts > 0
    order = jnp.argsort(~active, stable=True)
    return reorder(features, order, jnp.sum(active))


def without_tail(features: Features, counts: Array) -> Features:
    """Without the inactive features after the last active one."""
    last = jnp.max(jnp.where(counts > 0, jnp.arange(features.room), -1)) + 1
    return reorder(features, jnp.arange(features.room), last)


# ---------------------------------------------------------------- exchangeable features


def _exchangeable(
    key: Key, features: Features, lengths: Array, design: Design
) -> tuple[Features, Slice]:
    key_weights, key_level, key_atoms, key_vectors = jax.random.split(key, 4)
    n_rows = features.assignments.shape[0]
    features = only_active(features, counts_of(features))
    counts = counts_of(features)
    weights = stick_breaking.draw_active(key_weights, features.hyper.buffet, counts, n_rows)
    weights = jnp.where(counts > 0, weights.astype(features.weights.dtype), 0.0)
    level = _draw_level(key_level, weights, counts > 0, n_rows)
    top = jnp.ones_like(level)
    atoms = stick_breaking.draw_inactive(
        key_atoms, features.hyper.buffet, n_rows, level, top, _candidates(features)
    )
    n_active = features.n_live
    features, fits = _append(features._replace(weights=weights), atoms, design.n_spare)
    new = features.live & (jnp.arange(features.room) >= n_active)
    drawn = make_components(key_vectors, features.hyper, features.room, lengths, features, design)
    features = features._replace(
        components=jax.tree.map(
            lambda fresh, old: jnp.where(
                jnp.expand_dims(new, tuple(range(1, old.ndim))), fresh, old
            ),
            drawn,
            features.components,
        )
    )
    # Sorted by weight: a scan in order of age would depend on the state, which is wrong.
    order = jnp.argsort(-features.weights, stable=True)
    return reorder(features, order, features.n_live), Slice(level, atoms.overflow | ~fits)


def make_components(
    key: Key, hyper: Hyper, n: int, lengths: Array, like: Features, design: Design
) -> Components:
    """``n`` independent components from the prior: uniform directions, or Gaussian vectors."""
    dim = like.components.directions.shape[1]
    normal = jax.random.normal(key, (n, dim), like.weights.dtype)
    if design.features == "gaussian":
        return Components.from_vectors(normal / jnp.sqrt(hyper.rate))
    return Components(normalise(normal), lengths)


def draw_lengths(key: Key, hyper: Hyper, shape: tuple[int, ...], design: Design) -> Array:
    """Gamma lengths, never zero, which marks padding."""
    dtype = hyper.rate.dtype
    if design.features == "gaussian":
        return jnp.zeros(shape, dtype)
    unit = stick_breaking.draw_gamma(key, jnp.full(shape, design.magnitude_shape, dtype))
    return jnp.maximum(unit / hyper.rate, jnp.finfo(dtype).tiny)


# ---------------------------------------------------------------- ordered features


def _ordered(
    key: Key, features: Features, lengths: Array, design: Design
) -> tuple[Features, Slice]:
    key_sticks, key_level, key_renew, key_order = jax.random.split(key, 4)
    features = without_tail(features, counts_of(features))
    features = move_sticks(key_sticks, features)
    bound = smallest_active(features.weights, counts_of(features) > 0)
    n_rows = features.assignments.shape[0]
    level = _draw_level(key_level, features.weights, counts_of(features) > 0, n_rows)
    # First the inactive features between active ones, then those below the last, which are new.
    turns = (
        jax.random.split(key_renew, 2),
        jnp.stack([bound, level]),
        jnp.stack([jnp.ones_like(bound), bound]),
        lengths,
    )

    def renew(carry: tuple[Features, Array], turn: tuple[Key, Scalar, Scalar, Array]):
        features, overflow = carry
        features, more = _renew(*turn, features, design)
        return (features, overflow | more), None

    (features, overflow), _ = lax.scan(renew, (features, jnp.array(False)), turns)
    features = relocate_all(key_order, features, level, design)
    return features, Slice(level, overflow)


def move_sticks(key: Key, features: Features) -> Features:
    """Move every stick between its neighbours by slice sampling, every other one at a time.

    Given its neighbours a stick is independent of the rest, so all even ones move at once, and all
    odd ones. The last has no neighbour below; its density includes that of all sticks below it.
    """
    counts, n_rows = counts_of(features), features.assignments.shape[0]
    index = jnp.arange(features.room)
    last = features.n_live - 1
    mass = features.hyper.buffet.mass

    def density(values: Array) -> Array:
        plain = stick_breaking.log_stick(values, counts, n_rows)
        below = stick_breaking.log_below(values[jnp.maximum(last, 0)], n_rows, mass)
        return plain + jnp.where(index == last, below, 0.0)

    def move(parity: Array, log_weights: Array) -> Array:
        above = jnp.concatenate([jnp.zeros(1, log_weights.dtype), log_weights[:-1]])
        below = jnp.concatenate([log_weights[1:], log_weights[-1:]])
        below = jnp.where(index == last, LOWEST, below)
        turn = (index % 2 == parity) & (index <= last)
        return _slice_between(
            jax.random.fold_in(key, parity), log_weights, below, above, turn, density
        )

    log_weights = jnp.where(features.live, jnp.log(_positive(features.weights)), 0.0)
    weights = stick_breaking.inside(jnp.exp(lax.fori_loop(0, 2, move, log_weights)))
    return features._replace(weights=jnp.where(features.live, weights, 0.0))


def _slice_between(
    key: Key,
    values: Array,
    low: Array,
    high: Array,
    turn: Array,
    density: Callable[[Array], Array],
) -> Array:
    """One slice move of every selected entry on its interval, all at once."""
    key_level, key_shrink = jax.random.split(key)
    drop = jax.random.exponential(key_level, values.shape, values.dtype)
    height = density(values) - drop

    def attempt(carry: tuple[Array, ...]) -> tuple[Array, ...]:
        low, high, now, done, tries = carry
        share = jax.random.uniform(jax.random.fold_in(key_shrink, tries), low.shape, low.dtype)
        tried = jnp.where(done, now, low + share * (high - low))
        good = density(tried) >= height
        now = jnp.where(~done & good, tried, now)
        cut = ~done & ~good
        low = jnp.where(cut & (tried < values), tried, low)
        high = jnp.where(cut & (tried >= values), tried, high)
        return low, high, now, done | good, tries + 1

    def missing(carry: tuple[Array, ...]) -> Array:
        return ~jnp.all(carry[3]) & (carry[4] < MAX_SHRINKS)

    start = (low, high, values, ~turn | (low >= high), jnp.int32(0))
    return lax.while_loop(missing, attempt, start)[2]


def _renew(
    key: Key, low: Scalar, high: Scalar, lengths: Array, features: Features, design: Design
) -> tuple[Features, Array]:
    r"""Propose a new set of inactive features with weights between ``low`` and ``high``.

    The set comes from its Poisson distribution and each vector from the chain given those before
    it, so only the change of the mean directions of *active* features enters the ratio; below the
    last active one there are none, and the set is always accepted.
    """
    key_atoms, key_vectors, key_accept = jax.random.split(key, 3)
    counts, n_rows = counts_of(features), features.assignments.shape[0]
    atoms = stick_breaking.draw_inactive(
        key_atoms, features.hyper.buffet, n_rows, low, high, _candidates(features)
    )
    replaced = features.live & (counts == 0) & (features.weights > low) & (features.weights < high)
    staying = features.live & ~replaced
    remaining = reorder(features, jnp.argsort(~staying, stable=True), jnp.sum(staying))
    proposal, fits = _append(remaining, atoms, design.n_spare)
    order = jnp.argsort(-proposal.weights, stable=True)
    new = ((order >= remaining.n_live) & (order < proposal.n_live)) & proposal.live
    proposal = reorder(proposal, order, proposal.n_live)
    directions = draw_directions_in_order(
        key_vectors, proposal.components.directions, new, proposal.hyper.concentration
    )
    drawn = jnp.where(new, lengths, proposal.components.magnitudes)
    proposal = proposal._replace(components=Components(directions, drawn))
    change = log_chain(proposal, counts_of(proposal) > 0) - log_chain(features, counts > 0)
    accepted, _ = accept(key_accept, change)
    return choose(accepted, proposal, features), atoms.overflow | ~fits


def log_chain(features: Features, active: Array) -> Scalar:
    """Log density of the directions of active features, each given all those before it."""
    return log_density(
        features.components.directions, features.live, active, features.hyper.concentration
    )


# ---------------------------------------------------------------- the order


def draw_directions_in_order(
    key: Key, directions: Array, new: Array, concentration: Scalar
) -> Array:
    """Draw the marked rows one after the other from the mutual-angular chain (type I).

    All have one concentration, so the cosines to their mean directions, which need rejection, are
    drawn together; the rest of a step has no inner loop. Steps run in groups because a loop of
    unknown length checks with the host after every step.
    """
    room, dim = directions.shape
    index = jnp.arange(room)
    places = jnp.where(jnp.sort(~new), room, jnp.argsort(~new, stable=True))  # marked ones first
    keys = jax.vmap(lambda i: jax.random.split(jax.random.fold_in(key, i)))(index)
    cosines = jax.vmap(lambda k: vmf.sample_cosine(k, concentration, dim, ()))(keys[:, 0])

    def draw(i: Array, directions: Array) -> Array:
        place = places.at[i].get(mode="fill", fill_value=room)
        mean = -direction_of((index < place).astype(directions.dtype) @ directions)
        known = jnp.any(
            mean != 0
        )  # otherwise the distribution is uniform: no component along a mean direction
        cosine, sine = jnp.where(known, cosines[0][i], 0.0), jnp.where(known, cosines[1][i], 1.0)
        normal = jax.random.normal(keys[i, 1], (dim,), directions.dtype)
        value = vmf.place_around(mean, cosine, sine, normal)
        return directions.at[place].set(value.astype(directions.dtype), mode="drop")

    def draw_group(group: Array, directions: Array) -> Array:
        first = group * GROUP
        return lax.fori_loop(0, GROUP, lambda i, now: draw(first + i, now), directions)

    return lax.fori_loop(0, -(-jnp.sum(new) // GROUP), draw_group, directions)


class _Ordering(NamedTuple):
    """Weights in the original numbering, and the pull of the chain in the order they induce."""

    weights: Array
    pull: Scalar


def relocate_all(key: Key, features: Features, level: Scalar, design: Design) -> Features:
    r"""Propose new weights in all of (0, 1) for active features, and so a new place in the order.

    An active atom carries :math:`\alpha B(m, N-m+1)\,\mathrm{Beta}(\mu; m, N-m+1)`, so weights
    drawn from that Beta cancel in the acceptance ratio, which leaves the chain of directions in the
    new order and the density of the level, one over its bound. First all weights move at once,
    which is accepted if the repulsion is weak, then single ones.
    """
    directions = features.components.directions
    cosines = directions @ directions.T
    counts, n_rows = counts_of(features), features.assignments.shape[0]
    active = counts > 0
    key_weights, key_picks, key_accept = jax.random.split(key, 3)
    index = jnp.arange(features.room)
    n_turns = 1 + design.n_relocations  # turn 0 moves all, and has no index
    n_active = jnp.maximum(jnp.sum(active), 1)
    picks = jax.random.randint(key_picks, (n_turns,), 0, n_active)
    places = jnp.argsort(~active, stable=True)[picks]
    offered = jnp.concatenate([counts, counts[places]])
    drawn = stick_breaking.draw_active(key_weights, features.hyper.buffet, offered, n_rows)
    all_drawn, singles = drawn[: features.room], drawn[features.room :]
    uniforms = jax.random.uniform(key_accept, (n_turns,), features.weights.dtype)

    def offer(i: Array, now: _Ordering) -> _Ordering:
        first = i == 0
        chosen = active & (first | (index == places[i]))
        drawn = jnp.where(first, all_drawn, singles[i]).astype(now.weights.dtype)
        weights = jnp.where(chosen, drawn, now.weights)
        pull = pull_in_order(cosines, weights)
        bound = level_bound(weights, active, n_rows)
        log_ratio = features.hyper.concentration * (pull - now.pull)
        log_ratio += jnp.log(level_bound(now.weights, active, n_rows)) - jnp.log(bound)
        accepted = (bound > level) & (jnp.log(uniforms[i]) < log_ratio)
        return choose(accepted, _Ordering(weights, pull), now)

    start = _Ordering(features.weights, pull_in_order(cosines, features.weights))
    # Relocations do not change how many features are active, so that may bound their number.
    n_turns = jnp.minimum(n_turns, 1 + n_active)
    end = lax.fori_loop(0, n_turns, offer, start)
    order = jnp.argsort(-end.weights, stable=True)
    return reorder(features._replace(weights=end.weights), order, features.n_live)


# ---------------------------------------------------------------- shared


def _draw_level(key: Key, weights: Array, active: Array, n_rows: int) -> Scalar:
    share = jax.random.uniform(key, dtype=weights.dtype)
    return jnp.maximum(share, 1e-10) * level_bound(weights, active, n_rows)


def _candidates(features: Features) -> int:
    """Number of candidates for inactive atoms: more than fit, since most are rejected."""
    return 2 * features.room + 64


def _append(features: Features, atoms: stick_breaking.Atoms, spare: int) -> tuple[Features, Array]:
    """Weights of new, unused features after the live ones; also whether all of them fit.

    Some rows are kept free for births later in the sweep.
    """
    index = jnp.arange(features.room)
    turn = index - features.n_live
    n_live = features.n_live + atoms.n_atoms
    new = (turn >= 0) & (index < n_live)
    drawn = atoms.weights[jnp.clip(turn, 0, atoms.weights.shape[0] - 1)]
    weights = jnp.where(new, stick_breaking.inside(drawn), features.weights)
    fits = n_live <= features.room - spare
    n_live = jnp.minimum(n_live, features.room).astype(jnp.int32)
    return features._replace(weights=weights, n_live=n_live), fits


def _positive(weights: Array) -> Array:
    return jnp.where(weights > 0, weights, 1.0)
