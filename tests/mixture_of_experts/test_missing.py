import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from wideangle import (
    GaussianPrior,
    Maximise,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    TableEncoder,
    Variational,
)
from wideangle.mixture_of_experts.prepare import Filling, _median, learn_filling
from wideangle.streaming.sources import NpyRows

pytestmark = pytest.mark.usefixtures("compile_quickly")

RNG = np.random.default_rng(0)
COMPLETE = RNG.normal(size=(80, 3))
X = np.where(RNG.random(COMPLETE.shape) < [0.3, 0.1, 0.0], np.nan, COMPLETE)
Y = np.isnan(X[:, 1]).astype(int)
QUANTITY = 3.0 * Y + COMPLETE[:, 2] + 0.3 * RNG.normal(size=80)
# Without a common expert there is no shrinkage to be found by cross-validation.
QUICK = {"inference": Maximise(n_starts=2), "prior": GaussianPrior(common=False)}
QUICK |= {"verbose": False, "random_state": 0}
BOTH = pytest.mark.parametrize(
    ("kind", "y"),
    [(MixtureOfExpertsClassifier, Y), (MixtureOfExpertsRegressor, QUANTITY)],
    ids=["classes", "quantities"],
)


def predictions(model, rows):
    return model.predict_proba(rows) if hasattr(model, "classes_") else model.predict(rows)


@BOTH
def test_missing_entries_are_what_the_encoder_in_front_makes_of_them(kind, y):
    model = kind(3, **QUICK).fit(X, y)
    encoder = TableEncoder().fit(X)
    rows = np.asarray(encoder.transform(X))[:, [0, 2, 4, 1, 3]]  # the marks stand at the end
    other = kind(3, **QUICK).fit(rows, y)
    np.testing.assert_array_equal(predictions(model, X), predictions(other, rows))


@BOTH
def test_where_an_entry_is_missing_tells_something(kind, y):
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    model = kind(3, **QUICK).fit(table, y)
    assert model.n_features_in_ == 3
    names = ["a", "b", "c", "a = (missing)", "b = (missing)", "(intercept)"]
    assert model.presentation(model).entry_names() == names
    assert model.score(table, y) > 0.9


@BOTH
def test_files_and_pickles_fill_in_the_same(kind, y, tmp_path):
    model = kind(3, **QUICK).fit(X, y)
    model.save(tmp_path / "model.safetensors")
    for again in (kind.load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(predictions(again, X), predictions(model, X))


def test_a_column_that_was_complete_takes_its_median_and_a_warning():
    model = MixtureOfExpertsClassifier(3, **QUICK).fit(X, Y)
    rows = X.copy()
    rows[0, 2] = np.nan
    with pytest.warns(UserWarning, match="without any at the fit: 2"):
        found = model.predict_proba(rows)
    rows[0, 2] = np.median(X[:, 2])
    np.testing.assert_array_equal(found, model.predict_proba(rows))


def test_weights_count_in_medians():
    values, weights = np.array([3.0, 1.0, 2.0, 10.0]), np.array([1.0, 2.0, 1.0, 3.0])
    assert _median(values, weights) == np.median(np.repeat(values, weights.astype(int)))
    assert _median(values, np.ones(4)) == np.median(values) == _median(values, None)


def test_a_column_without_any_value_is_marked_in_every_row():
    found = learn_filling(np.array([[np.nan, 1.0], [np.nan, 3.0]]), np.ones(2))
    np.testing.assert_array_equal(found.medians, [0.0, 2.0])
    expected = [[0.0, 2.0, 1.0]]
    np.testing.assert_array_equal(found.apply(np.full((1, 2), np.nan)), expected)
    assert isinstance(found, Filling)


def test_rows_of_no_weight_decide_nothing():
    rows = np.array([[1.0, 2.0], [3.0, 4.0], [np.nan, 100.0]])
    found = learn_filling(rows, np.array([1.0, 1.0, 0.0]))
    np.testing.assert_array_equal(found.medians, [2.0, 3.0])
    assert len(found.flagged) == 0


def test_sparse_rows_are_those_of_a_dense_fit():
    model = MixtureOfExpertsClassifier(3, **QUICK).fit(COMPLETE + 5.0, Y)
    expected = model.predict_proba(COMPLETE + 5.0)
    np.testing.assert_allclose(model.predict_proba(sp.csr_array(COMPLETE + 5.0)), expected)


def test_sparse_rows_have_no_missing_entries():
    with pytest.raises(ValueError, match="X: holds NaN"):
        MixtureOfExpertsClassifier(**QUICK).fit(sp.csr_array(X), Y)
    model = MixtureOfExpertsClassifier(3, **QUICK).fit(sp.csr_array(COMPLETE), Y)
    with pytest.raises(ValueError, match="X: holds NaN"):
        model.predict(X)


def test_rows_on_disk_are_filled_in_by_a_model_that_knows_how(tmp_path):
    np.save(tmp_path / "x.npy", X)
    source = NpyRows(tmp_path / "x.npy")
    model = MixtureOfExpertsClassifier(3, **QUICK).fit(X, Y)
    found = np.concatenate(list(model.predict_proba_stream(source)))
    np.testing.assert_allclose(found, model.predict_proba(X), atol=1e-6)
    with pytest.raises(ValueError, match=r"nan|NaN"):
        np.save(tmp_path / "y.npy", Y)
        both = NpyRows(tmp_path / "x.npy", tmp_path / "y.npy")
        MixtureOfExpertsClassifier(inference=Variational(n_passes=1)).fit_stream(both)
