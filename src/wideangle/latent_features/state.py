r"""The infinite latent feature model: each row is a sum of a few features, plus noise.

.. math:: x_n = \sum_k z_{nk} w_k + N(0, \sigma^2 I), \qquad w_k = r_k \hat w_k,

with on/off assignments :math:`z_{nk} \sim \mathrm{Bernoulli}(\mu_k)` and weights :math:`\mu_k` of
an Indian buffet or its power-law extension. This file has its data types: the design of a sampler,
the state of a chain, the statistics that the likelihood needs, and a kept draw.

Only the features down to the last active one are held; arrays have room for more, filled with
zeros, so that their shapes do not change.

Paper: section 4. Differs from the paper: see ``docs/paper-map.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import xlogy

from wideangle.priors.stick_breaking import Buffet
from wideangle.types import Array, Components, Scalar

LEARNABLE = ("mass", "noise", "concentration", "rate", "discount", "strength")
ROOMS = (48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
"""Sizes of the arrays: few, because each needs a compilation."""
WIDE = 1024
"""Size from which arrays grow for features that are in use, not for unused ones."""


N_PROBES, PROBE_STRIDE = 16, 7919
"""Number of entries at which chains are watched, and the step between their columns (a prime)."""
MOST_SPARE = 16
"""Slots kept free for features born in a sweep: births never exceed deaths by more."""


class RoomError(RuntimeError):
    """There are more features than the arrays can ever hold."""


class Gamma(NamedTuple):
    """Shape and rate of the Gamma prior of a positive hyperparameter."""

    shape: float
    rate: float


UNIT = Gamma(1.0, 1.0)


@dataclass(frozen=True)
class Design:
    """Settings of the sampler; hashable, so that compiled programs are reused.

    Parameters
    ----------
    features
        ``"polar"``: directions and Gamma lengths; ``"gaussian"``: Gaussian vectors.
    ordered
        Whether directions repel each other (the infinite mutual-angular prior, type I). The order
        of the features, by weight, is then part of the model; otherwise they are exchangeable.
    magnitude_shape
        Shape of the Gamma distribution of lengths.
    learned
        Names out of :data:`LEARNABLE`; the rest stays at its value.
    mass, noise, rate
        Priors of the learned numbers; that of ``noise`` is for the precision.
    hamiltonian
        Move directions and lengths together by Hamiltonian trajectories instead of one feature
        after the other, which suits a GPU.
    """

    features: str = "polar"
    ordered: bool = True
    magnitude_shape: float = 2.0
    learned: frozenset[str] = frozenset()
    mass: Gamma = UNIT
    noise: Gamma = UNIT
    rate: Gamma = UNIT
    hamiltonian: bool = False
    n_relocations: int = 16
    """Single features proposed another place in the order, per sweep, in addition to a move of all
    at once."""
    n_passes: int = 2
    """Times that features move in turn, per sweep: those of the same rows hold each other back."""
    n_births: int = 6
    """Births or deaths of features that explain a row, and others with it, per sweep."""
    n_cycles: int = 8
    """Small features that are moved separately, per sweep."""

    @property
    def n_spare(self) -> int:
        """Slots kept free for births, net of deaths."""
        return min(self.n_births, MOST_SPARE)

    def without_births(self) -> Design:
        """The same without the moves that look at all rows at once."""
        return replace(self, n_births=0, n_cycles=0)

    def __post_init__(self) -> None:
        if unknown := self.learned - set(LEARNABLE):
            raise ValueError(f"cannot learn {sorted(unknown)}; choose from {LEARNABLE}")


class Hyper(NamedTuple):
    """Hyperparameters; each may be fixed or learned."""

    buffet: Buffet
    noise_variance: Scalar
    """:math:`\\sigma^2`."""
    concentration: Scalar
    """:math:`\\kappa` of the mutual-angular prior; 0 elsewhere."""
    rate: Scalar
    """Rate of the Gamma distribution of lengths, or (Gaussian) the precision of an entry."""


@partial(
    jax.tree_util.register_dataclass, data_fields=["counts", "columns"], meta_fields=["n_rows"]
)
@dataclass(frozen=True)
class StoredAssignments:
    """What a sweep needs of assignments that are stored outside the state.

    Features are reordered several times in a sweep; their columns, which may be large or on disk,
    at most once.
    """

    counts: Array
    """(K,) rows that use each feature."""
    columns: Array
    """(K,) index of each feature's stored column; -1 means no column, that is all zeros."""
    n_rows: int

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self.n_rows, self.counts.shape[0]

    def reordered(self, order: Array, live: Array) -> StoredAssignments:
        """The columns in another order; those that are not live are emptied."""
        counts = jnp.where(live, self.counts[order], 0)
        return StoredAssignments(counts, jnp.where(live, self.columns[order], -1), self.n_rows)

    def resized(self, room: int) -> StoredAssignments:
        """With more columns of zeros, or fewer."""
        columns = _resized(self.columns, room, fill=-1)
        return StoredAssignments(_resized(self.counts, room), columns, self.n_rows)


class Features(NamedTuple):
    """State of one chain. Rows from ``n_live`` on are padding: zero weight, zero vector, unused."""

    weights: Array
    """(K,) :math:`\\mu`, in falling order."""
    components: Components
    """Directions (K, D) and lengths (K,)."""
    assignments: Array | StoredAssignments
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
    """Sufficient statistics of rows and assignments; their size does not grow with N."""

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


class Draw(NamedTuple):
    """One kept draw: live features only, on the host."""

    weights: np.ndarray
    """(K,) probability that a row uses each feature."""
    vectors: np.ndarray
    """(K, D)."""
    hyper: Hyper
    packed: np.ndarray
    """(N, ceil(K / 8)) uint8: assignments, eight to a byte."""
    worth: np.ndarray
    """(K,) loss in log-likelihood without each feature, minus its price."""

    @property
    def assignments(self) -> np.ndarray:
        """(N, K) uint8."""
        return np.unpackbits(self.packed, axis=1, count=len(self.weights))

    @property
    def noise_variance(self) -> float:
        """Variance of the noise."""
        return float(self.hyper.noise_variance)


def stats_of(rows: Any, assignments: Array) -> FeatureStats:
    """Statistics of rows that a compiled program can read."""
    energy = rows.energy()
    assignments = assignments.astype(energy.dtype)
    cross = rows.cross(assignments)
    count = jnp.asarray(float(energy.shape[0] * cross.shape[1]), energy.dtype)
    return FeatureStats(assignments.T @ assignments, cross, jnp.sum(energy), count)


def probes(n_rows: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the entries at which chains are watched, spread over the data."""
    index = np.arange(N_PROBES)
    return index * n_rows // N_PROBES, (index * PROBE_STRIDE) % dim


def residual_energy(vectors: Array, stats: FeatureStats) -> Scalar:
    r"""Sum of squares :math:`\|X - ZW\|^2`, without touching the rows."""
    explained = 2 * jnp.sum(vectors * stats.cross) - jnp.sum(vectors * (stats.gram @ vectors))
    return jnp.maximum(stats.energy - explained, 0.0)


def log_lik(vectors: Array, stats: FeatureStats, noise_variance: Scalar) -> Scalar:
    """Log density of the rows given assignments and features."""
    normal = stats.count * jnp.log(2 * jnp.pi * noise_variance)
    return -0.5 * (residual_energy(vectors, stats) / noise_variance + normal)


def counts_of(features: Features) -> Array:
    """Rows that use each feature, (K,)."""
    if isinstance(features.assignments, StoredAssignments):
        return features.assignments.counts
    return features.assignments.sum(axis=0, dtype=jnp.int32)


def detached(features: Features) -> Features:
    """The state without its assignments, which stay with the caller."""
    index = jnp.asarray(np.arange(features.room, dtype=np.int32))
    stored = StoredAssignments(counts_of(features), index, features.assignments.shape[0])
    return features._replace(assignments=stored)


def attached(features: Features, stored: Array) -> Features:
    """The state with its stored assignments, columns in their new places."""
    assert isinstance(features.assignments, StoredAssignments)
    columns = features.assignments.columns
    return features._replace(assignments=jnp.where(columns >= 0, stored[:, columns], 0))


def smallest_active(weights: Array, active: Array) -> Scalar:
    r"""Weight of the last active feature, :math:`\mu^*`; 1 where nothing is active."""
    return jnp.min(jnp.where(active, weights, 1.0))


def level_bound(weights: Array, active: Array, n_rows: int) -> Scalar:
    r"""Bound of the slice level, :math:`\min(\mu^*, 1/N)`.

    Any bound that is a function of :math:`\mu^*` is exact as long as the density of the level, one
    over the bound, is accounted for. With :math:`\mu^*` itself a model whose features are all
    common could hardly gain a rare one: a level above :math:`1/N` leaves no inactive feature to
    use.
    """
    return jnp.minimum(smallest_active(weights, active), 1.0 / n_rows)


def reorder(features: Features, order: Array, n_live: Array) -> Features:
    """Features in another order; those from ``n_live`` on are emptied."""
    live = jnp.arange(features.room) < n_live
    directions, lengths = features.components
    assignments = features.assignments
    if isinstance(assignments, StoredAssignments):
        assignments = assignments.reordered(order, live)
    else:
        assignments = jnp.where(live, assignments[:, order], 0)
    return features._replace(
        weights=jnp.where(live, features.weights[order], 0.0),
        components=Components(
            jnp.where(live[:, None], directions[order], 0.0), jnp.where(live, lengths[order], 0.0)
        ),
        assignments=assignments,
        n_live=jnp.asarray(n_live, jnp.int32),
    )


def with_room(features: Features, room: int) -> Features:
    """The same features in larger arrays, or in smaller ones if the rest is empty."""
    if room == features.room:
        return features
    stored = features.assignments
    inside = not isinstance(stored, StoredAssignments)
    return features._replace(
        weights=_resized(features.weights, room),
        components=Components(*(_resized(part, room) for part in features.components)),
        assignments=_resized(stored, room, axis=1) if inside else stored.resized(room),
    )


def _resized(array: Array, room: int, *, axis: int = 0, fill: int = 0) -> Array:
    """An array with more places, filled up, or with fewer."""
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, max(room - array.shape[axis], 0))
    pad = np.pad if isinstance(array, np.ndarray) else jnp.pad
    padded = pad(array, widths, constant_values=fill)
    return padded[(slice(None),) * axis + (slice(room),)]


def room_for(n_features: int) -> int:
    """Smallest array size with space for some more features.

    Every sweep draws inactive ones below the last, in proportion to alpha, and so to the number of
    features; too little space costs a compilation, too much costs every sweep.
    """
    wanted = n_features + max(min(32 + n_features, 80), n_features // 6)
    for room in ROOMS:
        if room >= wanted:
            return room
    raise RoomError(
        f"the chain wants more than {n_features} features; the data may not be a sum of a few "
        "features with Gaussian noise: try a larger noise, or a smaller alpha."
    )


def more_room(features: Features, design: Design) -> int | None:
    """New size for a sweep that found the arrays too small; None if they cannot grow.

    The level of the slice can fall so low, above all under the power law, that thousands of unused
    features lie above it. A sweep with such a level draws new weights and leaves the assignments as
    they are. This decision depends on the level and the number of features above it, which neither
    assignments nor births (``births.most_slots``) change, so the target distribution is preserved.
    Ordered features follow the Indian buffet, whose levels hold few unused ones.
    """
    wide = features.room >= WIDE and 2 * int(features.n_live) < features.room
    return None if wide and not design.ordered else room_for(features.room)


def removal_cost(vectors: Any, noise_variance: float, gram: Any, cross: Any) -> np.ndarray:
    r"""Log-likelihood lost by setting column k of Z to 0 and changing nothing else, (K,).

    .. math:: \frac{1}{2\sigma^2} \Big( 2 w_k \cdot \sum_n z_{nk} r_n + m_k |w_k|^2 \Big), \qquad
              \sum_n z_{nk} r_n = (Z^\top X - Z^\top Z W)_k,

    with residuals r and counts m: no pass over rows.
    """
    vectors = np.asarray(vectors, np.float64)
    gram, cross = np.asarray(gram, np.float64), np.asarray(cross, np.float64)
    left = np.sum(vectors * (cross - gram @ vectors), axis=1)
    explained = 2.0 * left + np.diagonal(gram) * np.sum(vectors**2, axis=1)
    return explained / (2.0 * noise_variance)


def price(counts: Any, squares: Any, noise_variance: float, n_rows: int, dim: int) -> np.ndarray:
    r"""Nats that features must earn, from the rows that use them and their squared lengths.

    .. math:: N H(m/N) + \tfrac D2 (1 + \log q), \qquad q = m |w|^2 / (D \sigma^2) > 1,

    and :math:`D q / 2` in place of the second term up to q = 1. The first term codes which of the N
    rows have the feature. The second is the difference between the likelihood at the least squares
    w, a gain of D q / 2, and the evidence of a Gaussian w of the best variance,
    :math:`(D/2)(q - 1 - \log q)`, which is 0 up to q = 1: a vector fitted to m rows of pure noise
    has q = 1 and is worth nothing, however large D is. Both grow with the data, where a fixed share
    of the energy would fail with hundreds of features.
    """
    share = np.asarray(counts, np.float64) / max(n_rows, 1)
    entropy = -xlogy(share, share) - xlogy(1.0 - share, 1.0 - share)
    q = np.asarray(counts, np.float64) * np.asarray(squares, np.float64) / (dim * noise_variance)
    vector = np.where(q > 1.0, 1.0 + np.log(np.maximum(q, 1.0)), q)
    return n_rows * entropy + 0.5 * dim * vector


def worth(
    vectors: Any, noise_variance: float, gram: np.ndarray, cross: np.ndarray, n_rows: int
) -> np.ndarray:
    """Loss in log-likelihood without each feature, minus its price, (K,).

    A draw holds a few features that explain nothing, because the prior puts them there. A feature
    *matters* if its worth is positive: removing it costs more log-likelihood than the nats needed
    to write down its rows and its vector.
    """
    squares = np.sum(np.asarray(vectors, np.float64) ** 2, axis=1)
    needed = price(np.diagonal(gram), squares, noise_variance, n_rows, vectors.shape[1])
    return removal_cost(vectors, noise_variance, gram, cross) - needed
