r"""Slice sampling of one coordinate at a time; correct for any tuning.

For the current point x draw a level :math:`y = \log\pi(x) - E`, E exponential; find an interval
around x by stepping out; draw from it uniformly and shrink it towards x until a point with
:math:`\log\pi \ge y` is found (Neal, 2003).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from wideangle.infer.kernel import Evaluated, Info, Kernel, LogDensity, evaluate, make_info
from wideangle.types import Array, Key, Scalar

MAX_SHRINKS = 100
"""Bound on the shrinkage loop. Each round keeps 3/4 of the interval on average, so 100 rounds
reach 1e-12 of it; the bound ends the loop when the density is NaN."""


class LogScaleState(NamedTuple):
    """A positive position together with the state of the kernel that moves its logarithm."""

    position: Any
    inner: Any


def slice_sampler(width: Scalar | float = 1.0, max_steps: int = 16) -> Kernel:
    """Slice sampler that visits every entry of the position in turn.

    Parameters
    ----------
    width
        First guess of the width of the slice; also the step with which it is stepped out. A bad
        guess costs evaluations, not correctness.
    max_steps
        The interval grows to at most ``max_steps * width``.

    Notes
    -----
    The log density may be -inf (or NaN) outside the support. The acceptance reported is the
    share of points tried inside the interval that were accepted. It falls when ``width`` grows,
    so a width can be tuned towards a target like any other step.
    """

    def step(key: Key, state: Evaluated, logdensity: LogDensity) -> tuple[Evaluated, Info]:
        flat, restore = ravel_pytree(state.position)

        def visit(carry: tuple[Array, Scalar], index: Array) -> tuple[Any, tuple[Array, Array]]:
            flat, level = carry

            def along(value: Scalar) -> Scalar:
                return logdensity(restore(flat.at[index].set(value)))

            value, level, tries, evaluations = _slice_one(
                jax.random.fold_in(key, index), flat[index], level, along, width, max_steps
            )
            return (flat.at[index].set(value), level), (tries, evaluations)

        carry = (flat, state.log_density)
        (flat, level), (tries, evaluations) = jax.lax.scan(visit, carry, jnp.arange(flat.size))
        info = make_info(flat.size / jnp.sum(tries), evaluations=jnp.sum(evaluations))
        return Evaluated(restore(flat), level), info

    return Kernel(evaluate, step)


def on_log_scale(kernel: Kernel) -> Kernel:
    r"""Let a kernel move the logarithm of a positive position.

    .. math:: \log\tilde\pi(x) = \log\pi(e^x) + \sum_i x_i,

    the sum being the Jacobian of the change of variable. Entries that are exactly zero are
    padding and stay zero.
    """

    def inside(logdensity: LogDensity, live: Any) -> LogDensity:
        return lambda logs: logdensity(_exp(logs, live)) + _log_jacobian(logs, live)

    def init(position: Any, logdensity: LogDensity) -> LogScaleState:
        live = jax.tree.map(lambda leaf: leaf > 0, position)
        logs = jax.tree.map(lambda leaf, on: jnp.log(jnp.where(on, leaf, 1.0)), position, live)
        return LogScaleState(position, kernel.init(logs, inside(logdensity, live)))

    def step(key: Key, state: LogScaleState, logdensity: LogDensity) -> tuple[Any, Info]:
        live = jax.tree.map(lambda leaf: leaf > 0, state.position)
        inner, info = kernel.step(key, state.inner, inside(logdensity, live))
        return LogScaleState(_exp(inner.position, live), inner), info

    return Kernel(init, step)


def _exp(logs: Any, live: Any) -> Any:
    return jax.tree.map(lambda leaf, on: jnp.where(on, jnp.exp(leaf), 0.0), logs, live)


def _log_jacobian(logs: Any, live: Any) -> Scalar:
    terms = jax.tree.map(lambda leaf, on: jnp.sum(jnp.where(on, leaf, 0.0)), logs, live)
    return sum(jax.tree.leaves(terms))


def _slice_one(
    key: Key,
    start: Scalar,
    log_density: Scalar,
    along: Callable[[Scalar], Scalar],
    width: Scalar | float,
    max_steps: int,
) -> tuple[Scalar, Scalar, Array, Array]:
    """Move one coordinate; returns it, its log density, points tried, and evaluations."""
    key_level, key_place, key_split, key_shrink = jax.random.split(key, 4)
    level = _draw_level(key_level, log_density)
    width = jnp.asarray(width, start.dtype)
    edge = start - width * jax.random.uniform(key_place, dtype=start.dtype)
    steps_left, steps_right = _split_budget(key_split, max_steps)
    left, cost_left = _step_out(edge, -width, steps_left, level, along)
    right, cost_right = _step_out(edge + width, width, steps_right, level, along)
    value, reached, tries = _draw_inside(key_shrink, start, left, right, level, along)
    # The search fails only if the density is NaN at the start; then nothing moves.
    found = reached >= level
    value = jnp.where(found, value, start)
    log_density = jnp.where(found, reached, log_density)
    return value, log_density, tries, tries + cost_left + cost_right


def _draw_level(key: Key, log_density: Scalar) -> Scalar:
    """Log height of the slice: the density times a uniform, as a sum of logs."""
    return log_density - jax.random.exponential(key, dtype=log_density.dtype)


def _split_budget(key: Key, max_steps: int) -> tuple[Array, Array]:
    """Split the steps between the two sides at random.

    With a fixed split, an interval could be reached from one of its points and not from another,
    and the move would not be reversible.
    """
    left = jax.random.randint(key, (), 0, max_steps)
    return left, max_steps - 1 - left


def _step_out(
    edge: Scalar, width: Scalar, budget: Array, level: Scalar, along: Callable[[Scalar], Scalar]
) -> tuple[Scalar, Array]:
    """Push an edge outwards until it leaves the slice; returns it and the evaluations spent."""

    def outside(edge: Scalar) -> Array:
        return ~(along(edge) >= level)  # NaN is outside

    def push(carry: tuple[Scalar, Array, Array]) -> tuple[Scalar, Array, Array]:
        edge, spent, stop = carry
        stop = outside(edge)
        return jnp.where(stop, edge, edge + width), spent + 1, stop

    def more(carry: tuple[Scalar, Array, Array]) -> Array:
        _, spent, stop = carry
        return ~stop & (spent < budget)

    edge, spent, _ = jax.lax.while_loop(more, push, (edge, jnp.int32(0), jnp.array(False)))
    return edge, spent


def _draw_inside(
    key: Key,
    start: Scalar,
    left: Scalar,
    right: Scalar,
    level: Scalar,
    along: Callable[[Scalar], Scalar],
) -> tuple[Scalar, Scalar, Array]:
    """Uniform points in a shrinking interval until one is in the slice."""

    def attempt(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        left, right, tried, _, tries = carry
        left, right = _shrink(left, right, tried, start, tries)
        share = jax.random.uniform(jax.random.fold_in(key, tries), dtype=start.dtype)
        tried = left + share * (right - left)
        return left, right, tried, along(tried), tries + 1

    def missed(carry: tuple[Any, ...]) -> Array:
        _, _, _, reached, tries = carry
        return ~(reached >= level) & (tries < MAX_SHRINKS)

    below = jnp.full_like(level, -jnp.inf)
    carry = attempt((left, right, start, below, jnp.int32(0)))
    _, _, tried, reached, tries = jax.lax.while_loop(missed, attempt, carry)
    return tried, reached, tries


def _shrink(
    left: Scalar, right: Scalar, tried: Scalar, start: Scalar, tries: Array
) -> tuple[Scalar, Scalar]:
    """Cut off the side of the rejected point that does not contain the current one."""
    first = tries == 0  # nothing has been rejected yet
    new_left = jnp.where(~first & (tried < start), tried, left)
    new_right = jnp.where(~first & (tried >= start), tried, right)
    return new_left, new_right
