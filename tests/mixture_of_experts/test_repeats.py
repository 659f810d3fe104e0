"""Rows that occur several times become one, whatever their order, type and kind."""

import numpy as np
import pytest
import scipy.sparse as sp

from wideangle.mixture_of_experts import data as expert_data
from wideangle.mixture_of_experts.data import Data, merged, rms_length

N, P = 300, 4


def repeated(seed=0):
    """Rows of few values, so that many are equal, with weights that do not add up exactly."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(-1, 2, (N, P)) * 0.1
    return Data(rows, rng.integers(0, 3, N), rng.uniform(0.1, 2.0, N))


def shuffled(data, seed=1):
    order = np.random.default_rng(seed).permutation(N)
    return Data(*(part[order] for part in data))


def as_table(data):
    """Every distinct row with its target, and the weight of all of them."""
    rows = data.rows.toarray() if sp.issparse(data.rows) else data.rows
    table = {}
    for row, target, weight in zip(rows, data.targets, data.weights, strict=True):
        place = (*row.tolist(), int(target))
        table[place] = table.get(place, 0.0) + weight
    return table


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csr_matrix])
def test_equal_rows_become_one_of_their_weight(kind):
    data = repeated()
    found = merged(data._replace(rows=kind(data.rows)))
    expected = as_table(data)
    assert found.rows.shape == (len(expected), P)
    assert as_table(found) == pytest.approx(expected)
    assert sp.issparse(found.rows) == (kind is not np.asarray)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_order_of_rows_decides_nothing(dtype):
    data = repeated()
    data = data._replace(rows=data.rows.astype(dtype))
    for one, other in zip(merged(data), merged(shuffled(data)), strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


def test_sparse_rows_have_the_order_of_dense_ones_also_with_zeros_that_are_stored():
    data = repeated()
    stored = sp.csr_array(np.where(data.rows == 0.0, 7.0, data.rows))
    stored.data[stored.data == 7.0] = 0.0
    dense, sparse = merged(data), merged(data._replace(rows=stored))
    np.testing.assert_array_equal(dense.rows, sparse.rows.toarray())
    np.testing.assert_array_equal(dense.weights, sparse.weights)


def test_rows_that_share_a_code_by_chance_stay_apart(monkeypatch):
    monkeypatch.setattr(
        expert_data, "_codes", lambda rows, targets: np.zeros(len(targets), np.uint64)
    )
    data = Data(np.array([[0.0], [1.0]]), np.zeros(2), np.ones(2))
    assert merged(data).rows.ravel().tolist() == [0.0, 1.0]


def test_codes_of_indicators_differ():
    rows = (np.arange(2**12)[:, None] >> np.arange(12)) & 1
    codes = expert_data._codes(rows.astype(float), np.zeros(len(rows)))
    assert len(np.unique(codes)) == len(rows)


def test_minus_zero_is_zero():
    data = Data(np.array([[0.0, 1.0], [-0.0, 1.0]]), np.zeros(2), np.ones(2))
    assert merged(data).weights.tolist() == [2.0]


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_the_usual_length_of_a_row_counts_weights(kind):
    rows = np.array([[3.0, 4.0], [1.0, 0.0], [9.0, 9.0]])
    data = Data(kind(rows), np.zeros(3), np.array([3.0, 1.0, 0.0]))
    assert rms_length(data) == pytest.approx(np.sqrt((3 * 25 + 1) / 4))
