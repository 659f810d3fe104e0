r"""One sweep of the Gibbs sampler over clusters of directions, finite or infinite.

In turn: for an infinite mixture splits and merges (:mod:`wideangle.spherical_mixture.split_merge`);
the order of the clusters (the mutual-angular chain depends on it), alpha, the weights, for an
infinite mixture the slice and the clusters above it, the assignments, the centres, the
concentrations.

* **Weights.** Finite: a Dirichlet distribution given the counts. Infinite: sticks
  :math:`v_k \sim \mathrm{Beta}(1 + n_k, \alpha + n_{>k})`; order and alpha move before them, with
  the sticks integrated out.
* **Slice** (infinite). With :math:`u_n \sim U(0, \pi_{z_n})` only clusters with
  :math:`\pi_k > u_n` can have row n, and there are finitely many. Clusters after the last that has
  rows are discarded and drawn again, each centre from the chain given those before it
  (``draw_next``). If the room is too small for all that may be needed, ``overflow`` is set, and the
  sweep must be repeated with more room: random numbers belong to slots, so the slots that fitted
  before get the same values.
* **Centres**, one after the other: drawn from the von Mises-Fisher distribution given the rows and
  the chain up to this position, accepted by the ratio of the rest of the chain.
* **Concentrations**: slice sampling of the logarithm.

A row of weight w has one assignment, which counts w times.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import gammaln, logsumexp

from wideangle.infer.kernel import Info, Update, accept, choose, make_info
from wideangle.infer.slice import on_log_scale, slice_sampler
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.sphere import vmf
from wideangle.sphere.vmf import log_mean_exp
from wideangle.spherical_mixture.split_merge import split_or_merge
from wideangle.spherical_mixture.state import (
    Chain,
    Design,
    Problem,
    ends_with_rows,
    last_used,
    log_order,
)
from wideangle.types import Array, Key, Scalar


@cache
def recipe_of(design: Design) -> Callable[..., Update]:
    """The sweep in the form that :func:`wideangle.infer.run` needs; one object for each design."""

    def recipe(_: dict[str, Scalar], problem: Problem) -> Update:
        return partial(sweep, problem=problem, design=design)

    return recipe


def sweep(key: Key, chain: Chain, problem: Problem, design: Design) -> tuple[Chain, Any]:
    """Move everything once."""
    keys = jax.random.split(key, 9)
    infos: dict[str, Info] = {}
    if design.infinite:
        chain = without_tail(chain)
        chain, infos["split or merge"] = split_or_merge(keys[7], chain, problem, design.kind)
    n_live, live = _living(chain, design)
    chain, order = reorder(keys[0], chain, n_live, problem, design)
    if design.learn_alpha:
        chain = move_alpha(keys[1], chain, live, problem, design)
    chain, log_left = draw_weights(keys[2], chain, live, design)
    if design.infinite:
        chain = draw_tail(keys[3], chain, live, problem, design)
    chain, resultants = draw_assignments(keys[4], chain, log_left, problem, design)
    if design.infinite:
        chain = without_tail(chain)
    n_live, live = _living(chain, design)
    chain, centres = move_centres(keys[5], chain, n_live, resultants, problem, design)
    chain, tightness = move_concentrations(keys[6], chain, resultants, problem)
    if design.infinite:
        chain = draw_tail(keys[8], chain, live, problem, design)
    infos |= {"order": order, "centres": centres, "concentrations": tightness}
    return chain, infos


def _living(chain: Chain, design: Design) -> tuple[Any, Array]:
    """Number of slots in the state, and which they are."""
    n = len(chain.counts)
    n_live = last_used(chain.counts) if design.infinite else n
    return n_live, jnp.arange(n) < n_live


def without_tail(chain: Chain) -> Chain:
    """Centres up to the last cluster that has rows, padded with zeros."""
    live = jnp.arange(len(chain.counts)) < last_used(chain.counts)
    return chain._replace(directions=jnp.where(live[:, None], chain.directions, 0.0))


def _prior(chain: Chain, problem: Problem, design: Design) -> MutualAngular:
    return MutualAngular(*chain.directions.shape, problem.strength, design.kind)


def _places(key: Key, n: int) -> Key:
    """A key for every slot, independent of the room."""
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(n))


# ---------------------------------------------------------------- order, alpha, weights


def reorder(
    key: Key, chain: Chain, n_live: Any, problem: Problem, design: Design
) -> tuple[Chain, Info]:
    """Propose for every cluster to change places with another."""
    index = jnp.arange(len(chain.counts))
    prior = _prior(chain, problem, design)

    def density(order: Array) -> Scalar:
        value = prior.log_ratio_to_uniform(chain.directions[order])
        if design.infinite:
            value += log_order(chain.counts[order], chain.alpha, index < n_live)
        return value

    def swap(place: Array, carry: tuple[Array, Scalar, Scalar]) -> tuple[Array, Scalar, Scalar]:
        order, level, total = carry
        key_other, key_accept = jax.random.split(jax.random.fold_in(key, place))
        other = jnp.floor(jax.random.uniform(key_other) * n_live).astype(index.dtype)
        tried = order.at[place].set(order[other]).at[other].set(order[place])
        reached = density(tried)
        accepted, chance = accept(key_accept, reached - level)
        if design.infinite:
            accepted &= ends_with_rows(chain.counts[tried], n_live)
        return *choose(accepted, (tried, reached), (order, level)), total + chance

    order, _, total = lax.fori_loop(0, n_live, swap, (index, density(index), jnp.zeros(())))
    places = jnp.zeros_like(index).at[order].set(index)
    moved = chain._replace(
        directions=chain.directions[order],
        concentrations=chain.concentrations[order],
        log_weights=chain.log_weights[order],
        counts=chain.counts[order],
        assignments=places[chain.assignments].astype(chain.assignments.dtype),
    )
    return moved, make_info(total / n_live, evaluations=n_live)


def move_alpha(key: Key, chain: Chain, live: Array, problem: Problem, design: Design) -> Chain:
    """Slice sampling of log alpha, with the weights integrated out."""
    counts, n = chain.counts, len(chain.counts)

    def density(alpha: Scalar) -> Scalar:
        value = -alpha / problem.alpha_mean
        if design.infinite:
            return value + jnp.sum(live) * jnp.log(alpha) + log_order(counts, alpha, live)
        share = alpha / n
        value += gammaln(alpha) - gammaln(alpha + jnp.sum(counts))
        return value + jnp.sum(gammaln(share + counts) - gammaln(share))

    kernel = on_log_scale(slice_sampler())
    state, _ = kernel.step(key, kernel.init(chain.alpha, density), density)
    return chain._replace(alpha=state.position)


def draw_weights(key: Key, chain: Chain, live: Array, design: Design) -> tuple[Chain, Scalar]:
    """Log weights given counts, and the log of the mass left beyond the room."""
    counts, n = chain.counts, len(chain.counts)
    if not design.infinite:
        logs = jax.random.loggamma(key, chain.alpha / n + counts)
        return chain._replace(log_weights=logs - logsumexp(logs)), jnp.full((), -jnp.inf)
    after = jnp.cumsum(counts[::-1])[::-1] - counts
    shapes = jnp.stack([1.0 + counts, chain.alpha + after], axis=1)
    logs = jax.vmap(jax.random.loggamma)(_places(key, n), shapes)
    logs = logs - logsumexp(logs, axis=1, keepdims=True)
    left = jnp.cumsum(logs[:, 1])
    before = jnp.concatenate([jnp.zeros(1), left[:-1]])
    return chain._replace(log_weights=logs[:, 0] + before), left[-1]


def draw_tail(key: Key, chain: Chain, live: Array, problem: Problem, design: Design) -> Chain:
    """Centres and concentrations of clusters that never had a row, from the prior."""
    n = len(chain.counts)
    prior = _prior(chain, problem, design)
    keys = jax.vmap(jax.random.split)(_places(key, n))

    def draw(directions: Array, turn: tuple[Array, Key]) -> tuple[Array, None]:
        place, key = turn
        fresh = prior.draw_next(key, directions).astype(directions.dtype)
        return jnp.where(live[place], directions, directions.at[place].set(fresh)), None

    directions, _ = lax.scan(draw, chain.directions, (jnp.arange(n), keys[:, 0]))
    drawn = draw_concentrations(keys[:, 1], problem)
    return chain._replace(
        directions=directions, concentrations=jnp.where(live, chain.concentrations, drawn)
    )


def draw_concentrations(keys: Key, problem: Problem) -> Array:
    """One for each key, from the prior, by inverting its distribution function."""
    logs, levels = problem.table
    uniform = jax.vmap(lambda key: jax.random.uniform(key, dtype=logs.dtype))(keys)
    return jnp.exp(jnp.interp(uniform, levels, logs))


# ---------------------------------------------------------------- assignments


def draw_assignments(
    key: Key, chain: Chain, log_left: Scalar, problem: Problem, design: Design
) -> tuple[Chain, Array]:
    """The cluster of every row, and with it counts and sums of rows, (K, p)."""
    n, dim = chain.directions.shape
    natural = (chain.concentrations[:, None] * chain.directions).astype(problem.rows.dtype)
    normalisers = log_mean_exp(chain.concentrations, dim)
    offsets = (chain.log_weights - normalisers).astype(problem.rows.dtype)
    log_weights = chain.log_weights.astype(problem.rows.dtype)

    def block(carry: Any, turn: Any) -> tuple[Any, Array]:
        counts, resultants, log_lik, overflow = carry
        key, rows, weights, old = turn
        key_slice, key_draw = jax.random.split(key)
        joint = jnp.dot(rows, natural.T, precision="highest") + offsets
        logs = logsumexp(joint, axis=1)
        logits = weights[:, None] * joint
        if design.infinite:
            heights = weights[:, None] * log_weights
            drop = jax.random.exponential(key_slice, weights.shape, rows.dtype)
            level = jnp.take_along_axis(heights, old[:, None], 1)[:, 0] - drop
            logits = jnp.where(heights >= level[:, None], logits - heights, -jnp.inf)
            overflow = overflow | jnp.any((weights > 0) & (weights * log_left > level))
        chosen = _categorical(key_draw, logits)
        used = jax.nn.one_hot(chosen, n, dtype=rows.dtype) * weights[:, None]
        found = jnp.dot(used.T, rows, precision="highest")
        carry = (
            counts + jnp.sum(used, axis=0).astype(counts.dtype),
            resultants + found.astype(counts.dtype),
            log_lik + jnp.sum((weights * logs).astype(counts.dtype)),
            overflow,
        )
        return carry, chosen

    start = (
        jnp.zeros_like(chain.counts),
        jnp.zeros_like(chain.directions),
        jnp.zeros_like(chain.log_lik),
        chain.overflow,
    )
    keys = jax.random.split(key, len(problem.rows))
    turns = keys, problem.rows, problem.weights, chain.assignments
    (counts, resultants, log_lik, overflow), chosen = lax.scan(block, start, turns)
    moved = chain._replace(assignments=chosen, counts=counts, log_lik=log_lik, overflow=overflow)
    return moved, resultants


def _categorical(key: Key, logits: Array) -> Array:
    """A draw for each row from one uniform number, independent of the room."""
    parts = jnp.cumsum(jnp.exp(logits - jnp.max(logits, axis=1, keepdims=True)), axis=1)
    uniform = jax.random.uniform(key, (len(logits), 1), logits.dtype)
    found = jnp.sum(parts <= uniform * parts[:, -1:], axis=1)
    # Rounding may put the level at the very end, beyond the last cluster.
    last = jnp.max(jnp.where(jnp.isfinite(logits), jnp.arange(logits.shape[1]), 0), axis=1)
    return jnp.minimum(found, last).astype(jnp.int32)


# ---------------------------------------------------------------- centres and concentrations


def move_centres(
    key: Key, chain: Chain, n_live: Any, resultants: Array, problem: Problem, design: Design
) -> tuple[Chain, Info]:
    """Move every centre once, from first to last; zeros are padding."""
    n = len(chain.counts)
    prior = _prior(chain, problem, design)
    index = jnp.arange(n)

    def move(place: Array, carry: tuple[Array, Scalar, Scalar]) -> tuple[Array, Scalar, Scalar]:
        directions, level, total = carry
        key_draw, key_accept = jax.random.split(jax.random.fold_in(key, place))
        before = prior.next_component(jnp.where((index < place)[:, None], directions, 0.0))
        pull = before.concentration * before.mean_direction
        natural = chain.concentrations[place] * resultants[place] + pull
        fresh = vmf.sample(key_draw, natural)
        tried = directions.at[place].set(fresh)
        reached = prior.log_ratio_to_uniform(tried)
        # The proposal includes the rows and this centre's term of the chain; the rest decides.
        own = jnp.sum(pull * (fresh - directions[place]))
        accepted, chance = accept(key_accept, reached - level - own)
        return (*choose(accepted, (tried, reached), (directions, level)), total + chance)

    start = chain.directions, prior.log_ratio_to_uniform(chain.directions), jnp.zeros(())
    directions, _, total = lax.fori_loop(0, n_live, move, start)
    return chain._replace(directions=directions), make_info(total / n_live, evaluations=n_live)


def move_concentrations(
    key: Key, chain: Chain, resultants: Array, problem: Problem
) -> tuple[Chain, Info]:
    """All concentrations at once; they are independent given the rest."""
    n, dim = chain.directions.shape
    along = jnp.sum(resultants * chain.directions, axis=1)
    slopes = problem.prior_rows * problem.cosine + along
    totals = problem.prior_rows + chain.counts
    kernel = on_log_scale(slice_sampler(0.5))

    def move(key: Key, kappa: Scalar, slope: Scalar, total: Scalar) -> tuple[Scalar, Info]:
        def density(kappa: Scalar) -> Scalar:
            return slope * kappa - total * log_mean_exp(kappa, dim)

        state, info = kernel.step(key, kernel.init(kappa, density), density)
        return state.position, info

    found, info = jax.vmap(move)(_places(key, n), chain.concentrations, slopes, totals)
    evaluations = jnp.sum(info.evaluations)
    mean = make_info(jnp.mean(info.acceptance), evaluations=evaluations)
    return chain._replace(concentrations=found), mean
