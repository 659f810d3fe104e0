r"""Metropolis-Hastings with any proposal that knows its Hastings term.

A proposal is a function ``(key, position) -> (proposal, log_hastings)`` with

.. math:: \text{log\_hastings} = \log q(x \mid x') - \log q(x' \mid x),

a scalar, zero when the proposal is symmetric.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from wideangle.infer.kernel import Info, Kernel, LogDensity, accept, choose, make_info
from wideangle.types import Array, Key, Scalar

Proposal: TypeAlias = Callable[[Key, Any], tuple[Any, Scalar]]


class MetropolisState(NamedTuple):
    """Where the chain is and the log density there."""

    position: Any
    log_density: Scalar


def init(position: Any, logdensity: LogDensity) -> MetropolisState:
    """Evaluate the density at the starting position."""
    return MetropolisState(position, logdensity(position))


def metropolis(proposal: Proposal) -> Kernel:
    r"""Propose the whole block, accept with :math:`\min\{1, \pi(x')q(x|x') / \pi(x)q(x'|x)\}`.

    ``proposal`` draws x' and says its Hastings term. One density evaluation a step.

    Paper: the Metropolis-Hastings algorithm of Section 2.3.2.
    """

    def step(
        key: Key, state: MetropolisState, logdensity: LogDensity
    ) -> tuple[MetropolisState, Info]:
        state, probability = _move(key, state, proposal, logdensity, lambda proposed: proposed)
        return state, make_info(probability, evaluations=1)

    return Kernel(init, step)


def each_row(proposal: Proposal) -> Kernel:
    """Propose and accept one row after the other: K decisions and K evaluations a step.

    The position is an array, or a pytree of arrays, whose leading axis counts the rows (the
    components); ``proposal`` sees one row. Steps can be much longer than when K rows must be
    accepted together. The acceptance reported is the mean over rows.
    """

    def step(
        key: Key, state: MetropolisState, logdensity: LogDensity
    ) -> tuple[MetropolisState, Info]:
        n_rows = jax.tree.leaves(state.position)[0].shape[0]

        def visit(state: MetropolisState, row: Array) -> tuple[MetropolisState, Scalar]:
            def propose(key: Key, position: Any) -> tuple[Any, Scalar]:
                return proposal(key, jax.tree.map(lambda leaf: leaf[row], position))

            def embed(proposed: Any) -> Any:
                return jax.tree.map(
                    lambda leaf, new: leaf.at[row].set(new), state.position, proposed
                )

            return _move(jax.random.fold_in(key, row), state, propose, logdensity, embed)

        state, probabilities = jax.lax.scan(visit, state, jnp.arange(n_rows))
        return state, make_info(jnp.mean(probabilities), evaluations=n_rows)

    return Kernel(init, step)


def _move(
    key: Key,
    state: MetropolisState,
    proposal: Proposal,
    logdensity: LogDensity,
    embed: Callable[[Any], Any],
) -> tuple[MetropolisState, Scalar]:
    """One proposal and its decision; ``embed`` puts what was proposed into the position."""
    key_propose, key_accept = jax.random.split(key)
    proposed, log_hastings = proposal(key_propose, state.position)
    candidate = init(embed(proposed), logdensity)
    log_ratio = candidate.log_density - state.log_density + log_hastings
    accepted, probability = accept(key_accept, log_ratio)
    return choose(accepted, candidate, state), probability
