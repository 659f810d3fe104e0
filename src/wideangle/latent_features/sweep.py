"""One sweep of the latent feature model: the sampler in outline.

    weights, level, inactive features -> [products with the rows] -> assignments
    -> births and deaths -> [statistics of the rows] -> features -> hyperparameters

Only the two steps in brackets read the rows. On a device everything is one program
(:func:`sweep_on_device`); on the CPU the other parts (:func:`start`, :func:`births`,
:func:`finish`) are one program each, and the rows, dense, sparse or on disk, stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from wideangle.infer.program import QUICKLY
from wideangle.latent_features.assignments import Randomness, draw_randomness
from wideangle.latent_features.births import birth_moves
from wideangle.latent_features.columns import sweep_columns
from wideangle.latent_features.directions import Moved, Steps, move_vectors
from wideangle.latent_features.hyper import redraw_hyper
from wideangle.latent_features.state import (
    ROOMS,
    Design,
    Features,
    FeatureStats,
    StoredAssignments,
    attached,
    counts_of,
    detached,
    log_lik,
    probes,
    residual_energy,
    stats_of,
)
from wideangle.latent_features.weights import (
    Slice,
    log_chain,
    only_active,
    redraw_atoms,
    without_tail,
)
from wideangle.priors.stick_breaking import log_marginal
from wideangle.types import Array, Key, Scalar


class Keys(NamedTuple):
    """Random keys of the parts of a sweep."""

    atoms: Key
    assignments: Key
    births: Key
    vectors: Key
    hyper: Key


class SweepStart(NamedTuple):
    """A sweep up to the first use of the rows."""

    features: Features
    lengths: Array
    """Lengths of features that may be born."""
    randomness: Randomness
    vectors: Array
    """(K, D) the features."""
    inner: Array
    """(K, K) their inner products."""
    slice: Slice


class SweepInfo(NamedTuple):
    """What one sweep did, and the resulting quantities."""

    moved: Moved
    n_active: Array
    log_lik: Scalar
    log_joint: Scalar
    """Log density of rows, features and assignments, the weights summed out."""
    residual: Scalar
    """Sum of squared residuals."""
    signal: Array
    """The sum of features at the entries that are watched."""


def start(key: Key, features: Features, design: Design) -> SweepStart:
    """Weights, slice level, inactive features, and all randomness of the assignments."""
    keys, stored = split(key), features.assignments
    if isinstance(stored, StoredAssignments):
        features, level, lengths = redraw_atoms(keys.atoms, features, design)
    else:  # features are reordered several times, the columns of the large array once
        features, level, lengths = redraw_atoms(keys.atoms, detached(features), design)
        features = attached(features, stored)
    vectors = features.components.vectors
    return SweepStart(
        features,
        lengths,
        draw_randomness(keys.assignments, features.room, vectors.dtype),
        vectors,
        vectors @ vectors.T,
        level,
    )


def births(
    key: Key, begun: SweepStart, rows: Any, products: Array, design: Design
) -> tuple[Features, Array]:
    """Births and deaths; then inactive features that are not part of the state are dropped.

    Returns features with detached assignments, and the columns to attach.
    """
    features, columns = birth_moves(
        split(key).births,
        begun.features,
        rows,
        products,
        begun.lengths,
        begun.slice.level,
        design,
    )
    return without_unused(features, design), columns


def without_unused(features: Features, design: Design) -> Features:
    """Without the inactive features that are not part of the state."""
    drop = without_tail if design.ordered else only_active
    return drop(features, counts_of(features))


def finish(
    key: Key,
    features: Features,
    stats: FeatureStats,
    probed: Array,
    design: Design,
    steps: Steps,
) -> tuple[Features, SweepInfo]:
    """Features and hyperparameters, from the statistics alone.

    ``probed`` are the assignments of the rows that are watched.
    """
    keys = split(key)
    features, moved = move_vectors(keys.vectors, features, stats, design, steps)
    features = redraw_hyper(keys.hyper, features, stats, design)
    vectors = features.components.vectors
    fit = log_lik(vectors, stats, features.hyper.noise_variance)
    info = SweepInfo(
        moved,
        jnp.sum(stats.counts > 0),
        fit,
        fit + log_prior(features, stats, design),
        residual_energy(vectors, stats),
        jnp.sum(probed * vectors[:, probes(1, vectors.shape[1])[1]].T, axis=1),
    )
    return features, info


def log_prior(features: Features, stats: FeatureStats, design: Design) -> Scalar:
    """Log density of assignments (weights summed out) and active features.

    Densities of directions are relative to the uniform one; those of Gaussian vectors are absolute.
    Inactive features between active ones are not counted: their number is arbitrary.
    """
    hyper = features.hyper
    active = stats.counts > 0
    n_rows, dim = features.assignments.shape[0], features.components.directions.shape[1]
    total = log_marginal(hyper.buffet, stats.counts, n_rows)
    lengths = jnp.where(active, features.components.magnitudes, 1.0)
    if design.features == "gaussian":
        terms = 0.5 * dim * jnp.log(hyper.rate / (2 * jnp.pi)) - 0.5 * hyper.rate * lengths**2
    else:
        shape = design.magnitude_shape
        terms = shape * jnp.log(hyper.rate) - gammaln(shape)
        terms += (shape - 1) * jnp.log(lengths) - hyper.rate * lengths
    total += jnp.sum(jnp.where(active, terms, 0.0))
    if design.ordered:
        total += log_chain(features, active)
    return total


def split(key: Key) -> Keys:
    """Keys of the parts of the sweep that has this key."""
    return Keys(*jax.random.split(key, len(Keys._fields)))


# ---------------------------------------------------------------- on the CPU: compiled parts

FEW = ROOMS[0]
"""Size of the arrays up to which the parts that do not read the rows are compiled unoptimised: that
takes half as long, and they are short."""


class _Part:
    """A part of a sweep as a program, compiled for each size of its arrays."""

    def __init__(self, part: Callable[..., Any]) -> None:
        unoptimised = QUICKLY | {"xla_backend_optimization_level": 0}
        self._for_few, self._for_many = (
            jax.jit(part, static_argnames="design", compiler_options=options)
            for options in (unoptimised, QUICKLY)
        )

    def _program(self, features: Features) -> Any:
        return self._for_few if features.room <= FEW else self._for_many

    def __call__(self, key: Key, features: Features, *others: Any) -> Any:
        return self._program(features)(key, features, *others)

    def lower(self, key: Key, features: Features, *others: Any) -> Any:
        """The program before it is compiled."""
        return self._program(features).lower(key, features, *others)


start_sweep, finish_sweep = _Part(start), _Part(finish)
# Births go over all rows many times: optimised they take a quarter of the time.
make_births = jax.jit(births, static_argnames="design", compiler_options=QUICKLY)
drop_unused = jax.jit(without_unused, static_argnums=1)


# ---------------------------------------------------------------- on a device: one program


def sweep_on_device(
    key: Key,
    features: Features,
    rows: Any,
    design: Design,
    steps: Steps,
    *,
    fixed_length: bool = False,
) -> tuple[Features, SweepInfo, Array]:
    """One sweep with the rows on the device; the last result says whether room ran out.

    ``rows`` are those of ``device.py``.
    """
    begun = start(key, features, design)
    products = rows.products(begun.vectors)
    assignments = sweep_columns(
        begun.randomness,
        begun.features.assignments,
        products,
        begun.inner,
        begun.features.weights,
        begun.features.n_live,
        begun.features.hyper.noise_variance,
        fixed_length=fixed_length,
    )
    begun = begun._replace(features=begun.features._replace(assignments=assignments))
    moved, columns = births(key, begun, rows, products, design)
    moved = attached(moved, columns)
    stats = stats_of(rows, moved.assignments)
    end, info = finish(key, moved, stats, _probed(moved), design, steps)
    return end, info, begun.slice.overflow


def sweep_without_assignments(
    key: Key, features: Features, rows: Any, design: Design, steps: Steps
) -> tuple[Features, SweepInfo]:
    """The sweep of a key that ran out of room: it leaves the assignments unchanged.

    It keeps the weights that led to the low level; drawing others would make such weights too rare.
    """
    features = without_unused(start(key, features, design).features, design)
    stats = stats_of(rows, features.assignments)
    return finish(key, features, stats, _probed(features), design, steps)


def _probed(features: Features) -> Array:
    """Assignments of the rows that are watched."""
    assert not isinstance(features.assignments, StoredAssignments)
    return features.assignments[probes(features.assignments.shape[0], 1)[0]]
