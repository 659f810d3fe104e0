"""State of a chain, its problem, and the probability of counts in their order."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.special import gammaln

from wideangle.types import Array, Scalar


class Chain(NamedTuple):
    """State of a chain; K is the number of clusters, or the room for them."""

    directions: Array
    concentrations: Array
    log_weights: Array
    alpha: Scalar
    assignments: Array
    """Cluster of every row, in the blocks of the rows."""
    counts: Array
    """Weight of the rows of each cluster."""
    log_lik: Scalar
    """Log density of the rows, given weights, centres and concentrations before the last pass."""
    overflow: Array
    """Whether the room was too small in this sweep or an earlier one."""


class Problem(NamedTuple):
    """Rows, and parameters of the prior."""

    rows: Array
    """(B, n, p), single precision, of length one; rows of weight zero pad the last block."""
    weights: Array
    """(B, n)."""
    strength: Scalar
    cosine: Scalar
    prior_rows: Scalar
    log_constant: Scalar
    """Log of the integral of the prior of a concentration."""
    table: tuple[Array, Array]
    """Logarithms of concentrations and their distribution function under the prior."""
    alpha_mean: Scalar
    """Parameter of the prior of alpha."""


class Design(NamedTuple):
    """Static settings of the compiled program."""

    kind: str
    infinite: bool
    learn_alpha: bool


def last_used(counts: Array) -> Array:
    """Number of slots up to the last one that has rows."""
    return jnp.max(jnp.where(counts > 0, jnp.arange(len(counts)), -1)) + 1


def ends_with_rows(counts: Array, n_places: Array) -> Array:
    """Whether the last of this many slots has rows, as it always has in an infinite mixture.

    A move that leaves it empty shortens the order, and nothing could undo that.
    """
    return counts[n_places - 1] > 0


def log_order(counts: Array, alpha: Scalar, live: Array) -> Scalar:
    """Log probability of the counts in their order with the sticks integrated out.

    Terms that no permutation of the counts changes are left out.
    """
    from_here = jnp.cumsum(counts[::-1])[::-1]
    terms = gammaln(alpha + from_here - counts) - gammaln(1.0 + alpha + from_here)
    return jnp.sum(jnp.where(live, terms, 0.0))
