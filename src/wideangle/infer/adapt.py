r"""Tuning of step sizes by dual averaging.

After t steps with acceptance :math:`\alpha_t` and target :math:`\delta`,

.. math::

   \bar h_t &= \Big(1-\frac1{t+t_0}\Big)\bar h_{t-1} + \frac{\delta-\alpha_t}{t+t_0}, \qquad
   \log\epsilon_{t+1} = m - \frac{\sqrt t}{\gamma}\,\bar h_t, \\
   \log\bar\epsilon_{t} &= t^{-k}\log\epsilon_{t+1} + (1-t^{-k})\log\bar\epsilon_{t-1}

(Nesterov, 2009; Hoffman and Gelman, 2014). The step wanders while it is tuned; its average is
what is used afterwards.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from wideangle.types import Array, Scalar

SHRINKAGE = 0.05
"""How strongly the step is pulled to its centre, the letter gamma above."""
OFFSET = 10.0
"""Damps the first steps, the letter t_0 above."""
DECAY = 0.75
"""How fast old steps are forgotten by the average, the letter k above."""
HEADROOM = 10.0
"""The centre is this multiple of the first step: too long a step is cheaper to try."""
RANGE = 20.0
"""Largest change of a log step. A kernel that never (or always) accepts would send it to
infinity, from where rounding does not come back."""


class DualAveraging(NamedTuple):
    """State of the tuning of one step."""

    log_step: Scalar
    log_average: Scalar
    error: Scalar
    centre: Scalar
    turns: Array


def start(step: Scalar | float) -> DualAveraging:
    """Begin from a first guess of the step."""
    step = jnp.asarray(step, jnp.result_type(float))
    return DualAveraging(
        jnp.log(step),
        jnp.log(step),
        jnp.zeros_like(step),
        jnp.log(HEADROOM * step),
        jnp.zeros_like(step, jnp.int32),
    )


def learn(state: DualAveraging, acceptance: Array, target: float) -> DualAveraging:
    """Take the acceptance probability of one step into account; of several chains, their mean."""
    turns = state.turns + 1
    time = turns.astype(state.error.dtype)
    # An acceptance that is not a number says that the step failed.
    acceptance = jnp.mean(jnp.where(jnp.isnan(acceptance), 0.0, acceptance))
    weight = 1.0 / (time + OFFSET)
    error = (1.0 - weight) * state.error + weight * (target - acceptance)
    wanted = state.centre - jnp.sqrt(time) / SHRINKAGE * error
    log_step = jnp.clip(wanted, state.centre - RANGE, state.centre + RANGE)
    forget = time**-DECAY
    log_average = forget * log_step + (1.0 - forget) * state.log_average
    return DualAveraging(log_step, log_average, error, state.centre, turns)


def current(state: DualAveraging, tuning: Array | bool) -> Scalar:
    """The step to use now: the one on trial while tuning, the average afterwards."""
    return jnp.exp(jnp.where(tuning, state.log_step, state.log_average))
