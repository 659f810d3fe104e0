r"""Metropolis-Hastings with any proposal that gives its Hastings term; and random walks for it.

A proposal is a function ``(key, position) -> (proposal, log_hastings)`` with

.. math:: \text{log\_hastings} = \log q(x \mid x') - \log q(x' \mid x),

a scalar, zero when the proposal is symmetric. The walks here are for directions and for positive
magnitudes. Rows (or entries) that are exactly zero are padding of a model with room for more
components; they stay zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr

from wideangle.infer.kernel import (
    Evaluated,
    Info,
    Kernel,
    LogDensity,
    accept,
    choose,
    evaluate,
    make_info,
)
from wideangle.sphere import vmf
from wideangle.types import Array, Key, Scalar

Proposal: TypeAlias = Callable[[Key, Any], tuple[Any, Scalar]]


def metropolis(proposal: Proposal) -> Kernel:
    r"""Propose the whole block, accept with :math:`\min\{1, \pi(x')q(x|x') / \pi(x)q(x'|x)\}`.

    ``proposal`` draws x' and gives its Hastings term. One density evaluation per step.

    Paper: the Metropolis-Hastings algorithm of Section 2.3.2.
    """

    def step(key: Key, state: Evaluated, logdensity: LogDensity) -> tuple[Evaluated, Info]:
        state, probability = _move(key, state, proposal, logdensity, lambda proposed: proposed)
        return state, make_info(probability, evaluations=1)

    return Kernel(evaluate, step)


def each_row(proposal: Proposal) -> Kernel:
    """Propose and accept one row after the other: K decisions and K evaluations per step.

    The position is an array, or a pytree of arrays, whose leading axis counts the rows (the
    components); ``proposal`` sees one row. Steps can be much longer than when K rows must be
    accepted together. The acceptance reported is the mean over rows.
    """

    def step(key: Key, state: Evaluated, logdensity: LogDensity) -> tuple[Evaluated, Info]:
        n_rows = jax.tree.leaves(state.position)[0].shape[0]

        def visit(state: Evaluated, row: Array) -> tuple[Evaluated, Scalar]:
            def propose(key: Key, position: Any) -> tuple[Any, Scalar]:
                return proposal(key, jax.tree.map(lambda leaf: leaf[row], position))

            def embed(proposed: Any) -> Any:
                return jax.tree.map(
                    lambda leaf, new: leaf.at[row].set(new), state.position, proposed
                )

            return _move(jax.random.fold_in(key, row), state, propose, logdensity, embed)

        state, probabilities = jax.lax.scan(visit, state, jnp.arange(n_rows))
        return state, make_info(jnp.mean(probabilities), evaluations=n_rows)

    return Kernel(evaluate, step)


def _move(
    key: Key,
    state: Evaluated,
    proposal: Proposal,
    logdensity: LogDensity,
    embed: Callable[[Any], Any],
) -> tuple[Evaluated, Scalar]:
    """One proposal and its decision; ``embed`` puts the proposal into the position."""
    key_propose, key_accept = jax.random.split(key)
    proposed, log_hastings = proposal(key_propose, state.position)
    candidate = evaluate(embed(proposed), logdensity)
    log_ratio = candidate.log_density - state.log_density + log_hastings
    accepted, probability = accept(key_accept, log_ratio)
    return choose(accepted, candidate, state), probability


def vmf_walk(angle: Scalar | float) -> Proposal:
    r"""Walk on the sphere, :math:`x' \sim \mathrm{vMF}(x, (p-1)/\text{angle}^2)`.

    Symmetric, because the density depends on :math:`x^\top x'` only. The concentration grows
    with the dimension so that the typical move is ``angle`` radians for every p.

    Paper: the proposal for the directions in Section 2.3.2.
    """

    def propose(key: Key, position: Array) -> tuple[Array, Scalar]:
        # A line has no tangent direction; max() keeps p = 1 finite.
        concentration = max(position.shape[-1] - 1, 1) / angle**2
        live = jnp.any(position != 0, axis=-1, keepdims=True)
        natural = jnp.asarray(concentration * position, position.dtype)
        moved = vmf.sample(key, natural).astype(position.dtype)
        return jnp.where(live, moved, position), jnp.zeros((), position.dtype)

    return propose


def positive_walk(scale: Scalar | float) -> Proposal:
    r"""Normal walk truncated to positive values, :math:`g' \sim N(g, \sigma^2)` given g' > 0.

    ``scale`` is :math:`\sigma`.

    .. math:: q(g' \mid g) = \phi\big((g'-g)/\sigma\big) \big/ \sigma\Phi(g/\sigma),
       \qquad \text{log\_hastings} = \log\Phi(g/\sigma) - \log\Phi(g'/\sigma).

    Paper: the proposal for the magnitudes in Section 2.3.2. Differs from the paper: the
    correction is stated there for the proposal only; without it the chain targets
    :math:`\pi(g)\Phi(g/\sigma)`.
    """

    def propose(key: Key, position: Array) -> tuple[Array, Scalar]:
        live = position > 0
        sigma = jnp.asarray(scale, position.dtype)
        moved = jnp.where(live, _truncated_normal(key, position, sigma), position)
        change = _log_mass(position / sigma) - _log_mass(moved / sigma)
        return moved, jnp.sum(jnp.where(live, change, 0.0))

    return propose


_log_mass = log_ndtr
"""Log of the mass that the normal walk leaves on the positive side."""


def _truncated_normal(key: Key, mean: Array, sigma: Scalar) -> Array:
    """N(mean, sigma^2) given a positive value, for mean >= 0, by redrawing.

    At least half of the mass is positive, so a round fails with probability at most 1/2. Unlike
    inverting the distribution function, this is as accurate in the tails as the normal draws
    themselves, in float32 too, and never rounds to zero.
    """

    def draw(key: Key) -> Array:
        return mean + sigma * jax.random.normal(key, mean.shape, mean.dtype)

    def redraw(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        turn, value = carry
        return turn + 1, jnp.where(value <= 0, draw(jax.random.fold_in(key, turn)), value)

    # `value <= 0` is false for NaN: a NaN mean ends the loop and the acceptance rejects it.
    _, value = jax.lax.while_loop(
        lambda carry: jnp.any(carry[1] <= 0), redraw, (1, draw(jax.random.fold_in(key, 0)))
    )
    return value
