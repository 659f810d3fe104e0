r"""Hamiltonian Monte Carlo along great circles, for products of spheres and real spaces.

One leapfrog step of size :math:`\epsilon`, with a unit vector x, a velocity u in its tangent
space and a scale s (:math:`s = 1/\sqrt{p-1}` unless one is given):

.. math::

   u &\leftarrow (I - xx^\top)\big(u + \tfrac{\epsilon s}{2} \nabla\log\pi(x)\big) \\
   (x, u) &\leftarrow \big(x\cos a + \tfrac{u}{|u|}\sin a,\;
                        u\cos a - |u|\,x\sin a\big), \qquad a = \epsilon s |u| \\
   u &\leftarrow (I - xx^\top)\big(u + \tfrac{\epsilon s}{2} \nabla\log\pi(x)\big)

started from :math:`u = (I - xx^\top) N(0, I)` and accepted with
:math:`\exp(\Delta\log\pi - \Delta|u|^2/2)`. The velocity in space is :math:`su`; its length is
about 1 for every dimension, so :math:`\epsilon` is an angle in radians.

Paper: Algorithm 1. Differs from the paper: line 2 keeps the normal part instead of removing it,
lines 7 and 11 project at the old point, line 9 uses the point that line 8 has already moved,
and the step and the length are fixed, which makes the trajectory resonate with the target.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.infer.kernel import Info, Kernel, LogDensity, accept, choose, make_info
from wideangle.sphere.geometry import geodesic, tangent
from wideangle.types import Array, Key, Scalar

DIVERGENCE = 1000.0
"""Energy error above which a trajectory is called divergent."""


class GeodesicState(NamedTuple):
    """Current position, with the log density and its gradient there.

    If these are None, a step computes them in the loop of its trajectory, so that the gradient is
    compiled once and not twice.
    """

    position: Any
    log_density: Any
    gradient: Any


class Chart(NamedTuple):
    """How one leaf moves: along great circles or straight, and how fast."""

    on_sphere: bool
    scale: Array
    """Broadcasts against the leaf; zero for rows that are padding."""


def init(position: Any, logdensity: LogDensity) -> GeodesicState:
    """Evaluate the density and its gradient at the starting position."""
    return GeodesicState(position, *jax.value_and_grad(logdensity)(position))


def geodesic_hmc(
    step: Scalar | float,
    n_steps: int | Array = 8,
    *,
    sphere: Any = True,
    scale: Any = 1.0,
    jitter: float = 0.9,
) -> Kernel:
    r"""Hamiltonian flow on a product of spheres, and optionally of real lines.

    Parameters
    ----------
    step
        Size of a leapfrog step: an angle in radians for unit vectors, a multiple of ``scale``
        for real numbers.
    n_steps
        Gradients (leapfrog steps) of one trajectory.
    sphere
        A bool, or a prefix of the position with bools: which leaves have unit vectors as their
        last axis. The others are real.
    scale
        A number, or a prefix of the position with arrays: relative speed of each row of unit
        vectors (shape without the last axis), or of each real entry. It must not depend on
        the position.
    jitter
        Each trajectory uses the step :math:`\epsilon(1 + \text{jitter}\,U)`, U uniform on (-1, 1),
        so that its length does not resonate with the target. Use 0 if ``n_steps`` already varies;
        chains that run in parallel should share ``n_steps``, or all wait for the longest.

    Notes
    -----
    Rows of unit vectors that are exactly zero are padding and stay zero. A trajectory whose
    energy error is above 1000 or not finite is rejected and flagged.
    """
    if not 0 <= jitter < 1:
        raise ValueError(f"jitter must be at least 0 and less than 1, got {jitter}")

    def take_step(
        key: Key, state: GeodesicState, logdensity: LogDensity
    ) -> tuple[GeodesicState, Info]:
        key_velocity, key_step, key_accept = jax.random.split(key, 3)
        charts = make_charts(state.position, sphere, scale)
        size = step * jax.random.uniform(key_step, minval=1 - jitter, maxval=1 + jitter)
        velocity = draw_velocity(key_velocity, state.position, charts)
        end, end_velocity, began = trajectory(state, velocity, size, n_steps, charts, logdensity)
        log_ratio = end.log_density - began  # first, while both are of similar size
        log_ratio -= kinetic_energy(end_velocity) - kinetic_energy(velocity)
        divergent = ~(log_ratio > -DIVERGENCE)  # true for NaN as well
        accepted, probability = accept(key_accept, log_ratio)
        accepted &= ~divergent
        if state.gradient is None:
            end = end._replace(log_density=None, gradient=None)
        return choose(accepted, end, state), make_info(probability, divergent, n_steps)

    return Kernel(init, take_step, lambda position: GeodesicState(position, None, None))


def make_charts(position: Any, sphere: Any, scale: Any) -> list[Chart]:
    """One chart per leaf of the position, from the prefixes that describe them."""
    leaves = jax.tree.leaves(position)
    kinds = jax.tree.leaves(jax.tree.broadcast(sphere, position))
    scales = jax.tree.leaves(jax.tree.broadcast(scale, position))
    return [_chart(*parts) for parts in zip(leaves, kinds, scales, strict=True)]


def draw_velocity(key: Key, position: Any, charts: list[Chart]) -> Any:
    """Standard normal velocity in the tangent space of every leaf."""
    leaves, structure = jax.tree.flatten(position)
    sizes = np.cumsum([leaf.size for leaf in leaves])
    # One draw for all leaves: each call of the generator adds much code.
    normal = jax.random.normal(key, (sizes[-1],), jnp.result_type(*leaves))
    parts = jnp.split(normal, sizes[:-1])
    drawn = [
        _project(chart, point, part.reshape(point.shape).astype(point.dtype))
        for part, point, chart in zip(parts, leaves, charts, strict=True)
    ]
    return jax.tree.unflatten(structure, drawn)


def kinetic_energy(velocity: Any) -> Scalar:
    """Half the squared length of the velocity, over all leaves."""
    return sum(0.5 * jnp.sum(leaf**2) for leaf in jax.tree.leaves(velocity))


def trajectory(
    state: GeodesicState,
    velocity: Any,
    size: Scalar,
    n_steps: int | Array,
    charts: list[Chart],
    logdensity: LogDensity,
) -> tuple[GeodesicState, Any, Scalar]:
    """``n_steps`` leapfrog steps, one gradient each; also the log density at the start.

    The first gradient is cached in the state, or computed by a step of length 0.
    """
    known = state.gradient is not None
    began = state.log_density
    if not known:
        nothing = jax.tree.map(jnp.zeros_like, state.position)
        value = jax.eval_shape(logdensity, state.position)
        began = jnp.zeros(value.shape, value.dtype)
        state = GeodesicState(state.position, began, nothing)

    def body(turn: Array, carry: Any) -> Any:
        state, velocity, first = carry
        step = size if known else jnp.where(turn == 0, 0.0, size).astype(jnp.result_type(size))
        moved, fast = leapfrog(state, velocity, step, charts, logdensity)
        return moved, fast, first if known else jnp.where(turn == 0, moved.log_density, first)

    return jax.lax.fori_loop(0, n_steps + (not known), body, (state, velocity, began))


def leapfrog(
    state: GeodesicState, velocity: Any, size: Scalar, charts: list[Chart], logdensity: LogDensity
) -> tuple[GeodesicState, Any]:
    """Half a kick, a drift along the geodesics, half a kick at the new point."""
    velocity = kick(state.position, velocity, state.gradient, size, charts)
    position, velocity = drift(state.position, velocity, size, charts)
    state = init(position, logdensity)
    return state, kick(position, velocity, state.gradient, size, charts)


def kick(position: Any, velocity: Any, gradient: Any, size: Scalar, charts: list[Chart]) -> Any:
    """Half a step of the force, projected onto the tangent space at ``position``."""

    def one(chart: Chart, point: Array, speed: Array, force: Array) -> Array:
        # A density may have no gradient at padded rows; 0 * NaN would be NaN.
        force = jnp.where(chart.scale > 0, chart.scale * force, 0.0)
        return _project(chart, point, speed + (0.5 * size * force).astype(point.dtype))

    return _each_leaf(one, charts, position, velocity, gradient)


def drift(position: Any, velocity: Any, size: Scalar, charts: list[Chart]) -> tuple[Any, Any]:
    """Free motion for one step: great circles on spheres, straight lines elsewhere."""

    def one(chart: Chart, point: Array, speed: Array) -> tuple[Array, Array]:
        time = (size * chart.scale).astype(point.dtype)
        if chart.on_sphere:
            return geodesic(point, speed, time)
        return point + time * speed, speed

    moved = _each_leaf(one, charts, position, velocity)
    return jax.tree.transpose(jax.tree.structure(position), jax.tree.structure((0, 0)), moved)


def _chart(point: Array, on_sphere: bool, scale: Any) -> Chart:
    scale = jnp.asarray(scale, point.dtype)
    if not on_sphere:
        return Chart(False, scale)
    live = jnp.any(point != 0, axis=-1, keepdims=True)
    speed = scale[..., None] / math.sqrt(max(point.shape[-1] - 1, 1))
    return Chart(True, jnp.where(live, speed, 0.0))


def _project(chart: Chart, point: Array, velocity: Array) -> Array:
    if not chart.on_sphere:
        return velocity
    # Padded rows have scale 0 and no tangent space: they must carry no kinetic energy.
    return jnp.where(chart.scale > 0, tangent(point, velocity), 0.0)


def _each_leaf(function: Any, charts: list[Chart], *trees: Any) -> Any:
    leaves, structure = zip(*(jax.tree.flatten(tree) for tree in trees), strict=True)
    results = [function(*parts) for parts in zip(charts, *leaves, strict=True)]
    return jax.tree.unflatten(structure[0], results)
