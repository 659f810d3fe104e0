"""Sparse rows of a file are those of the matrix that was saved."""

import numpy as np
import pytest
import scipy.sparse as sp

from wideangle import MixtureOfExpertsClassifier, Variational
from wideangle.streaming import CsrRows


def make(n=203, p=7):
    generator = np.random.default_rng(0)
    X = sp.random_array((n, p), density=0.3, rng=generator, format="csr", dtype=np.float32)
    return X, (X[:, [0]].toarray()[:, 0] > 0).astype(np.int8)


def saved(folder, X, **options):
    sp.save_npz(folder / "X.npz", X, **{"compressed": False} | options)
    return folder / "X.npz"


def everything(source):
    blocks = [source.read(block) for block in range(len(source.starts) - 1)]
    return [np.concatenate(part) for part in zip(*blocks, strict=True)]


@pytest.mark.parametrize("block_rows", [1, 10, 1000])
def test_blocks_are_dense_rows_in_order(tmp_path, block_rows):
    X, y = make()
    np.save(tmp_path / "y.npy", y)
    for rows in (saved(tmp_path, X), X):
        source = CsrRows(rows, tmp_path / "y.npy", block_rows=block_rows)
        assert source.shape == X.shape and source.dtype == np.float32
        found, targets = everything(source)
        np.testing.assert_array_equal(found, X.toarray())
        np.testing.assert_array_equal(targets, y)
    whole = CsrRows(sp.csr_array(X, dtype=np.int64))
    assert whole.dtype == np.float64 and whole.read(0)[1] is None


def test_entries_of_the_same_place_are_added_and_the_matrix_is_left_alone():
    X = sp.csr_array((np.ones(3), [1, 0, 1], [0, 3, 3]), shape=(2, 2))
    np.testing.assert_array_equal(CsrRows(X).read(0)[0], [[1.0, 2.0], [0.0, 0.0]])
    assert X.indices.tolist() == [1, 0, 1]


def test_what_cannot_be_read_in_blocks_is_refused(tmp_path):
    X, y = make()
    with pytest.raises(ValueError, match="compressed=False"):
        CsrRows(saved(tmp_path, X, compressed=True))
    with pytest.raises(ValueError, match=r"X\.tocsr\(\)"):
        CsrRows(saved(tmp_path, X.tocsc()))
    with pytest.raises(ValueError, match="SciPy CSR matrix"):
        CsrRows(X.toarray())
    with pytest.raises(ValueError, match="but X has 203 rows"):
        CsrRows(X, y[:-1])
    np.savez(tmp_path / "other.npz", a=np.ones(3))
    with pytest.raises(ValueError, match="has no data, format, indices, indptr, shape"):
        CsrRows(tmp_path / "other.npz")
    (tmp_path / "text.npz").write_text("text")
    with pytest.raises(ValueError, match=r"not an \.npz file"):
        CsrRows(tmp_path / "text.npz")


@pytest.mark.parametrize(
    ("name", "place", "value"), [("indices", 3, 70), ("indices", 3, -1), ("indptr", 2, 10**6)]
)
def test_parts_that_do_not_fit_together_are_found(tmp_path, name, place, value):
    X, _ = make()
    parts = {"data": X.data, "indices": X.indices.copy(), "indptr": X.indptr.copy()}
    parts[name][place] = value
    np.savez(tmp_path / "X.npz", format=b"csr", shape=X.shape, **parts)
    with pytest.raises(ValueError, match="rows 0 to 9 do not fit together"):
        CsrRows(tmp_path / "X.npz", block_rows=10).read(0)


def test_columns_are_scaled_as_those_of_sparse_rows_in_memory(tmp_path):
    X, y = make()
    guide = Variational(n_starts=1, n_passes=2, batch_size=256)
    model = MixtureOfExpertsClassifier(2, inference=guide, random_state=0, verbose=False)
    streamed = model.fit_stream(CsrRows(saved(tmp_path, X), y))
    scaling = streamed.scaling_
    proba = streamed.predict_proba(X)
    np.testing.assert_allclose(proba, streamed.predict_proba(X.toarray()), rtol=1e-5)
    blocks = list(streamed.predict_proba_stream(CsrRows(X, block_rows=50)))
    np.testing.assert_allclose(np.concatenate(blocks), proba, rtol=1e-5)
    np.testing.assert_array_equal(scaling.shift, 0.0)
    np.testing.assert_allclose(scaling.scale, model.fit(X, y).scaling_.scale, rtol=1e-6)
