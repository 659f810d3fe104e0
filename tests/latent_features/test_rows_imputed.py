"""Missing entries: filled in with draws of their distribution, and nothing else is touched."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

from statistical import FOUR
from wideangle.latent_features.files import as_hyper
from wideangle.latent_features.imputed import ImputedRows
from wideangle.latent_features.state import Features
from wideangle.types import Components

RNG = np.random.default_rng(0)
ROWS = np.where(RNG.random((8, 5)) < 0.3, 0.0, RNG.normal(size=(8, 5)))
GAPS = RNG.random(ROWS.shape) < 0.25
HOLED = np.where(GAPS, np.nan, ROWS)
USED = RNG.integers(0, 2, (8, 3)).astype(np.uint8)
VECTORS = RNG.normal(size=(3, 5))
OFFSET = np.array([0.5, 0.0, -1.0, 2.0, 3.0])


def state_of(assignments, vectors, noise):
    """Features of a chain, as the rows look at them."""
    components = Components.from_vectors(jnp.asarray(vectors))
    hyper = as_hyper(jnp.array([1.0, 0.0, 1.0, noise, 0.0, 1.0]))
    n_live = jnp.asarray(len(vectors))
    return Features(jnp.ones(len(vectors)), components, jnp.asarray(assignments), n_live, hyper)


def stored(matrix):
    """CSR with a NaN stored for every gap."""
    return sparse.csr_matrix(matrix)


KINDS = pytest.mark.parametrize("kind", [np.array, stored], ids=["dense", "sparse"])
OFFSETS = pytest.mark.parametrize("offset", [None, OFFSET], ids=["as is", "centred"])


def entries(rows):
    return rows.dense_block(np.arange(rows.n_rows))


@KINDS
@OFFSETS
def test_gaps_get_the_distribution_of_the_model_and_seen_entries_stay(kind, offset):
    rows = ImputedRows(kind(HOLED), offset)
    shift = 0.0 if offset is None else offset
    state, found = state_of(USED, VECTORS, 0.49), []
    for key in jax.random.split(jax.random.key(1), 2000):
        rows.refresh(key, state)
        found.append(entries(rows))
    found = np.array(found)
    np.testing.assert_allclose(found[:, ~GAPS], np.tile((ROWS - shift)[~GAPS], (2000, 1)))
    gaps = found[:, GAPS] - (USED @ VECTORS)[GAPS]
    assert np.all(np.abs(gaps.mean(axis=0)) < FOUR * 0.7 / np.sqrt(2000))
    error = 0.49 * np.sqrt(2 / gaps.size)
    assert gaps.var() == pytest.approx(0.49, abs=FOUR * error)


@KINDS
@OFFSETS
def test_expected_entries_have_no_residual(kind, offset):
    rows = ImputedRows(kind(HOLED), offset)
    rows.cross_observed(USED, VECTORS)
    np.testing.assert_allclose(entries(rows)[GAPS], (USED @ VECTORS)[GAPS], atol=1e-12)


@KINDS
@OFFSETS
def test_the_first_guess_is_the_mean_of_what_is_seen(kind, offset):
    rows = ImputedRows(kind(HOLED), offset)
    rows.fill(RNG.normal(size=GAPS.sum()))  # whatever stood there before
    rows.start_search()
    shift = 0.0 if offset is None else offset
    means = np.broadcast_to(np.nanmean(HOLED, axis=0) - shift, ROWS.shape)
    np.testing.assert_allclose(entries(rows)[GAPS], means[GAPS], atol=1e-12)


@KINDS
def test_sums_follow_what_stands_in_the_gaps(kind):
    rows = ImputedRows(kind(HOLED), OFFSET)
    before = rows.energy
    rows.refresh(jax.random.key(3), state_of(USED, VECTORS, 1.0))
    full = entries(rows)
    assert rows.energy == pytest.approx(np.sum(full**2))
    assert rows.energy != before
    np.testing.assert_allclose(rows.cross(USED), USED.T @ full, atol=1e-12)
    np.testing.assert_allclose(rows.products(VECTORS), full @ VECTORS.T, atol=1e-12)


@KINDS
def test_the_callers_matrix_is_left_alone(kind):
    matrix = kind(HOLED)
    before = matrix.copy()
    one, other = ImputedRows(matrix), ImputedRows(matrix)
    one.fill(np.full(GAPS.sum(), 7.0))
    same = matrix.toarray() if sparse.issparse(matrix) else matrix
    np.testing.assert_array_equal(same, before.toarray() if sparse.issparse(before) else before)
    assert not np.any(entries(other) == 7.0)


@KINDS
def test_gaps_of_features_are_counted(kind):
    counts = ImputedRows(kind(HOLED)).n_gaps_of(USED)
    by_hand = [[sum(USED[n, k] & GAPS[n, d] for n in range(8)) for d in range(5)] for k in range(3)]
    np.testing.assert_array_equal(counts, by_hand)


def test_entries_stored_twice_count_once():
    twice = sparse.csr_matrix(
        (np.array([1.0, 2.0, np.nan, 4.0]), np.array([0, 0, 2, 1]), np.array([0, 2, 4])), (2, 3)
    )
    rows = ImputedRows(twice)
    rows.cross_observed(np.array([[0], [1]], np.uint8), np.array([[5.0, 6.0, 7.0]]))
    np.testing.assert_array_equal(entries(rows), [[3.0, 0.0, 0.0], [0.0, 4.0, 7.0]])


def test_single_precision_stays_so():
    rows = ImputedRows(HOLED.astype(np.float32), OFFSET)
    rows.refresh(jax.random.key(0), state_of(USED, VECTORS, 1.0))
    assert entries(rows).dtype == np.float32
