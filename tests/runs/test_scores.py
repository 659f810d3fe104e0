from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import sem
from sklearn.base import BaseEstimator
from sklearn.metrics import brier_score_loss, log_loss

from wideangle.latent_features.presentation import FeaturePresentation
from wideangle.presentation.classifier import reliability, score_classes
from wideangle.presentation.family import standard_error
from wideangle.presentation.records import Sample, Scored, sampled_rows
from wideangle.runs.folder import load_sample, save_sample
from wideangle.runs.train import mean_row, split_rows
from wideangle.storage import StorageError
from wideangle.storage.files import as_finite


def test_scores_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    proba, y = rng.dirichlet(np.ones(3), 200), rng.integers(0, 3, 200)
    shares = np.array([0.5, 0.3, 0.2])
    found = score_classes(proba, y, shares)
    assert found["log_loss"] == pytest.approx(log_loss(y, proba))
    assert found["log_loss_of_guess"] == pytest.approx(log_loss(y, np.tile(shares, (200, 1))))
    assert found["accuracy"] == np.mean(proba.argmax(1) == y)
    assert found["accuracy_of_guess"] == np.mean(y == 0)
    each = [brier_score_loss(y == c, proba[:, c]) for c in range(3)]
    assert found["brier"] == pytest.approx(sum(each))


def test_standard_errors():
    values = np.array([1.0, 2.0, 4.0])
    assert standard_error(values) == pytest.approx(sem(values))
    assert standard_error(values[:1]) is None


class Halves(BaseEstimator):
    """A model of nothing: every entry is predicted by half of itself."""

    def fit(self, X):
        return self

    def __sklearn_is_fitted__(self):
        return True

    def reconstruct(self, X):
        return dense(X) / 2

    def score_samples(self, X):
        return np.nansum(dense(X), axis=1)

    def score_entries(self, X, mask):
        return SimpleNamespace(mean=dense(X)[mask] / 2, log_density=np.full(mask.sum(), -3.0))


def dense(X):
    return X.toarray() if sp.issparse(X) else X


@pytest.mark.parametrize("make", [np.array, sp.csr_array])
def test_scores_of_features_by_hand(make):
    rng = np.random.default_rng(0)
    plain = rng.normal(size=(200, 30))
    if make is np.array:
        plain[rng.random(plain.shape) < 0.2] = np.nan
    rows = Scored(make(plain), None, np.full(30, 0.1), np.zeros(0), seed=0)
    found = FeaturePresentation(Halves()).score(rows)
    rms = np.sqrt(np.nanmean(plain**2))
    assert found["reconstruction_error"] == pytest.approx(rms / 2)
    of_mean = np.sqrt(np.nanmean((plain - 0.1) ** 2))
    assert found["reconstruction_error_of_mean"] == pytest.approx(of_mean)
    sums = np.nansum(plain, axis=1)
    assert found["log_likelihood"] == pytest.approx(sums.mean())
    assert found["log_likelihood_error"] == pytest.approx(sem(sums))
    n_seen = np.sum(~np.isnan(plain))
    assert abs(found["n_hidden"] / n_seen - 0.1) < 4 * np.sqrt(0.09 / n_seen)
    assert found["hidden_error"] == pytest.approx(rms / 2, rel=0.15)
    assert found["hidden_error_of_mean"] == pytest.approx(of_mean, rel=0.15)
    assert found["hidden_log_density"] == -3.0


@pytest.mark.parametrize("make", [np.array, sp.csr_array])
def test_the_mean_row_leaves_out_what_is_missing(make):
    rows = make([[1.0, 0.0], [2.0, 4.0]])
    np.testing.assert_allclose(mean_row(rows), [1.5, 2.0])
    if make is np.array:
        rows[0, 0] = np.nan
        np.testing.assert_allclose(mean_row(rows), [2.0, 2.0])


def test_calibration_by_hand():
    found = score_classes(np.array([[0.8, 0.2]] * 4), np.array([0, 0, 1, 1]), np.ones(2) / 2)
    assert found["calibration_error"] == pytest.approx(0.3)


@pytest.mark.parametrize("n_rows", [30, 300])
def test_how_large_calibration_errors_are_by_chance(n_rows):
    rng = np.random.default_rng(0)
    proba = rng.uniform(0.5, 1.0, n_rows)
    found = [reliability(rng.random(n_rows) < proba, proba) for _ in range(400)]
    larger = np.mean([one.error > one.by_chance for one in found])
    assert 0.02 < larger < 0.12


def test_a_share_of_every_class_is_held_out():
    classes = np.repeat([0, 1, 2], [100, 50, 1])
    split = split_rows(151, 0.2, 0, classes)
    assert np.bincount(classes[split.test], minlength=3).tolist() == [20, 10, 0]
    np.testing.assert_array_equal(np.sort(np.concatenate(split)), np.arange(151))
    assert (np.diff(split.test) > 0).all() and (np.diff(split.train) > 0).all()
    again = split_rows(151, 0.2, 0, classes)
    np.testing.assert_array_equal(again.test, split.test)
    assert not np.array_equal(split_rows(151, 0.2, 1, classes).test, split.test)


def test_small_classes_are_held_out_at_random_and_never_whole():
    assert all(len(split_rows(1, 0.9, seed, np.zeros(1, int)).test) == 0 for seed in range(20))
    sizes = [len(split_rows(2, 0.5, seed, np.array([0, 0])).test) for seed in range(50)]
    assert sizes == [1] * 50
    three = [len(split_rows(3, 0.5, seed, np.zeros(3, int)).test) for seed in range(400)]
    # 1.5 rows on average, so one or two; 4 standard errors.
    assert set(three) == {1, 2} and abs(np.mean(three) - 1.5) < 4 * 0.5 / 20


def test_rows_without_classes():
    assert len(split_rows(10, 0.2, 0).test) == 2
    assert len(split_rows(10, 0.0, 0).test) == 0
    assert len(split_rows(2, 0.9, 0).train) == 1


def test_few_and_narrow_enough_rows_are_kept():
    assert sampled_rows(5, 3).tolist() == [0, 1, 2, 3, 4]
    assert len(sampled_rows(10_000, 3)) == 2000
    assert len(sampled_rows(10_000, 5_000)) == 400
    assert len(sampled_rows(10_000, 10**6)) == 50


@pytest.mark.parametrize("make", [np.array, sp.csr_array])
def test_samples_on_disk(tmp_path, make):
    X = make([[0.0, 1.0], [np.nan, 0.0]])
    sample = Sample(X, np.array([4, 9]), np.array([1, 0]), {"proba": np.eye(2)})
    save_sample(sample, tmp_path / "s")
    again = load_sample(tmp_path / "s")
    np.testing.assert_array_equal(dense(again.X), dense(X))
    assert sp.issparse(again.X) == sp.issparse(X)
    assert again.y.tolist() == [1, 0] and again.rows.tolist() == [4, 9]
    np.testing.assert_array_equal(again.values["proba"], np.eye(2))
    save_sample(Sample(X, np.array([4, 9]), None, {"proba": np.eye(3)}), tmp_path / "s")
    with pytest.raises(StorageError, match="lengths differ"):
        load_sample(tmp_path / "s")


def test_numbers_that_json_cannot_hold():
    plain = as_finite({"a": [np.float32(1), float("nan"), (np.int64(2), "x")], 3: np.inf})
    assert plain == {"a": [1.0, None, [2, "x"]], "3": None}
