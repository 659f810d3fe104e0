r"""Random walks for directions and for positive magnitudes.

Each returns a proposal ``(key, position) -> (proposal, log_hastings)`` for
:mod:`wideangle.infer.metropolis`. Rows (or entries) that are exactly zero are padding of a
model with room for more components; they stay zero.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import log_ndtr

from wideangle.infer.metropolis import Proposal
from wideangle.sphere import vmf
from wideangle.types import Array, Key, Scalar


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


def jointly(**proposals: Proposal) -> Proposal:
    """Propose entries of a dict, by the ``proposals`` of their names, to be accepted together."""

    def propose(key: Key, position: dict[str, Any]) -> tuple[dict[str, Any], Scalar]:
        keys = jax.random.split(key, len(proposals))
        moved, terms = {}, []
        for subkey, (name, proposal) in zip(keys, proposals.items(), strict=True):
            moved[name], log_hastings = proposal(subkey, position[name])
            terms.append(log_hastings)
        return moved, sum(terms)

    return propose


_log_mass = log_ndtr
"""Log of the mass that the normal walk leaves on the positive side."""


def _truncated_normal(key: Key, mean: Array, sigma: Scalar) -> Array:
    """N(mean, sigma^2) given a positive value, for mean >= 0, by redrawing.

    At least half of the mass is positive, so a round fails with probability at most 1/2. Unlike
    the inverse of the distribution function this is as good in the tails as the normal draws
    themselves, in float32 too, and is never rounded onto zero.
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
