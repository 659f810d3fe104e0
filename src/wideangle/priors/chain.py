r"""The chain of directions behind the mutual-angular prior: each given the sum of those before it.

With :math:`S_{k-1} = \sum_{j<k} a_j` the log density of type I, against uniform directions, is

.. math:: \sum_{k>1} \bigl(\kappa p_k - G_D(\kappa)\bigr), \qquad
          p_k = -\frac{S_{k-1}\cdot a_k}{|S_{k-1}|},

with :math:`p_k` the *pull* on direction k and G the log normaliser; the first direction is uniform.
It depends on the directions through the sums :math:`S_{k-1}\cdot a_k` and :math:`|S_{k-1}|^2` only,
which are computed here from the rows (:func:`prefix_products`), or from their cosines where these
are known anyway (:func:`sums_before`).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from wideangle.sphere.bessel import log_mean_exp
from wideangle.sphere.geometry import normalise
from wideangle.types import Array, Scalar

# Below this squared length a resultant of unit vectors is rounding, and has no direction.
VANISHING = 1e-12


def direction_of(resultant: Array) -> Array:
    """Direction of a resultant; zero where it has none."""
    known = jnp.sum(resultant**2, axis=-1, keepdims=True) > VANISHING
    return jnp.where(known, normalise(resultant), 0.0)


def pulls(cross: Array, square: Array, live: Array) -> Array:
    """For every live row k the pull on it, from :math:`S_{k-1} a_k` and :math:`|S_{k-1}|^2`."""
    known = live & (square > VANISHING)
    return jnp.where(known, -cross / jnp.sqrt(jnp.where(known, square, 1.0)), 0.0)


def sums_before(cosines: Array, live: Array) -> tuple[Array, Array]:
    r"""For every row k :math:`S_{k-1}\cdot a_k` and :math:`|S_{k-1}|^2`, from all cosines."""
    cross = jnp.sum(jnp.tril(cosines, -1), axis=1)
    square = jnp.cumsum(jnp.where(live, 2 * cross + 1, 0.0))
    return cross, jnp.concatenate([jnp.zeros(1, square.dtype), square[:-1]])


def pull_in_order(cosines: Array, weights: Array) -> Scalar:
    """The sum of all pulls on rows put in decreasing order of their weights.

    Rows of weight zero count for nothing. Nothing is sorted or moved: who comes before whom is a
    (K, K) comparison, and both sums over those before are masked sums.
    """
    index = jnp.arange(weights.shape[0])
    mine, other = weights[:, None], weights[None, :]
    first = (other > mine) | ((other == mine) & (index[None, :] < index[:, None]))
    first = first & (other > 0)
    cross = jnp.sum(jnp.where(first, cosines, 0.0), axis=1)
    square = jnp.sum(jnp.where(first, 2 * cross[None, :] + 1, 0.0), axis=1)
    return jnp.sum(pulls(cross, square, weights > 0))


def log_density(directions: Array, live: Array, counted: Array, concentration: Scalar) -> Scalar:
    """Log density of the ``counted`` rows, each given all live ones before it.

    The first row has no mean direction and counts for nothing.
    """
    pull = pulls(*sums_before(directions @ directions.T, live), live)
    terms = concentration * pull - log_mean_exp(concentration, directions.shape[1])
    return jnp.sum(jnp.where(counted & (jnp.arange(len(directions)) > 0), terms, 0.0))


def prefix_products(directions: Array) -> tuple[Array, Array, Array]:
    r"""For every row k :math:`|S_{k-1}|^2`, :math:`S_{k-1}\cdot a_k`, and whether the row is live.

    All that a density needs of the rows, in one pass over them. On a CPU a loop that keeps the
    running sum in cache is five times as fast as a cumulative sum; on a GPU the parallel
    cumulative sum wins.
    """
    return lax.platform_dependent(
        directions, cpu=_prefix_products_by_loop, default=_prefix_products_by_sum
    )


def _prefix_products_by_loop(directions: Array) -> tuple[Array, Array, Array]:
    def add(resultant: Array, row: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        square = jnp.sum(resultant * resultant, axis=-1)
        cross = jnp.sum(resultant * row, axis=-1)
        return resultant + row, (square, cross, jnp.any(row != 0, axis=-1))

    rows = jnp.moveaxis(directions, -2, 0)
    _, products = lax.scan(add, jnp.zeros_like(rows[0]), rows)
    return jax.tree.map(lambda p: jnp.moveaxis(p, 0, -1), products)


def _prefix_products_by_sum(directions: Array) -> tuple[Array, Array, Array]:
    before = jnp.cumsum(directions, axis=-2) - directions
    # The first row has no predecessors; subtracting it from itself leaves rounding otherwise.
    before = before.at[..., 0, :].set(0.0)
    square = jnp.sum(before * before, axis=-1)
    return square, jnp.sum(before * directions, axis=-1), jnp.any(directions != 0, axis=-1)
