"""The sums of the feature model, dense and sparse, against plain NumPy."""

from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest
from scipy import sparse

from wideangle import machine_code
from wideangle.latent_features import memory as feature_rows
from wideangle.latent_features.memory import MemoryRows

N, D, K = 37, 11, 5


def matrix(dtype=np.float64):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.3)
    rows[[0, 7, N - 1]] = 0.0
    return rows.astype(dtype)


@pytest.fixture(params=["dense", "sparse"])
def kind(request):
    return {"dense": np.asarray, "sparse": sparse.csr_matrix}[request.param]


@pytest.fixture(params=[False, True], ids=["plain", "offset"])
def offset(request):
    return np.random.default_rng(1).normal(size=D) if request.param else None


@pytest.fixture(params=[10**9, 0], ids=["one thread", "threads"])
def threads(request, monkeypatch):
    monkeypatch.setattr(feature_rows, "THREADED_WORK", request.param)
    monkeypatch.setattr(numba.config, "NUMBA_NUM_THREADS", 3)


@pytest.mark.parametrize(("width", "density"), [(0, 0.0), (1, 0.4), (K, 0.4), (40, 0.07)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 2e-6)])
@pytest.mark.usefixtures("threads")
def test_sums_equal_those_of_numpy(kind, offset, dtype, tolerance, width, density):
    rng = np.random.default_rng(2)
    rows = MemoryRows(kind(matrix(dtype)), offset)
    plain = matrix() - (0.0 if offset is None else offset)
    vectors = rng.normal(size=(width, D))
    assignments = (rng.random((N, width)) < density).astype(np.uint8)
    close = {"rtol": tolerance, "atol": 20 * tolerance}
    assert (rows.n_rows, rows.dim, rows.dtype) == (N, D, np.dtype(dtype))
    np.testing.assert_allclose(rows.products(vectors), plain @ vectors.T, **close)
    np.testing.assert_allclose(rows.cross(assignments), assignments.T @ plain, **close)
    np.testing.assert_allclose(rows.row_energy, np.sum(plain**2, 1), **close)
    np.testing.assert_allclose(rows.energy, np.sum(plain**2), rtol=tolerance)


def test_results_have_the_type_of_the_data_except_long_sums(kind):
    rows = MemoryRows(kind(matrix(np.float32)))
    assert rows.products(np.ones((2, D))).dtype == np.float32
    assert rows.cross(np.ones((N, 2), np.uint8)).dtype == np.float64
    assert MemoryRows(kind(matrix().astype(int))).dtype == np.float64


def test_a_subset_is_the_same_view_of_fewer_rows(kind, offset):
    rows = MemoryRows(kind(matrix()), offset)
    plain = matrix() - (0.0 if offset is None else offset)
    some = np.array([5, 0, 5, 30])
    np.testing.assert_allclose(rows.dense_block(some), plain[some])
    np.testing.assert_allclose(rows.dense_block(slice(3, 9)), plain[3:9])
    taken = rows.take(some)
    np.testing.assert_allclose(taken.dense_block(slice(None)), plain[some])
    np.testing.assert_allclose(taken.energy, np.sum(plain[some] ** 2))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_can_be_scaled(kind, offset, dtype):
    rows = MemoryRows(kind(matrix(dtype)), offset)
    scaled = rows.scaled(np.float64(8.0))
    assert scaled.dtype == dtype
    np.testing.assert_allclose(scaled.dense_block(slice(None)), 8.0 * rows.dense_block(slice(None)))


def test_a_dense_block_may_be_changed_without_changing_the_rows(kind):
    rows = MemoryRows(kind(matrix()))
    before = rows.energy
    rows.dense_block(slice(None))[:] = 7.0
    assert rows.energy == before


def test_sparse_rows_stay_sparse_and_the_callers_matrix_as_it_was():
    twice = sparse.csr_matrix((np.ones(2), np.array([3, 3]), np.array([0, 2])), shape=(1, D))
    rows = MemoryRows(twice, np.ones(D))
    assert rows.is_sparse
    assert twice.nnz == 2
    np.testing.assert_allclose(rows.energy, D - 1 + 1.0)


def test_blocks_cover_every_row(monkeypatch):
    monkeypatch.setattr(feature_rows, "BLOCK_ROWS", 8)
    rows, ones = MemoryRows(matrix()), np.ones((N, 1), np.uint8)
    np.testing.assert_allclose(rows.cross(ones)[0], matrix().sum(0))
    np.testing.assert_allclose(rows.energy, np.sum(matrix() ** 2))


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match="offset must have shape"):
        MemoryRows(sparse.csr_matrix(matrix()), np.ones(D + 1))
    with pytest.raises(ValueError, match="must form a matrix"):
        MemoryRows(np.ones(4))


def test_sums_do_not_depend_on_the_number_of_threads(monkeypatch):
    rng = np.random.default_rng(5)
    matrix = sparse.random(400, 30, 0.3, format="csr", rng=rng, dtype=np.float32)
    used = (rng.random((400, 7)) < 0.4).astype(np.uint8)
    monkeypatch.setattr(feature_rows, "THREADED_WORK", 0)
    found = []
    for n_threads in (1, 2, 3):
        monkeypatch.setattr(machine_code, "threads_of_loops", lambda n=n_threads: n)
        found.append(MemoryRows(matrix).cross(used))
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])
    np.testing.assert_allclose(found[0], used.T @ matrix.toarray(), rtol=1e-5)


def test_a_worker_has_its_share_of_the_threads():
    n_all = machine_code.threads_of_loops()
    with ThreadPoolExecutor(1, initializer=machine_code.use_threads, initargs=(1,)) as pool:
        assert pool.submit(machine_code.threads_of_loops).result() == 1
    assert machine_code.threads_of_loops() == n_all
