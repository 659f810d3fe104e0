r"""The infinite latent feature model: each row is a sum of a few features, plus noise.

.. math:: x_n = \sum_k z_{nk} w_k + N(0, \sigma^2 I), \qquad w_k = r_k \hat w_k,

with on/off assignments :math:`z_{nk} \sim \mathrm{Bernoulli}(\mu_k)` and weights :math:`\mu_k` of
an Indian buffet or its power-law extension. Only the features down to the last active one are
held; arrays have room for more, filled with zeros, so that their shapes do not change.

Paper: section 4. Differs from the paper: see ``docs/paper-map.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from wideangle.priors.stick_breaking import Buffet
from wideangle.types import Array, Components, Scalar


class Hyper(NamedTuple):
    """Numbers above the features; each may be fixed or learned."""

    buffet: Buffet
    noise: Scalar
    """:math:`\\sigma^2`, the variance of the noise."""
    concentration: Scalar
    """:math:`\\kappa` of the mutual-angular prior; 0 elsewhere."""
    rate: Scalar
    """Rate of the Gamma law of lengths, or (Gaussian features) the precision of an entry."""


@partial(jax.tree_util.register_dataclass, data_fields=["counts", "stored"], meta_fields=["n_rows"])
@dataclass(frozen=True)
class Elsewhere:
    """Assignments that are kept elsewhere, on disk or by the caller: what a sweep needs of them."""

    counts: Array
    """(K,) rows that use each feature."""
    stored: Array
    """(K,) which of the stored columns each feature has; -1 is none, and nothing but zeros."""
    n_rows: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self.n_rows, self.counts.shape[0]

    def reordered(self, order: Array, live: Array) -> Elsewhere:
        """The columns in another order; those that are not live are emptied."""
        counts = jnp.where(live, self.counts[order], 0)
        return Elsewhere(counts, jnp.where(live, self.stored[order], -1), self.n_rows)

    def resized(self, room: int) -> Elsewhere:
        """With more columns of zeros, or fewer."""
        extra = max(room - len(self.counts), 0)
        counts = jnp.pad(self.counts, (0, extra))[:room]
        stored = jnp.pad(self.stored, (0, extra), constant_values=-1)[:room]
        return Elsewhere(counts, stored, self.n_rows)


class Features(NamedTuple):
    """State of one chain. Rows from ``n_live`` on are padding: zero weight, zero vector, unused."""

    weights: Array
    """(K,) :math:`\\mu`, in falling order."""
    components: Components
    """Directions (K, D) and lengths (K,)."""
    assignments: Array | Elsewhere
    """(N, K) of 0 and 1, uint8."""
    n_live: Array
    """Number of features held."""
    hyper: Hyper

    @property
    def room(self) -> int:
        """Number of features the arrays can hold."""
        return self.weights.shape[0]

    @property
    def live(self) -> Array:
        """(K,) which rows are not padding."""
        return jnp.arange(self.room) < self.n_live


class FeatureStats(NamedTuple):
    """All that the likelihood needs of rows and assignments, however many rows there are."""

    gram: Array
    """(K, K) :math:`Z^\\top Z`; its diagonal counts the rows that use each feature."""
    cross: Array
    """(K, D) :math:`Z^\\top X`."""
    energy: Scalar
    """:math:`\\sum x^2`."""
    count: Scalar
    """Number of entries, N D."""

    @property
    def counts(self) -> Array:
        """Rows that use each feature."""
        return jnp.diagonal(self.gram)


def residual_energy(vectors: Array, stats: FeatureStats) -> Scalar:
    r"""Sum of squares :math:`\|X - ZW\|^2`, without touching the rows."""
    explained = 2 * jnp.sum(vectors * stats.cross) - jnp.sum(vectors * (stats.gram @ vectors))
    return jnp.maximum(stats.energy - explained, 0.0)


def log_lik(vectors: Array, stats: FeatureStats, noise: Scalar) -> Scalar:
    """Log density of the rows given assignments and features."""
    normal = stats.count * jnp.log(2 * jnp.pi * noise)
    return -0.5 * (residual_energy(vectors, stats) / noise + normal)


def counts_of(features: Features) -> Array:
    """Rows that use each feature, (K,)."""
    if isinstance(features.assignments, Elsewhere):
        return features.assignments.counts
    return jnp.sum(features.assignments, axis=0, dtype=jnp.int32)


def set_aside(features: Features) -> Features:
    """Without the assignments themselves: columns change places in a list of numbers."""
    index = jnp.arange(features.room)
    aside = Elsewhere(counts_of(features), index, features.assignments.shape[0])
    return features._replace(assignments=aside)


def taken_up(features: Features, used: Array) -> Features:
    """With the assignments again that :func:`set_aside` left out, columns in their new places."""
    assert isinstance(features.assignments, Elsewhere)
    stored = features.assignments.stored
    return features._replace(assignments=jnp.where(stored >= 0, used[:, stored], 0))


def smallest_active(weights: Array, active: Array) -> Scalar:
    r"""Weight of the last active feature, :math:`\mu^*`; 1 where nothing is active."""
    return jnp.min(jnp.where(active, weights, 1.0))


def level_bound(weights: Array, active: Array, n_rows: int) -> Scalar:
    r"""Bound of the slice level, :math:`\min(\mu^*, 1/N)`.

    Any bound that is a function of :math:`\mu^*` is exact as long as the density of the level,
    one over the bound, is paid for. With :math:`\mu^*` itself a model whose features are all common
    could hardly gain a rare one: a level above :math:`1/N` leaves no inactive feature to use.
    """
    return jnp.minimum(smallest_active(weights, active), 1.0 / n_rows)


def reorder(features: Features, order: Array, n_live: Array) -> Features:
    """Features in another order; those from ``n_live`` on are emptied."""
    live = jnp.arange(features.room) < n_live
    directions, lengths = features.components
    used = features.assignments
    if isinstance(used, Elsewhere):
        used = used.reordered(order, live)
    else:
        used = jnp.where(live, used[:, order], 0)
    return features._replace(
        weights=jnp.where(live, features.weights[order], 0.0),
        components=Components(
            jnp.where(live[:, None], directions[order], 0.0), jnp.where(live, lengths[order], 0.0)
        ),
        assignments=used,
        n_live=jnp.asarray(n_live, jnp.int32),
    )


def with_room(features: Features, room: int) -> Features:
    """The same features in arrays with more room, or with less where it is empty."""
    if room == features.room:
        return features

    def resized(array: Array, axis: int) -> Array:
        widths = [(0, 0)] * array.ndim
        widths[axis] = (0, max(room - features.room, 0))
        return jax.lax.slice_in_dim(jnp.pad(array, widths), 0, room, axis=axis)

    used = features.assignments
    return features._replace(
        weights=resized(features.weights, 0),
        components=Components(*(resized(part, 0) for part in features.components)),
        assignments=used.resized(room) if isinstance(used, Elsewhere) else resized(used, 1),
    )
