"""One sweep of the latent feature model: the sampler in outline.

    weights, level, inactive features -> [products with the rows] -> assignments
    -> births and deaths -> [statistics of the rows] -> features -> hyperparameters

Only the two steps in brackets read the rows. On a device everything is one program
(:func:`sweep_on_device`); on the CPU the other parts are compiled programs (:func:`start_sweep`,
:func:`births`, :func:`finish_sweep`), and the rows, dense, sparse or on disk, stay where they are.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from wideangle.infer.program import QUICKLY
from wideangle.latent_features.sampler.assignments import Randomness, draw_randomness
from wideangle.latent_features.sampler.births import birth_moves
from wideangle.latent_features.sampler.columns import sweep_columns
from wideangle.latent_features.sampler.directions import Moved, Steps, move_vectors
from wideangle.latent_features.sampler.hyper import redraw_hyper
from wideangle.latent_features.sampler.weights import (
    Slice,
    log_chain,
    only_active,
    redraw_atoms,
    without_tail,
)
from wideangle.latent_features.state import (
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
    n_moved: Array
    """Births and deaths accepted."""
    n_active: Array
    log_lik: Scalar
    log_joint: Scalar
    """Log density of rows, features and assignments, the weights summed out."""
    residual: Scalar
    """Sum of squared residuals."""
    signal: Array
    """The sum of features at the entries that are watched."""


def split(key: Key) -> Keys:
    """Keys of the parts of one sweep."""
    return Keys(*jax.random.split(key, len(Keys._fields)))


def begin(keys: Keys, features: Features, design: Design) -> SweepStart:
    """Weights, slice level, inactive features, and all randomness of the assignments."""
    stored = features.assignments
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


def without_unused(features: Features, design: Design) -> Features:
    """Without the inactive features that are not part of the state."""
    drop = without_tail if design.ordered else only_active
    return drop(features, counts_of(features))


def finish(
    keys: Keys,
    features: Features,
    stats: FeatureStats,
    probed: Array,
    design: Design,
    steps: Steps,
    n_moved: Array,
) -> tuple[Features, SweepInfo]:
    """Features and hyperparameters, from the statistics alone.

    ``probed`` are the assignments of the rows that are watched.
    """
    features, moved = move_vectors(keys.vectors, features, stats, design, steps)
    features = redraw_hyper(keys.hyper, features, stats, design)
    vectors = features.components.vectors
    fit = log_lik(vectors, stats, features.hyper.noise_variance)
    info = SweepInfo(
        moved,
        n_moved,
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


# ---------------------------------------------------------------- on the CPU: compiled parts

on_host = partial(jax.jit, static_argnames="design", compiler_options=QUICKLY)


@on_host
def start_sweep(key: Key, index: Array, features: Features, design: Design) -> SweepStart:
    """The part of sweep ``index`` before the rows are touched."""
    return begin(_keys(key, index), features, design)


@on_host
def births(
    key: Key, index: Array, start: SweepStart, rows: Any, products: Array, design: Design
) -> tuple[Features, Array, Array]:
    """Births and deaths; then inactive features that are not part of the state are dropped.

    Returns features with detached assignments, the columns to attach, and the number of moves
    accepted.
    """
    return _births(_keys(key, index), start, rows, products, design)


@on_host
def finish_sweep(
    key: Key,
    index: Array,
    features: Features,
    stats: FeatureStats,
    probed: Array,
    design: Design,
    steps: Steps,
    n_moved: Array,
) -> tuple[Features, SweepInfo]:
    """The part after the rows, through their statistics."""
    return finish(_keys(key, index), features, stats, probed, design, steps, n_moved)


drop_unused = jax.jit(without_unused, static_argnums=1)


def _keys(key: Key, index: Array) -> Keys:
    return split(jax.random.fold_in(key, index))


def _births(
    keys: Keys, start: SweepStart, rows: Any, products: Array, design: Design
) -> tuple[Features, Array, Array]:
    features, columns, n_moved = birth_moves(
        keys.births, start.features, rows, products, start.lengths, start.slice.level, design
    )
    return without_unused(features, design), columns, n_moved


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

    ``rows`` are those of ``rows/device.py``.
    """
    keys = split(key)
    start = begin(keys, features, design)
    products = rows.products(start.vectors)
    assignments = sweep_columns(
        start.randomness,
        start.features.assignments,
        products,
        start.inner,
        start.features.weights,
        start.features.n_live,
        start.features.hyper.noise_variance,
        fixed_length=fixed_length,
    )
    start = start._replace(features=start.features._replace(assignments=assignments))
    moved, columns, n_moved = _births(keys, start, rows, products, design)
    moved = attached(moved, columns)
    stats = rows.stats(moved.assignments)
    end, info = finish(keys, moved, stats, _probed(moved), design, steps, n_moved)
    return end, info, start.slice.overflow


def sweep_without_assignments(
    key: Key, features: Features, rows: Any, design: Design, steps: Steps
) -> tuple[Features, SweepInfo]:
    """The sweep of a key that ran out of room: it leaves the assignments unchanged.

    It keeps the weights that led to the low level; drawing others would make such weights too rare.
    """
    keys = split(key)
    features = without_unused(begin(keys, features, design).features, design)
    stats = rows.stats(features.assignments)
    n_moved = jnp.zeros((), jnp.int32)
    return finish(keys, features, stats, _probed(features), design, steps, n_moved)


def _probed(features: Features) -> Array:
    """Assignments of the rows that are watched."""
    assert not isinstance(features.assignments, StoredAssignments)
    return features.assignments[probes(features.assignments.shape[0], 1)[0]]
