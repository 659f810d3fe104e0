r"""Split a cluster in two, or merge two, in one step, which moves of single rows cannot do.

Rows i and j are drawn by a rule that depends on the rows alone. If they share a cluster, splitting
it is proposed, otherwise merging their two. A few EM steps with two clusters that begin at the two
rows give every other row of the cluster (or of both) its probability of either side; these depend
on the rows involved and not on how they are divided, so a merge can compute the probability of the
split that would undo it. Concentrations are proposed from a normal distribution of the logarithm,
centres from the von Mises-Fisher distribution of the rows given the concentration. Everything is
accepted by the exact ratio (Jain and Neal, 2007; Dahl, 2005), with the sticks integrated out. A new
cluster is inserted at a uniformly drawn position.

With n rows of sum R in a cluster, the density of the rows, the prior of the concentration and the
proposals leave, after the centre has cancelled,

.. math:: G(\kappa|R|) - nG(\kappa) + \log p(\kappa) - \log q(\kappa),

together with the chain of centres and the probability of the counts in their order.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import gammaln
from jax.scipy.stats import norm

from wideangle.infer.kernel import Info, accept, choose, make_info
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.sphere import vmf
from wideangle.sphere.geometry import normalise, safe_norm
from wideangle.sphere.vmf import Values, log_mean_exp
from wideangle.spherical_mixture.state import (
    Chain,
    Problem,
    ends_with_rows,
    last_used,
    log_order,
)
from wideangle.types import Array, Key, Scalar

TRIES = 4
"""Number of attempts in a sweep; in every second one the rows are neighbours rather than any
two."""
STEPS = 3
"""EM steps before rows are divided."""
NEWTON = 8
WIDER = 1.2
"""Standard deviation of a proposed logarithm, in units of that of the density."""


class Division(NamedTuple):
    """The rows involved, and their two sides."""

    splits: Array
    """Whether they are one cluster now."""
    left: Array
    """Cluster of the first row of the pair."""
    right: Array
    """Cluster of the second one."""
    taking_part: Array
    goes: Array
    """Which rows are on the side of the second row."""
    log_chance: Scalar
    """Log probability of dividing the rows in this way."""
    possible: Array


class Groups(NamedTuple):
    """Rows of each side, and of both together, with the clusters that they have or would have."""

    counts: Array
    resultants: Array
    mode: Array
    """Mean of the logarithm of a proposed concentration."""
    spread: Array
    """Its standard deviation."""
    concentrations: Array
    directions: Array


class Places(NamedTuple):
    """Clusters in their order."""

    directions: Array
    concentrations: Array
    counts: Array


def split_or_merge(key: Key, chain: Chain, problem: Problem, kind: str) -> tuple[Chain, Info]:
    """Several attempts. Weights are not updated and must be drawn next."""

    def attempt(turn: Array, carry: tuple[Chain, Scalar]) -> tuple[Chain, Scalar]:
        chain, total = carry
        chain, chance = _attempt(jax.random.fold_in(key, turn), turn, chain, problem, kind)
        return chain, total + chance

    chain, total = lax.fori_loop(0, TRIES, attempt, (chain, jnp.zeros(())))
    return chain, make_info(total / TRIES, evaluations=2 * TRIES)


def _attempt(
    key: Key, turn: Array, chain: Chain, problem: Problem, kind: str
) -> tuple[Chain, Scalar]:
    keys = jax.random.split(key, 4)
    room = len(chain.counts)
    n_live = last_used(chain.counts)
    division = divide(keys[0], turn, chain, problem)
    splits, left, right = division[:3]
    groups = propose(keys[1], division, chain, problem)

    new = jnp.floor(jax.random.uniform(keys[2]) * (n_live + 1)).astype(left.dtype)
    here = Places(chain.directions, chain.concentrations, chain.counts)
    two = choose(splits, _with_gap(here, new), here)
    two = _put(two, jnp.where(splits, left + (new <= left), left), groups, 0)
    two = _put(two, jnp.where(splits, new, right), groups, 1)
    one = choose(splits, here, _without(here, right))
    one = _put(one, jnp.where(splits, left, left - (right < left)), groups, 2)
    n_one = n_live - jnp.where(splits, 0, 1)

    worth = worth_of(groups, problem)
    prior = MutualAngular(*chain.directions.shape, problem.strength, kind)
    gain = log_density(two, n_one + 1, chain.alpha, prior) + worth[0] + worth[1]
    gain -= log_density(one, n_one, chain.alpha, prior) + worth[2]
    gain -= log_chance_of_place(n_one) + division.log_chance
    accepted, chance = accept(keys[3], jnp.where(splits, gain, -gain))
    possible = division.possible & ends_with_rows(one.counts, n_one)
    fits = n_live + splits <= room
    accepted &= possible & fits

    labels = chain.assignments.reshape(-1)
    divided = jnp.where(division.goes & division.taking_part, new, labels + (labels >= new))
    joined = jnp.where(labels == right, left, labels)
    joined = joined - (joined > right)
    labels = jnp.where(accepted, jnp.where(splits, divided, joined), labels)
    moved = chain._replace(
        **choose(accepted, choose(splits, two, one), here)._asdict(),
        assignments=labels.reshape(chain.assignments.shape),
        overflow=chain.overflow | (possible & ~fits),
    )
    return moved, jnp.where(possible, chance, 0.0)


def log_density(places: Places, n_live: Array, alpha: Scalar, prior: MutualAngular) -> Scalar:
    """Log density of the centres, and log probability of the counts in their order."""
    live = jnp.arange(len(places.counts)) < n_live
    value = log_order(places.counts, alpha, live) + n_live * jnp.log(alpha)
    value += jnp.sum(gammaln(1.0 + places.counts))
    return value + prior.log_ratio_to_uniform(places.directions)


def log_chance_of_place(n_live: Array) -> Scalar:
    """Log probability of the position of a new cluster: before, between or after the others."""
    return -jnp.log(n_live + 1.0)


def _with_gap(places: Places, new: Array) -> Places:
    """Clusters from this position on shifted up by one."""
    index = jnp.arange(len(places.counts))
    source = index - (index > new)
    return jax.tree.map(lambda leaf: leaf[source], places)


def _without(places: Places, old: Array) -> Places:
    """Clusters after this position shifted down by one; zeros fill the end."""
    index = jnp.arange(len(places.counts))
    source = index + (index >= old)
    return jax.tree.map(lambda leaf: leaf.at[source].get(mode="fill", fill_value=0), places)


def _put(places: Places, at: Array, groups: Groups, which: int) -> Places:
    new = groups.directions, groups.concentrations, groups.counts
    return Places(*(
        leaf.at[at].set(many[which]) for leaf, many in zip(places, new, strict=True)
    ))  # fmt: skip


# ---------------------------------------------------------------- which rows, and how divided


def divide(key: Key, turn: Array, chain: Chain, problem: Problem) -> Division:
    """A pair of rows, and the sides of all rows that share their clusters.

    Sides are drawn if there is one cluster, and taken from the state if there are two.
    """
    key_pair, key_sides = jax.random.split(key)
    rows = problem.rows.reshape(-1, problem.rows.shape[-1])
    weights, labels = problem.weights.reshape(-1), chain.assignments.reshape(-1)
    first, second = draw_pair(key_pair, turn, rows, weights, problem)
    left, right = labels[first], labels[second]
    taking_part = ((labels == left) | (labels == right)) & (weights > 0)
    odds = launch(rows, jnp.where(taking_part, weights, 0.0), (first, second), problem)
    drawn = jax.random.uniform(key_sides, odds.shape, odds.dtype) < jax.nn.sigmoid(odds)
    goes = jnp.where(left == right, drawn, labels == right)
    goes = goes.at[first].set(False).at[second].set(True)
    free = taking_part.at[first].set(False).at[second].set(False)
    logs = jax.nn.log_sigmoid(jnp.where(goes, odds, -odds)).astype(chain.counts.dtype)
    log_chance = jnp.sum(jnp.where(free, logs, 0.0))
    return Division(left == right, left, right, taking_part, goes, log_chance, first != second)


def draw_pair(
    key: Key, turn: Array, rows: Array, weights: Array, problem: Problem
) -> tuple[Array, Array]:
    """Two rows; in every second pair the second is drawn by its cosine to the first."""
    key_first, key_second = jax.random.split(key)
    logits = jnp.where(weights > 0, 0.0, -jnp.inf)
    first = jax.random.categorical(key_first, logits)
    near = usual(problem.cosine, rows.shape[1]) * (turn % 2)
    logits += near.astype(rows.dtype) * jnp.dot(rows, rows[first], precision="highest")
    return first, jax.random.categorical(key_second, logits.at[first].set(-jnp.inf))


def launch(rows: Array, weights: Array, pair: tuple[Array, Array], problem: Problem) -> Array:
    """Log odds of the side of the second row, by two clusters that begin at the pair."""
    dim = rows.shape[1]
    kappa = usual(problem.cosine, dim)
    start = kappa.astype(rows.dtype) * rows[jnp.stack(pair)], jnp.zeros((), rows.dtype)

    def odds_of(natural: Array, offset: Array) -> Array:
        return jnp.dot(rows, natural[1] - natural[0], precision="highest") + offset

    def step(_: Array, clusters: tuple[Array, Array]) -> tuple[Array, Array]:
        share = jax.nn.sigmoid(odds_of(*clusters))
        sides = jnp.stack([weights * (1.0 - share), weights * share])
        counts = jnp.sum(sides, axis=1).astype(kappa.dtype)
        resultants = jnp.dot(sides, rows, precision="highest").astype(kappa.dtype)
        length = safe_norm(resultants)
        level = (problem.prior_rows * problem.cosine + length) / (problem.prior_rows + counts)
        kappas = usual(level, dim)
        logs = jnp.log1p(counts) - nearly(kappas, dim).log_mean
        natural = kappas[:, None] * normalise(resultants)
        return natural.astype(rows.dtype), (logs[1] - logs[0]).astype(rows.dtype)

    return weights * odds_of(*lax.fori_loop(0, STEPS, step, start))


# ---------------------------------------------------------------- centres and concentrations


def propose(key: Key, division: Division, chain: Chain, problem: Problem) -> Groups:
    """Both sides and the whole; existing clusters keep their values."""
    key_kappa, key_centre = jax.random.split(key)
    rows = problem.rows.reshape(-1, problem.rows.shape[-1])
    sides = jnp.stack([division.taking_part & ~division.goes, division.taking_part & division.goes])
    sides = sides * problem.weights.reshape(-1)
    both = jnp.dot(sides, rows, precision="highest").astype(chain.counts.dtype)
    counts = jnp.sum(sides, axis=1).astype(chain.counts.dtype)
    counts, resultants = (jnp.concatenate([x, x.sum(0, keepdims=True)]) for x in (counts, both))
    mode, spread = log_concentrations(counts, safe_norm(resultants), problem)
    kappas = jnp.exp(mode + spread * jax.random.normal(key_kappa, mode.shape, mode.dtype))
    centres = vmf.sample(key_centre, kappas[:, None] * resultants)
    now = jnp.stack([division.left, division.right, division.left])
    there = jnp.array([False, False, True]) == division.splits
    return Groups(
        counts,
        resultants,
        mode,
        spread,
        jnp.where(there, chain.concentrations[now], kappas),
        jnp.where(there[:, None], chain.directions[now], centres),
    )


def worth_of(groups: Groups, problem: Problem) -> Array:
    """Log density of rows and concentration minus that of the proposal, see above."""
    kappas, dim = groups.concentrations, groups.directions.shape[1]
    both = jnp.stack([kappas, kappas * safe_norm(groups.resultants)])
    normalisers, of_rows = log_mean_exp(both, dim)
    rows = of_rows - groups.counts * normalisers
    prior = problem.prior_rows * (problem.cosine * kappas - normalisers) - problem.log_constant
    logs = jnp.log(kappas)
    return rows + prior - (norm.logpdf(logs, groups.mode, groups.spread) - logs)


def log_concentrations(counts: Array, length: Array, problem: Problem) -> tuple[Array, Array]:
    """Mean and standard deviation of a proposed log concentration, from mode and curvature."""
    dim, rows = problem.rows.shape[-1], problem.prior_rows
    total = rows + counts

    def shape(logs: Array) -> tuple[Array, Array]:
        kappa = jnp.exp(logs)
        own, of_rows = nearly(kappa, dim), nearly(kappa * length, dim)
        rise = rows * problem.cosine + length * of_rows.ratio - total * own.ratio
        bend = total * own.slope - length**2 * of_rows.slope
        # If few rows leave it open, the curvature of the prior is safe.
        return 1.0 + kappa * rise, 1.0 + kappa**2 * jnp.maximum(bend, rows * own.slope)

    def step(_: Array, logs: Array) -> Array:
        rise, bend = shape(logs)
        return logs + jnp.clip(rise / bend, -1.0, 1.0)

    start = jnp.log(usual(problem.cosine, dim)) + jnp.zeros_like(counts)
    mode = lax.fori_loop(0, NEWTON, step, start)
    return mode, WIDER / jnp.sqrt(shape(mode)[1])


# ---------------------------------------------------------------- proposals may be approximate


def usual(cosine: Array, dim: int) -> Array:
    """Approximate concentration of an expected cosine (Banerjee and others, 2005)."""
    return cosine * (dim - cosine**2) / (1.0 - cosine**2)


def nearly(kappa: Array, dim: int) -> Values:
    """G, A and A' to within a few per cent: Amos's bound (1974), its integral and derivative."""
    low, high = 0.5 * (dim - 1), 0.5 * (dim + 1)
    root = jnp.sqrt(kappa**2 + high**2)
    total = low + root
    log_mean = root - high - low * jnp.log(total / (low + high))
    slope = (root * total - kappa**2) / (root * total**2)
    return Values(log_mean, kappa / total, slope)
