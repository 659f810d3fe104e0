"""The likelihood on CSR rows against the dense one, finite differences, and a plain computation."""

from functools import partial
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import log_softmax, logsumexp

from statistical import central_difference
from wideangle.mixture_of_experts import sparse as sparse_likelihood
from wideangle.mixture_of_experts.classes import LogisticExperts, SoftmaxExperts
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import Weights, log_lik
from wideangle.mixture_of_experts.quantities import GaussianExperts
from wideangle.mixture_of_experts.sparse import SparseRows, on_host

N, P = 101, 13  # N is no multiple of the rows handled at once
KINDS = [LogisticExperts(), SoftmaxExperts(2), SoftmaxExperts(3)]
NAMES = ["logistic", "softmax-2", "softmax-3"]
both_kinds = pytest.mark.parametrize("expert", KINDS, ids=NAMES)
every_kind = pytest.mark.parametrize(
    "expert", [*KINDS, GaussianExperts(0.02)], ids=[*NAMES, "gaussian"]
)


def problem(expert, n_components=5, size=1.0, dtype=np.float64, seed=0):
    """Weights, and the same rows dense and sparse; some are empty, some of weight 0."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(N, P)) * (generator.random((N, P)) < 0.3)
    rows[[0, 3, N - 1]] = 0.0
    targets = generator.integers(0, max(2, expert.n_outputs), N)
    if isinstance(expert, GaussianExperts):
        targets = generator.normal(size=N)
    row_weights = generator.uniform(0.0, 3.0, N)
    row_weights[5:9] = 0.0
    shape = n_components, expert.n_outputs, P
    gate, experts = (size * generator.normal(size=s) for s in (shape[::2], shape))
    weights = Weights(jnp.asarray(gate, dtype), jnp.asarray(experts, dtype))
    places = jnp.asarray(targets) if targets.dtype.kind == "i" else jnp.asarray(targets, dtype)
    dense = Data(jnp.asarray(rows, dtype), places, jnp.asarray(row_weights, dtype))
    return weights, dense, on_host(Data(rows.astype(dtype), targets, row_weights))


@partial(jax.jit, static_argnums=0)
def value_and_gradient(expert, weights, batch):
    return jax.value_and_grad(lambda w: log_lik(expert, w, batch))(weights)


def assert_alike(one, other, digits):
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert left.dtype == right.dtype
        scale = max(1.0, float(np.max(np.abs(right))))
        np.testing.assert_allclose(left / scale, right / scale, atol=digits, rtol=0)


@every_kind
@pytest.mark.parametrize("n_components", [1, 5, 8, 11])
def test_value_and_gradient_are_those_of_dense_rows(expert, n_components):
    for dtype, digits in ((np.float64, 1e-13), (np.float32, 3e-6)):
        weights, dense, sparse = problem(expert, n_components, dtype=dtype)
        pair = (value_and_gradient(expert, weights, batch) for batch in (sparse, dense))
        assert_alike(*pair, digits)


@every_kind
@pytest.mark.parametrize("size", [30.0, 1e3, 1e4])
def test_extreme_scores_lose_nothing(expert, size):
    weights, dense, sparse = problem(expert, size=size)
    assert_alike(*(value_and_gradient(expert, weights, batch) for batch in (sparse, dense)), 1e-12)
    # In single precision such scores are rounded: no more is lost than with dense rows.
    weights, dense, sparse = problem(expert, size=size, dtype=np.float32)
    exact = value_and_gradient(expert, *jax.tree.map(as_double, (weights, dense)))
    found = (value_and_gradient(expert, weights, batch) for batch in (sparse, dense))
    error, error_of_dense = (largest_error(one, exact) for one in found)
    assert error <= max(1e-5, error_of_dense)


def as_double(leaf):
    return leaf.astype(np.float64) if leaf.dtype == np.float32 else leaf


def largest_error(found, exact):
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(exact), strict=True)
    return max(np.max(np.abs(a - b)) / max(1.0, np.max(np.abs(b))) for a, b in pairs)


def test_rows_where_every_product_underflows_are_rescued():
    """Gate and experts disagree: the asked expert is surely wrong, the right one never asked."""
    expert = LogisticExperts()
    rows, targets = np.eye(2), np.array([1, 0])
    weights = Weights(
        jnp.asarray([[0.0, 0.0], [-90.0, -90.0]]), jnp.asarray([[[-95.0, 95.0]], [[3.0, -3.0]]])
    )
    right, asked = -90.0 - np.log1p(np.exp(-3.0)), -95.0
    expected = np.logaddexp(right, asked)
    for dtype, digits in ((np.float64, 1e-13), (np.float32, 1e-6)):
        cast = jax.tree.map(lambda leaf, dtype=dtype: leaf.astype(dtype), weights)
        value, gradient = value_and_gradient(
            expert, cast, on_host(Data(rows.astype(dtype), targets, np.ones(2)))
        )
        np.testing.assert_allclose(value, 2 * expected, rtol=digits)
        dense = Data(jnp.asarray(rows, dtype), jnp.asarray(targets), jnp.ones(2, dtype))
        assert_alike((value, gradient), value_and_gradient(expert, cast, dense), digits)


@both_kinds
def test_gradient_is_that_of_finite_differences_of_a_plain_sum(expert):
    weights, dense, sparse = problem(expert, n_components=3)
    rows, targets, row_weights = (np.asarray(leaf) for leaf in dense)

    def plain(weights):
        gate = log_softmax(np.asarray(weights.gate) @ rows.T, axis=0)
        scores = np.asarray(weights.experts) @ rows.T
        if expert.n_outputs == 1:
            scores = np.concatenate([np.zeros_like(scores), scores], axis=1)
        said = log_softmax(scores, axis=1)[:, targets, np.arange(N)]
        return np.sum(row_weights * logsumexp(gate + said, axis=0))

    value, gradient = value_and_gradient(expert, weights, sparse)
    np.testing.assert_allclose(value, plain(weights), rtol=1e-12)
    for name in Weights._fields:
        moved = central_difference(
            lambda x, name=name: plain(weights._replace(**{name: x})), getattr(weights, name)
        )
        np.testing.assert_allclose(getattr(gradient, name), moved, atol=1e-6)


def test_the_value_alone_is_the_value():
    weights, _, sparse = problem(KINDS[0])
    value, _ = value_and_gradient(KINDS[0], weights, sparse)
    assert log_lik(KINDS[0], weights, sparse) == value


def test_chains_and_data_sets_may_be_batched():
    expert = KINDS[0]
    weights, _, first = problem(expert)
    _, _, second = problem(expert, seed=1)
    many = jax.tree.map(lambda leaf: leaf * jnp.arange(3.0).reshape(3, *[1] * leaf.ndim), weights)
    grad = jax.grad(lambda w, b: log_lik(expert, w, b))
    together = jax.jit(jax.vmap(grad, in_axes=(0, None)))(many, first)
    for i in range(3):
        alone = grad(jax.tree.map(lambda leaf, i=i: leaf[i], many), first)
        jax.tree.map(lambda a, b, i=i: np.testing.assert_array_equal(a[i], b), together, alone)
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), first, second)
    values = jax.vmap(lambda b: log_lik(expert, weights, b))(both)
    assert values[0] == log_lik(expert, weights, first)
    assert values[1] == log_lik(expert, weights, second)


def test_another_data_set_needs_no_new_program():
    traces = []

    @jax.jit
    def value(weights, batch):
        traces.append(1)
        return log_lik(KINDS[0], weights, batch)

    weights, dense, first = problem(KINDS[0])
    half = on_host(Data(*(np.asarray(leaf)[:50] for leaf in dense)))
    assert value(weights, first) != value(weights, half)
    assert len(traces) == 1


def test_parts_depend_on_the_data_alone_and_cover_every_row_that_counts():
    generator = np.random.default_rng(0)
    rows = sp.random_array((3000, 20), density=0.4, format="csr", random_state=generator)
    row_weights = np.tile([1.0, 0.0, 2.0], 1000)
    parts = SparseRows(Data(rows, np.zeros(3000), row_weights)).parts
    assert len(parts) == sparse_likelihood.MAX_PARTS
    together = sp.vstack([block.rows for part in parts for block in part])
    assert (together != rows[row_weights > 0]).nnz == 0
    sizes = [sum(block.rows.nnz for block in part) for part in parts]
    assert max(sizes) < 1.2 * min(sizes)


@pytest.mark.parametrize("n_threads", [1, 3])
def test_the_number_of_threads_changes_no_bit(n_threads):
    generator = np.random.default_rng(0)
    rows = sp.random_array((3000, 20), density=0.4, format="csr", random_state=generator)
    targets = generator.integers(0, 2, 3000)
    batch = on_host(Data(rows, targets, np.ones(3000)))
    weights, *_ = problem(KINDS[0])
    weights = jax.tree.map(lambda leaf: jnp.tile(leaf, 2)[..., :20], weights)
    usual = value_and_gradient(KINDS[0], weights, batch)
    with mock.patch.object(batch.rows, "n_threads", n_threads):
        other = value_and_gradient(KINDS[0], weights, batch)
    jax.tree.map(np.testing.assert_array_equal, usual, other)
    dense = Data(jnp.asarray(rows.toarray()), jnp.asarray(targets), jnp.ones(3000))
    assert_alike(usual, value_and_gradient(KINDS[0], weights, dense), 1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_shows(bad):
    for dtype in (np.float64, np.float32):
        weights, _, sparse = problem(KINDS[0], dtype=dtype)
        for name in Weights._fields:
            spoilt = getattr(weights, name).at[..., 2].set(bad)
            value = log_lik(KINDS[0], weights._replace(**{name: spoilt}), sparse)
            assert not np.isfinite(value) or (name == "experts" and np.isinf(bad))


def test_matrices_are_let_go():
    before = len(sparse_likelihood._REGISTER)
    data = on_host(Data(np.eye(3), np.zeros(3), np.ones(3)))
    assert len(sparse_likelihood._REGISTER) == before + 1
    del data
    assert len(sparse_likelihood._REGISTER) == before
