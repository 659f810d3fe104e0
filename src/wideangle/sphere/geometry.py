r"""The unit sphere :math:`S^{p-1}`: projection, geodesics, angles, and how different vectors are.

Points and tangent vectors are the last axis of an array; every other axis is a batch.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from wideangle.types import Array


def safe_norm(vector: Array, keepdims: bool = False) -> Array:
    """Length of ``vector`` along the last axis, with gradient 0 (not NaN) at the origin."""
    square = jnp.sum(vector**2, axis=-1, keepdims=keepdims)
    live = square > 0
    # The guard is on the *input* of the root: a where() on its output still yields 0 * inf.
    return jnp.where(live, jnp.sqrt(jnp.where(live, square, 1.0)), 0.0)


def normalise(vector: Array) -> Array:
    """``vector / |vector|`` along the last axis; the zero vector stays zero, with gradient 0."""
    length = safe_norm(vector, keepdims=True)
    return jnp.where(length > 0, vector / jnp.where(length > 0, length, 1.0), 0.0)


def tangent(point: Array, vector: Array) -> Array:
    r"""Project ``vector`` onto the tangent space at ``point``: :math:`(I - x x^\top) v`."""
    return vector - jnp.sum(point * vector, axis=-1, keepdims=True) * point


def geodesic(point: Array, velocity: Array, time: Array | float = 1.0) -> tuple[Array, Array]:
    r"""Follow the great circle that leaves ``point`` with tangent ``velocity``.

    With :math:`a = |v|`, point and velocity turn *together*:

    .. math:: x_t = x\cos at + (v/a)\sin at, \qquad v_t = v\cos at - x\,a\sin at.

    Returns the point and the velocity after ``time``. The point is put back on the sphere so
    that rounding does not build up over a long trajectory.

    Differs from the paper: Algorithm 1, line 9 uses the point that line 8 already moved.
    """
    speed = safe_norm(velocity, keepdims=True)
    angle = speed * time
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    unit = jnp.where(speed > 0, velocity / jnp.where(speed > 0, speed, 1.0), 0.0)
    moved = point * cosine + unit * sine
    return normalise(moved), velocity * cosine - point * (speed * sine)


def angle_between(left: Array, right: Array) -> Array:
    r"""Angle in :math:`[0, \pi]` between unit vectors along the last axis.

    :math:`2\,\mathrm{atan2}(|x-y|, |x+y|)`: accurate where arccos is not. In float32 the
    arccos of a cosine is wrong by 2 % at 1e-3 rad and returns 0 at 1e-4.
    """
    return 2.0 * jnp.arctan2(safe_norm(left - right), safe_norm(left + right))


@jax.custom_jvp
@jax.jit
def pairwise_angles(directions: Array) -> Array:
    r"""Angles in :math:`[0, \pi]` between all pairs of unit rows, shape ``(..., K, K)``.

    ``directions`` has shape ``(..., K, p)``.

    Row by row, so memory stays at K p beyond the result. The gradient of one angle,
    :math:`\partial\theta_{ij}/\partial a_i = -(a_j - c\,a_i)/|a_j - c\,a_i|`, is a unit tangent
    vector for every cosine c: the singularity of arccos cancels. Where two rows are parallel or
    opposed that direction is undefined and the gradient is 0.
    """
    rows = jnp.moveaxis(directions, -2, 0)
    table = jax.lax.map(lambda row: angle_between(row[..., None, :], directions), rows)
    angles = jnp.moveaxis(table, 0, -2)
    # The diagonal is exactly 0 also for rows that are unit only up to rounding.
    return angles * (1.0 - jnp.eye(angles.shape[-1], dtype=angles.dtype))


@pairwise_angles.defjvp
def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (directions,), (change,) = primals, tangents
    angles = pairwise_angles(directions)
    sine, cosine = jnp.sin(angles), jnp.cos(angles)
    live = sine > 4.0 * jnp.finfo(angles.dtype).eps
    moved = _cross(change, directions)
    drift = jnp.sum(change * directions, axis=-1)
    # The cosine's own change, with the radial part of the perturbation taken out of both rows.
    change_of_cosine = moved + jnp.swapaxes(moved, -1, -2)
    change_of_cosine -= cosine * (drift[..., :, None] + drift[..., None, :])
    slope = jnp.where(live, -1.0 / jnp.where(live, sine, 1.0), 0.0)
    return angles, slope * change_of_cosine


def _cross(left: Array, right: Array) -> Array:
    """All inner products between two sets of rows, at full precision also on a GPU."""
    return jnp.einsum("...ip,...jp->...ij", left, right, precision=jax.lax.Precision.HIGHEST)


class Diversity(NamedTuple):
    """Summary of a set of components; angles are in radians."""

    mean_angle: Array
    """Mean angle over all pairs."""
    min_angle: Array
    """Smallest angle of any pair."""
    variance: Array
    """Variance of the angles over all pairs."""
    effective_directions: Array
    """See :func:`effective_directions`."""
    angular_spread: Array
    """The regulariser :func:`angular_spread` at ``gamma = 1``."""


def diversity(vectors: Array) -> Diversity:
    """Summarise K vectors (rows of ``(..., K, p)``; lengths do not matter).

    With one component there are no pairs: every angle is NaN and the spread is 0.
    """
    units = normalise(jnp.asarray(vectors))
    angles = pairwise_angles(units)
    mean, variance = _moments(angles)
    pairs = _off_diagonal(angles)
    return Diversity(
        mean_angle=mean,
        min_angle=jnp.min(jnp.where(pairs, angles, jnp.inf), axis=(-2, -1))
        if angles.shape[-1] > 1
        else jnp.full_like(mean, jnp.nan),
        variance=variance,
        effective_directions=effective_directions(units),
        angular_spread=angular_spread(units),
    )


def effective_directions(vectors: Array) -> Array:
    r"""Number of directions that ``vectors`` (..., K, p) really span, between 1 and min(K, p).

    The exponential of the entropy of the eigenvalues of :math:`\frac1K\sum_k a_k a_k^\top` for
    unit rows: K for orthogonal components, 1 when all lie on one line (:cite:`roy2007`).
    """
    units = normalise(jnp.asarray(vectors))
    gram = _cross(units, units)
    weights = jnp.clip(jnp.linalg.eigvalsh(gram), 0.0) / units.shape[-2]
    logs = jnp.log(jnp.where(weights > 0, weights, 1.0))
    return jnp.exp(-jnp.sum(weights * logs, axis=-1))


def angular_spread(vectors: Array, gamma: float | Array = 1.0) -> Array:
    r"""Mutual angular regulariser :math:`\Omega`: mean angle minus gamma times variance.

    .. math:: \Omega(A) = \bar\theta - \gamma\,\overline{(\theta - \bar\theta)^2}, \qquad
              \theta_{ij} = \arccos\frac{|a_i\cdot a_j|}{|a_i||a_j|} \in [0, \pi/2]

    over ordered pairs. The gradient is finite everywhere: zero where two vectors are parallel, and
    at right angles (a kink, the top) that of the acute side.

    Paper: Eq. (12). Omega is smallest for *opposed* vectors, which the mutual-angular priors
    favour. With one component Omega is 0.
    """
    angles = pairwise_angles(normalise(jnp.asarray(vectors)))
    acute = jnp.where(angles > 0.5 * jnp.pi, jnp.pi - angles, angles)
    mean, variance = _moments(acute)
    if angles.shape[-1] == 1:
        return jnp.zeros_like(mean)
    return mean - gamma * variance


def _off_diagonal(angles: Array) -> Array:
    return ~jnp.eye(angles.shape[-1], dtype=bool)


def _moments(angles: Array) -> tuple[Array, Array]:
    """Mean and variance over ordered pairs i != j (NaN for a single component)."""
    n_pairs = angles.shape[-1] * (angles.shape[-1] - 1)
    pairs = _off_diagonal(angles)
    if n_pairs == 0:
        nothing = jnp.full(angles.shape[:-2], jnp.nan, angles.dtype)
        return nothing, nothing
    mean = jnp.sum(jnp.where(pairs, angles, 0.0), axis=(-2, -1)) / n_pairs
    spread = jnp.where(pairs, angles - mean[..., None, None], 0.0)
    return mean, jnp.sum(spread**2, axis=(-2, -1)) / n_pairs
