"""Kernels, and how they become a sweep over the unknowns of a model.

A kernel is a pair of functions for one density. An update moves some fields of the latents and
leaves the others. :func:`within` turns the first into the second; :func:`sweep` runs updates one
after the other. :class:`DualAveraging` finds the step size of a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from wideangle.types import Array, Key, Latents, Scalar

SHRINKAGE = 0.05
"""How strongly the step is pulled to its centre, the letter gamma of :class:`DualAveraging`."""
OFFSET = 10.0
"""Damps the first steps, its letter t_0."""
DECAY = 0.75
"""How fast old steps are forgotten by the average, its letter k."""
HEADROOM = 10.0
"""The centre is this multiple of the first step: trying too long a step is cheaper."""
RANGE = 20.0
"""Largest change of a log step. A kernel that never (or always) accepts would send it to infinity,
from which it could not return."""

LogDensity: TypeAlias = Callable[[Any], Scalar]
"""Position to log density, up to a constant."""


class Info(NamedTuple):
    """Statistics of one step of a kernel."""

    acceptance: Scalar
    """Mean probability (or share) of accepted proposals, in [0, 1]."""
    divergent: Array
    """Number of divergent trajectories (an integer)."""
    evaluations: Array
    """Number of density (or density-and-gradient) evaluations (an integer)."""


class Kernel(NamedTuple):
    """A transition that leaves any density it is given invariant.

    The density is an argument of both functions, so values cached in the state always belong to the
    current density.
    """

    init: Callable[[Any, LogDensity], Any]
    """``(position, logdensity) -> state``; every state has a field ``position``."""
    step: Callable[[Key, Any, LogDensity], tuple[Any, Info]]
    """``(key, state, logdensity) -> (state, info)``."""
    begin: Callable[[Any], Any] | None = None
    """``position -> state`` whose density the first step computes, if the kernel can."""


Update: TypeAlias = Callable[[Key, Latents], tuple[Latents, Any]]
"""``(key, latents) -> (latents, info)``, where info is an Info or a dict of them."""


class Evaluated(NamedTuple):
    """Current position, and the log density there: the state of a kernel without gradients."""

    position: Any
    log_density: Scalar


def evaluate(position: Any, logdensity: LogDensity) -> Evaluated:
    """Evaluate the density at the starting position."""
    return Evaluated(position, logdensity(position))


def make_info(acceptance: Any, divergent: Any = 0, evaluations: Any = 0) -> Info:
    """An :class:`Info` whose entries always have the same dtypes, so that it can be scanned."""
    return Info(
        jnp.asarray(acceptance, jnp.result_type(float)),
        jnp.asarray(divergent, jnp.int32),
        jnp.asarray(evaluations, jnp.int32),
    )


def accept(key: Key, log_ratio: Scalar) -> tuple[Array, Scalar]:
    r"""Accept with probability :math:`\min(1, e^{r})`; returns the decision and the probability.

    A NaN ratio counts as :math:`-\infty`: reject, never spread the NaN.
    """
    log_ratio = jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)
    probability = jnp.exp(jnp.minimum(log_ratio, 0.0))
    return jax.random.uniform(key, dtype=probability.dtype) < probability, probability


def choose(accepted: Array, new: Any, old: Any) -> Any:
    """``new`` where accepted, else ``old``, for every leaf of a state."""
    return jax.tree.map(lambda left, right: jnp.where(accepted, left, right), new, old)


def within(kernel: Kernel, block: str | tuple[str, ...], log_joint: LogDensity) -> Update:
    """Move one block of the latents with a kernel, the others held fixed.

    Parameters
    ----------
    kernel
        Any kernel.
    block
        The name of a field, or a tuple of names that move together. A dot goes into nested
        fields: ``"components.directions"``. The kernel sees the field itself, or a dict
        ``{name: field}`` when several are named.
    log_joint
        Log joint density of all latents.

    Notes
    -----
    The state of the kernel is computed again, because the other blocks have moved since the last
    visit and a cached density would be stale. That costs one evaluation, which is counted.
    """

    def update(key: Key, latents: Latents) -> tuple[Latents, Info]:
        def conditional(value: Any) -> Scalar:
            return log_joint(_put(latents, block, value))

        position = _get(latents, block)
        state = kernel.begin(position) if kernel.begin else kernel.init(position, conditional)
        state, info = kernel.step(key, state, conditional)
        info = info._replace(evaluations=info.evaluations + 1)
        return _put(latents, block, state.position), info

    return update


def exactly(draw: Callable[[Key, Latents], Latents]) -> Update:
    """Lift an exact conditional draw ``(key, latents) -> latents`` to an update."""

    def update(key: Key, latents: Latents) -> tuple[Latents, Info]:
        return draw(key, latents), make_info(1.0)

    return update


def sweep(**updates: Update) -> Update:
    """Apply updates in the order given; the info is a dict under the same names."""

    def update(key: Key, latents: Latents) -> tuple[Latents, dict[str, Any]]:
        infos = {}
        keys = jax.random.split(key, len(updates))
        for subkey, (name, move) in zip(keys, updates.items(), strict=True):
            latents, infos[name] = move(subkey, latents)
        return latents, infos

    return update


def _get(latents: Latents, block: str | tuple[str, ...]) -> Any:
    if not isinstance(block, str):
        return {name: _get(latents, name) for name in block}
    for name in block.split("."):
        latents = latents[name] if isinstance(latents, Mapping) else getattr(latents, name)
    return latents


def _put(latents: Latents, block: str | tuple[str, ...], value: Any) -> Latents:
    if not isinstance(block, str):
        for name in block:
            latents = _put(latents, name, value[name])
        return latents
    name, _, rest = block.partition(".")
    if rest:
        value = _put(_get(latents, name), rest, value)
    if isinstance(latents, Mapping):
        if name not in latents:  # a dict would otherwise gain a field that no density reads
            raise KeyError(name)
        return {**latents, name: value}
    return latents._replace(**{name: value})


class DualAveraging(NamedTuple):
    r"""State of the tuning of one step size.

    After t steps with acceptance :math:`\alpha_t` and target :math:`\delta`,

    .. math::

       \bar h_t &= \Big(1-\frac1{t+t_0}\Big)\bar h_{t-1} + \frac{\delta-\alpha_t}{t+t_0}, \qquad
       \log\epsilon_{t+1} = m - \frac{\sqrt t}{\gamma}\,\bar h_t, \\
       \log\bar\epsilon_{t} &= t^{-k}\log\epsilon_{t+1} + (1-t^{-k})\log\bar\epsilon_{t-1}

    (Nesterov, 2009; Hoffman and Gelman, 2014). The step varies during tuning; its average is used
    afterwards.
    """

    log_step: Scalar
    log_average: Scalar
    error: Scalar
    centre: Scalar
    turns: Array

    @classmethod
    def start(cls, step: Scalar | float) -> DualAveraging:
        """Begin from a first guess of the step."""
        step = jnp.asarray(step, jnp.result_type(float))
        return cls(
            jnp.log(step),
            jnp.log(step),
            jnp.zeros_like(step),
            jnp.log(HEADROOM * step),
            jnp.zeros_like(step, jnp.int32),
        )

    def learn(self, acceptance: Array, target: float) -> DualAveraging:
        """Update with the acceptance of one step, or the mean over several chains."""
        turns = self.turns + 1
        time = turns.astype(self.error.dtype)
        # A NaN acceptance means that the step failed.
        acceptance = jnp.mean(jnp.where(jnp.isnan(acceptance), 0.0, acceptance))
        weight = 1.0 / (time + OFFSET)
        error = (1.0 - weight) * self.error + weight * (target - acceptance)
        wanted = self.centre - jnp.sqrt(time) / SHRINKAGE * error
        log_step = jnp.clip(wanted, self.centre - RANGE, self.centre + RANGE)
        forget = time**-DECAY
        log_average = forget * log_step + (1.0 - forget) * self.log_average
        return DualAveraging(log_step, log_average, error, self.centre, turns)

    def current(self, tuning: Array | bool) -> Scalar:
        """The step to use now: the one on trial while tuning, the average afterwards."""
        return jnp.exp(jnp.where(tuning, self.log_step, self.log_average))
