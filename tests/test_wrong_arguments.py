"""What estimators cannot use is refused in their own words, with its place."""

import os
import signal
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from fitted import features
from wideangle import (
    LatentFeatureModel,
    Maximise,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    Sampling,
    SphericalMixture,
    registry,
)

ROWS = 6
FRAME = pd.DataFrame(np.arange(2.0 * ROWS).reshape(ROWS, 2), columns=["a", "b"])
CLASSES = [0, 1] * (ROWS // 2)
HALF = "b\ud800"


def experts(**settings):
    ascent = Maximise(n_passes=1, n_starts=1)
    base = {"prior": "gaussian", "inference": ascent, "verbose": False, "random_state": 0}
    return MixtureOfExpertsClassifier(2, **(base | settings))


@pytest.mark.parametrize(
    ("weights", "place"),
    [({0: -1.0, 1: 1.0}, "0"), ({0: 1.0, 1: np.nan}, "1"), ({0: np.inf}, "0"), ({1: "a"}, "1"),
     ({"x": None}, "'x'")],
)  # fmt: skip
def test_weights_of_classes_are_finite_and_not_negative(weights, place):
    with pytest.raises(ValueError, match=rf"class_weight\[{place}\]="):
        experts(class_weight=weights).fit(FRAME, CLASSES)


def words(kind):
    return pd.Series(["x", "y"] * (ROWS // 2), dtype=kind)


TABLES = {
    "words": (FRAME.assign(c=words(object)), r"column 'c' \(object\) holds 'x' in row 0"),
    "categories": (FRAME.assign(c=words("category")), r"column 'c' \(category\) holds 'x'"),
    "periods": (
        FRAME.assign(c=pd.period_range("2020", periods=ROWS, freq="D")),
        r"column 'c' \(period\[D\]\) holds Period\('2020-01-01', 'D'\) in row 0",
    ),
    "dates": (FRAME.assign(c=pd.date_range("2020", periods=ROWS)), "column 'c' .* in row 0"),
    "spans": (FRAME.assign(c=pd.to_timedelta(np.arange(ROWS), "D")), "column 'c' .* in row 0"),
    "intervals": (FRAME.assign(c=pd.interval_range(0, ROWS)), "column 'c' .* in row 0"),
    "complex": (FRAME.assign(c=1j), "column 'c' .* in row 0"),
    "lists": (
        FRAME.assign(c=[[1.0, 2.0]] * ROWS),
        r"column 'c' \(object\) holds \[1.0, 2.0\] in row 0",
    ),
    "sparse without another value": (
        FRAME.astype(pd.SparseDtype(float, np.nan)),
        "other values than 0",
    ),
    "the same name": (FRAME.set_axis(["a", "a"], axis=1), "2 columns have the name 'a'"),
    "half a character": (
        FRAME.set_axis(pd.Index(["a", HALF], dtype=object), axis=1),
        r"the name 'b\\ud800' of a column holds half a character",
    ),
}


def broken(kind, part, place, value):
    """Sparse rows with one index changed."""
    rows = kind(FRAME.to_numpy() + 1.0)
    array = getattr(rows, part).copy()
    array[place] = value
    setattr(rows, part, array)
    return rows


ARRAYS = {
    "masked": (np.ma.masked_less(FRAME.to_numpy(), 3.0), "some entries are masked"),
    "dates": (np.full((ROWS, 2), np.datetime64("2020-01-01")), r"X: holds datetime64\[D\]"),
    "spans": (np.full((ROWS, 2), np.timedelta64(1, "h")), r"X: holds timedelta64\[h\]"),
    # SciPy would read or write memory that is not its own: the process may end.
    **{
        f"{kind.__name__}, {part}[{place}] = {value}": (broken(kind, part, place, value), "not fit")
        for kind in (sp.csr_array, sp.csr_matrix, sp.csc_array)
        for part, place, value in [
            ("indices", 0, -1), ("indices", 3, 10**6), ("indptr", 0, 1), ("indptr", 1, -5),
            ("indptr", 1, 10**6), ("indptr", -1, 10**6),
        ]
    },
}  # fmt: skip
MODELS = pytest.mark.parametrize(
    "model",
    [experts(), MixtureOfExpertsRegressor(), LatentFeatureModel(), SphericalMixture()],
    ids=["classes", "quantity", "features", "clusters"],
)


@MODELS
@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_that_do_not_say_what_they_hold_are_refused(model, case):
    X, message = ARRAYS[case]
    with pytest.raises(ValueError, match=message):
        model.fit(X, CLASSES)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (MixtureOfExpertsClassifier(10**9), "n_experts"),
        (SphericalMixture(10**9), "n_components"),
        (experts(inference=Maximise(n_starts=10**9)), "n_starts"),
        (LatentFeatureModel(inference=Sampling(n_chains=10**9)), "n_chains"),
        (LatentFeatureModel(inference=Sampling(max_features=10**9)), "max_features"),
    ],
)
def test_numbers_that_no_memory_holds_are_refused(model, name):
    with pytest.raises(ValueError, match=rf"'{name}' .* in the range \[1, 10000\]"):
        model.fit(FRAME, CLASSES)


MASKED = np.ma.masked_equal(CLASSES, 1)
DATES = np.full(ROWS, np.datetime64("2020-01-01"))


@pytest.mark.parametrize("y", [MASKED, DATES, DATES - DATES], ids=["masked", "dates", "spans"])
@pytest.mark.parametrize("model", [experts(), MixtureOfExpertsRegressor()], ids=type)
def test_targets_and_weights_are_what_they_say(model, y):
    with pytest.raises(ValueError, match=r"y: (some entries are masked|holds (date|time))"):
        model.fit(FRAME, y)
    for one in (model, SphericalMixture()):
        with pytest.raises(ValueError, match=r"sample_weight: (some entries|holds)"):
            one.fit(FRAME, CLASSES, sample_weight=y)


@pytest.mark.parametrize(
    "y", [np.array([None, *CLASSES[1:]], object), np.full(ROWS, np.longdouble("1e4000"))]
)
def test_numbers_to_predict_are_finite_in_double_precision(y):
    with pytest.raises(ValueError, match=r"Input y contains (NaN|infinity)"):
        MixtureOfExpertsRegressor().fit(FRAME, y)


def test_masked_arrays_without_a_masked_entry_are_arrays():
    experts().fit(np.ma.masked_less(FRAME.to_numpy(), -3.0), CLASSES)


@MODELS
@pytest.mark.parametrize("table", TABLES)
def test_columns_that_are_not_numbers_are_named(model, table):
    X, message = TABLES[table]
    with pytest.raises(ValueError, match=message):
        model.fit(X, CLASSES)


def test_columns_of_new_rows_are_named_too():
    model = experts().fit(FRAME, CLASSES)
    for method in (model.predict, model.predict_proba, model.gate_proba):
        with pytest.raises(ValueError, match=r"column 'b' .* holds 'x' in row 0"):
            method(FRAME.assign(b=words(object)))


LABELS = {
    "words and numbers": ([1, "x"], "row 0 has the label 1 and row 1 'x'"),
    "in an array": (np.array(["x", 1], object), "row 0 has the label 'x' and row 1 1"),
    "none": (["x", None], "the label of row 1 is missing"),
    "NaN": (np.array([0.0, np.nan], object), "the label of row 1 is missing"),
    "NA": (pd.Series(["x", None], dtype="string"), "the label of row 1 is missing"),
    "no category": (pd.Categorical(["x", None]), "the label of row 1 is missing"),
    "periods": (pd.period_range("2020", periods=2, freq="D"), "the label of row 0 is a Period"),
    "dictionaries": (np.array([{}, {"a": 1}], object), "the label of row 0 is a dict"),
    "half a character": (["x", HALF], r"the label 'b\\ud800' of row 1 holds half a character"),
}


@pytest.mark.parametrize("case", LABELS)
def test_labels_that_are_no_classes_are_named(case):
    y, message = LABELS[case]
    with pytest.raises(ValueError, match=message):
        experts().fit(FRAME[:2], y)


@pytest.mark.parametrize(
    "y", [words("category"), pd.Categorical(words(object)), words("string"), list(words(object))]
)
def test_words_are_labels_however_they_are_kept(y):
    assert experts().fit(FRAME, y).classes_.tolist() == ["x", "y"]


@pytest.mark.parametrize(
    "y", [["1.5", "many"], np.array([2, "many"], object), pd.Series(["1", "many"])]
)
def test_words_are_no_quantities(y):
    with pytest.raises(ValueError, match="y: row 1 is 'many', which is no number"):
        MixtureOfExpertsRegressor().fit(FRAME[:2], y)


@pytest.mark.parametrize("path", [None, 5, "", []])
def test_paths_are_paths(path):
    message = r"must be a path, as text or as a pathlib\.Path"
    model = features()
    for method in (model.save, LatentFeatureModel.load, MixtureOfExpertsClassifier.load):
        with pytest.raises(ValueError, match=message):
            method(path)
    if path is not None:
        for estimator in (experts(inference="vi"), LatentFeatureModel()):
            with pytest.raises(ValueError, match=f"checkpoint=.*{message}"):
                estimator.set_params(checkpoint=path).fit(FRAME, CLASSES)


@pytest.mark.parametrize("n_samples", [-1, 1.5, "2", None])
def test_numbers_of_samples_are_whole(n_samples):
    model: Any = features()
    with pytest.raises(ValueError, match=r"n_samples=.*whole number, at least 0"):
        model.sample(n_samples)
    assert model.sample(0).shape == (0, 36)


def in_a_fork(action):
    """What a forked process says: "done", or its error; one that hangs is ended."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns of what is tested here
        process = os.fork()
    if process == 0:
        signal.alarm(30)
        try:
            action()
            said = "done"
        except RuntimeError as error:
            said = str(error)
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(process, 0)
    with os.fdopen(reader) as file:
        return file.read()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_predicts_and_refuses_what_it_would_wait_for(tmp_path):
    model = experts().fit(FRAME, CLASSES)
    model.save(tmp_path / "model")
    many = pd.concat([FRAME] * 4000)  # in threads, which a fork does not take along
    model.predict_proba(many)
    assert in_a_fork(lambda: model.predict_proba(many)) == "done"
    assert in_a_fork(lambda: model.predict_uncertainty(FRAME)) == "done"
    for action in (
        lambda: model.fit(FRAME, CLASSES),
        lambda: MixtureOfExpertsClassifier.load(tmp_path / "model"),
        lambda: model.diversity_,
        lambda: LatentFeatureModel().fit(FRAME),
    ):
        assert "processes that are spawned" in in_a_fork(action)


@pytest.mark.parametrize("name", registry.FAMILIES)
def test_no_model_has_more_than_ten_parameters(name):
    assert len(registry.estimator_of(name)().get_params(deep=False)) <= 10
