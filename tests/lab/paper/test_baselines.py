"""Baselines: tuned on the training part alone, with probabilities that mean something."""

import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from wideangle.datasets import mixture_data
from wideangle_lab.paper import baselines
from wideangle_lab.paper.baselines import BASELINES, NAMES, fit_baseline, n_threads
from wideangle_lab.paper.metrics import evaluate


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """Neither threads nor a pool of processes for problems this small."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="module")
def rows():
    data = mixture_data(0, n_rows=500)
    return data.X[:300], data.y[:300], data.X[300:], data.y[300:]


def shrink_grid(monkeypatch, name, n_values):
    """Try few values of each setting; the slow test has the whole grid."""
    make = BASELINES[name]

    def smaller(*size):
        made = make(*size)
        return made._replace(grid={key: values[:n_values] for key, values in made.grid.items()})

    monkeypatch.setitem(BASELINES, name, smaller)


@pytest.mark.parametrize(("name", "n_values"), [("LR", 2), ("KSVM", 2), ("ISVM", 1)])
def test_probabilities_are_better_than_none(rows, name, n_values, monkeypatch):
    X, y, new, truth = rows
    shrink_grid(monkeypatch, name, n_values)
    model, chosen, found = fit_baseline(name, sp.csr_array(X), y, seed=0, n_folds=2)
    proba = model.predict_proba(sp.csr_array(new))
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    assert evaluate(truth, proba)["log_loss"] < 0.66
    assert any(key.startswith("validation_") for key in chosen)
    assert ("n_used" in found) == (name == "ISVM")


@pytest.mark.slow
@pytest.mark.parametrize("name", list(BASELINES))
def test_every_baseline_finds_the_experts(rows, name):
    X, y, new, truth = rows
    model, _, _ = fit_baseline(name, X, y, seed=0, n_folds=3)
    scores = evaluate(truth, model.predict_proba(new))
    assert scores["log_loss"] < 0.66
    assert scores["accuracy"] > 62
    assert name in NAMES


def test_the_width_of_kernels_is_in_units_of_the_rows(rows, monkeypatch):
    """The same rows in other units get the same kernel matrix at the same place of the grid."""
    X, y, new, _ = rows
    shrink_grid(monkeypatch, "KSVM", 2)
    one, chosen, _ = fit_baseline("KSVM", X, y, seed=0, n_folds=2)
    other, again, _ = fit_baseline("KSVM", 1024 * X, y, seed=0, n_folds=2)
    assert chosen["gamma"] == pytest.approx(again["gamma"], rel=1e-9)
    np.testing.assert_allclose(one.predict_proba(new), other.predict_proba(1024 * new), atol=1e-9)


def test_every_setting_is_tried_in_every_fold(rows, monkeypatch):
    X, y, _, _ = rows
    asked = []

    search = baselines.GridSearchCV

    def listen(model, grid, **more):
        asked.append((grid, more["cv"].n_splits, more["scoring"]))
        return search(model, grid, **more)

    monkeypatch.setattr(baselines, "GridSearchCV", listen)
    fit_baseline("LR", X, y, seed=0, n_folds=4)
    ((grid, n_splits, scoring),) = asked
    assert (n_splits, scoring) == (4, "neg_log_loss")
    assert len(grid["logisticregression__C"]) == 5


def test_settings_that_were_chosen_are_not_searched_again(rows, monkeypatch):
    X, y, _, _ = rows
    monkeypatch.setattr(baselines, "GridSearchCV", None)
    before = {"gamma": 0.3, "C": 10.0, "validation_accuracy": 80.0}
    model, chosen, _ = fit_baseline("KSVM", X, y, seed=1, n_folds=2, chosen=before)
    assert chosen == {"gamma": 0.3, "C": 10.0}
    inner = model.calibrated_classifiers_[0].estimator
    assert (inner["nystroem"].gamma, inner["linearsvc"].C) == (0.3, 10.0)


def test_a_worker_among_others_uses_one_thread(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert n_threads() == 1
