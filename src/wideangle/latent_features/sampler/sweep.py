"""One sweep of the latent feature model: the sentence the sampler is.

    weights, level, inactive features -> [products with the rows] -> assignments
    -> births and deaths -> [statistics of the rows] -> features -> hyperparameters

The two steps in brackets touch the rows. On a device everything is one program
(:func:`sweep_on_device`); on the CPU the steps in between are compiled programs and the rows, dense
or sparse, stay on the host (``latent_features/chain.py``).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.special import gammaln

from wideangle.latent_features.rows.device import DenseRows, SparseRows, summarise_on_device
from wideangle.latent_features.sampler.assignments import Noise, draw_noise, sweep_columns
from wideangle.latent_features.sampler.atoms import (
    Slice,
    make_components,
    only_active,
    redraw_atoms,
    without_tail,
)
from wideangle.latent_features.sampler.births import birth_moves
from wideangle.latent_features.sampler.design import Design
from wideangle.latent_features.sampler.hyper import redraw_hyper
from wideangle.latent_features.sampler.order import log_chain
from wideangle.latent_features.sampler.pool import Seen
from wideangle.latent_features.sampler.vectors import Moved, Steps, move_vectors
from wideangle.latent_features.state import (
    Elsewhere,
    Features,
    FeatureStats,
    counts_of,
    log_lik,
    residual_energy,
    set_aside,
    taken_up,
)
from wideangle.priors.stick_breaking import log_marginal
from wideangle.types import Array, Components, Key, Scalar


class Keys(NamedTuple):
    """Randomness of the parts of a sweep."""

    atoms: Key
    newborns: Key
    seeds: Key
    assignments: Key
    births: Key
    vectors: Key
    hyper: Key


class Begun(NamedTuple):
    """A sweep up to the first use of the rows."""

    features: Features
    newborns: Components
    seeds: Array
    """Rows of which single features may be born."""
    noise: Noise
    vectors: Array
    """(K, D) the features."""
    inner: Array
    """(K, K) their inner products."""
    slice: Slice


class Account(NamedTuple):
    """What one sweep has to say about itself."""

    moved: Moved
    n_moved: Array
    """Births and deaths accepted."""
    n_active: Array
    log_lik: Scalar
    log_joint: Scalar
    """Of rows, features and assignments, the weights summed out."""
    residual: Scalar
    """Sum of squared residuals."""


def split(key: Key) -> Keys:
    """Keys of the parts of one sweep."""
    return Keys(*jax.random.split(key, len(Keys._fields)))


def begin(keys: Keys, features: Features, design: Design) -> Begun:
    """Weights, slice level, inactive features, and all randomness of the assignments."""
    used = features.assignments
    if isinstance(used, Elsewhere):
        features, state, lengths = redraw_atoms(keys.atoms, features, design)
    else:  # features change places several times, the columns of the large array once
        features, state, lengths = redraw_atoms(keys.atoms, set_aside(features), design)
        features = taken_up(features, used)
    vectors = features.components.vectors
    n_new = design.n_births
    n_rows = features.assignments.shape[0]
    return Begun(
        features,
        make_components(keys.newborns, features.hyper, n_new, lengths[:n_new], features, design),
        jax.random.randint(keys.seeds, (design.n_single_moves,), 0, n_rows),
        draw_noise(keys.assignments, features.room, vectors.dtype),
        vectors,
        vectors @ vectors.T,
        state,
    )


def finish_assignments(
    keys: Keys, begun: Begun, seen: Seen, design: Design
) -> tuple[Features, Array, Array]:
    """Births and deaths; then inactive features that are not part of the state are dropped.

    Assignments are set aside; the columns to take them up from, and the number of moves accepted.
    """
    features, columns, n_moved = birth_moves(
        keys.births, begun.features, begun.newborns, seen, begun.slice.level, design
    )
    return without_unused(features, design), columns, n_moved


def without_unused(features: Features, design: Design) -> Features:
    """Without the inactive features that are not part of the state."""
    drop = without_tail if design.ordered else only_active
    return drop(features, counts_of(features))


def finish(
    keys: Keys,
    features: Features,
    stats: FeatureStats,
    design: Design,
    steps: Steps,
    n_moved: Array,
) -> tuple[Features, Account]:
    """Features and hyperparameters, through the statistics alone."""
    features, moved = move_vectors(keys.vectors, features, stats, design, steps)
    features = redraw_hyper(keys.hyper, features, stats, design)
    vectors = features.components.vectors
    fit = log_lik(vectors, stats, features.hyper.noise)
    account = Account(
        moved,
        n_moved,
        jnp.sum(stats.counts > 0),
        fit,
        fit + log_prior(features, stats, design),
        residual_energy(vectors, stats),
    )
    return features, account


def log_prior(features: Features, stats: FeatureStats, design: Design) -> Scalar:
    """Log density of assignments (weights summed out) and active features.

    Lengths and directions are measured against uniform directions, Gaussian vectors as they are.
    Inactive features between active ones count for nothing: their number is arbitrary.
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


def sweep_on_device(
    key: Key,
    features: Features,
    rows: DenseRows | SparseRows,
    design: Design,
    steps: Steps,
    *,
    fixed_length: bool = False,
) -> tuple[Features, Account, Array]:
    """One sweep with the rows on the device; the last result says that room ran out."""
    keys = split(key)
    begun = begin(keys, features, design)
    newborns = begun.newborns.vectors[: design.n_null_moves]
    found = rows.products(jnp.concatenate([begun.vectors, newborns]))  # one pass over the rows
    products, new_products = found[:, : features.room], found[:, features.room :]
    assignments = sweep_columns(
        begun.noise,
        begun.features.assignments,
        products,
        begun.inner,
        begun.features.weights,
        begun.features.n_live,
        begun.features.hyper.noise,
        fixed_length=fixed_length,
    )
    begun = begun._replace(features=begun.features._replace(assignments=assignments))
    seen = Seen(products, new_products, begun.seeds, rows.take(begun.seeds), rows.energy())
    moved_features, columns, n_moved = finish_assignments(keys, begun, seen, design)
    moved_features = taken_up(moved_features, columns)
    stats = summarise_on_device(moved_features.assignments, rows)
    end, account = finish(keys, moved_features, stats, design, steps, n_moved)
    return end, account, begun.slice.overflow
