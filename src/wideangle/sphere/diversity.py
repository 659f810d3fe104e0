r"""How different a set of components is: angles, effective directions, the regulariser Omega."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from wideangle.sphere.geometry import normalise, pairwise_angles
from wideangle.types import Array


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
    gram = jnp.einsum("...ip,...jp->...ij", units, units, precision=jax.lax.Precision.HIGHEST)
    weights = jnp.clip(jnp.linalg.eigvalsh(gram), 0.0) / units.shape[-2]
    logs = jnp.log(jnp.where(weights > 0, weights, 1.0))
    return jnp.exp(-jnp.sum(weights * logs, axis=-1))


def angular_spread(vectors: Array, gamma: float | Array = 1.0) -> Array:
    r"""Mutual angular regulariser :math:`\Omega`: mean angle minus gamma times variance.

    .. math:: \Omega(A) = \bar\theta - \gamma\,\overline{(\theta - \bar\theta)^2}, \qquad
              \theta_{ij} = \arccos\frac{|a_i\cdot a_j|}{|a_i||a_j|} \in [0, \pi/2]

    over ordered pairs. The gradient is finite everywhere: zero where two vectors are parallel, and
    at right angles (a kink, the top) that of the acute side.

    Paper: Eq. (12). Mind the difference to the mutual-angular priors: they reward *opposed*
    vectors, for which Omega is at its minimum. With one component Omega is 0.
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
