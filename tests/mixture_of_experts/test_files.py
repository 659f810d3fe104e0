from datetime import date
from functools import cache

import jax
import numpy as np
import pytest

from wideangle import (
    GaussianPrior,
    Maximise,
    MixtureOfExpertsClassifier,
    MutualAngularPrior,
    Sampling,
)
from wideangle.mixture_of_experts import files
from wideangle.storage import StorageError, load_bundle, save_bundle

pytestmark = [
    pytest.mark.usefixtures("compile_quickly"),
    pytest.mark.filterwarnings("ignore:.*(R-hat|effective sample|ESS|diverg|chains)"),
]

X = np.random.default_rng(0).normal(size=(60, 2))
Y = (X[:, 0] * X[:, 1] > 0).astype(int)
# Without a common expert there is no shrinkage to be found by cross-validation.
QUICK = {"inference": Maximise(n_passes=20, n_starts=2), "prior": GaussianPrior(common=False)}


def fit(y=Y, rows=X, **settings):
    base = QUICK | {"verbose": False, "random_state": 0}
    return MixtureOfExpertsClassifier(3, **(base | settings)).fit(rows, y)


usual = cache(fit)
"""A fitted model that no test changes."""


SETTINGS = {
    "map": QUICK | {"prior": "gaussian"},
    "mcmc": {
        "inference": Sampling(n_warmup=8, n_draws=6, n_chains=2),
        "prior": MutualAngularPrior(cosine=0.3),
    },
    "a pair of priors": QUICK | {"prior": (GaussianPrior(scale=2.0), "mutual-angular")},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_loaded_model_predicts_the_same_bits(name, tmp_path):
    model = fit(**SETTINGS[name])
    model.save(tmp_path / "model.safetensors")
    again = MixtureOfExpertsClassifier.load(tmp_path / "model.safetensors")
    assert again.scaling_.limit == model.scaling_.limit
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(again.gate_proba(X), model.gate_proba(X))
    np.testing.assert_array_equal(again.predict_uncertainty(X), model.predict_uncertainty(X))
    assert again.summary() == model.summary()
    assert repr(again) == repr(model)
    found, expected = ((m.priors_, m.posterior_.values) for m in (again, model))
    for left, right in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["no", "yes"]),
        np.array(["no", "yes"], object),
        np.array([False, True]),
        np.array([-1, 7], np.int8),
        np.array([0.0, 2.0]),
    ],
    ids=lambda labels: labels.dtype.name,
)
def test_classes_of_any_kind_come_back(labels, tmp_path):
    weight = dict(zip(labels.tolist(), (1.0, 2.0), strict=True))
    model = fit(labels[Y], class_weight=weight)
    model.save(tmp_path / "m")
    again = MixtureOfExpertsClassifier.load(tmp_path / "m")
    assert again.classes_.dtype == model.classes_.dtype
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.class_weight == weight


@pytest.mark.parametrize("damage", ["truncated", "altered", "empty", "other kind", "no file"])
def test_a_damaged_or_wrong_file_is_refused_in_plain_words(damage, tmp_path):
    path = tmp_path / "model"
    usual().save(path)
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        path.write_bytes(content[:-10])
    elif damage == "altered":
        content[-5] ^= 1
        path.write_bytes(content)
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "no file":
        path.unlink()
    else:
        save_bundle(path, {"gate": np.zeros(3)}, {}, kind="something else")
    with pytest.raises(StorageError, match="model"):
        MixtureOfExpertsClassifier.load(path)


def test_a_file_of_the_right_kind_without_the_right_content_is_refused(tmp_path):
    path = tmp_path / "model"
    save_bundle(path, {"gate": np.zeros(3)}, {}, kind="mixture-of-experts-classifier")
    with pytest.raises(StorageError, match="not a model"):
        MixtureOfExpertsClassifier.load(path)


def test_what_cannot_be_saved_is_refused(tmp_path):
    with pytest.raises(ValueError, match="fit"):
        MixtureOfExpertsClassifier().save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


FORGED = {
    "another number of columns": lambda arrays, meta: meta.update(n_features=7),
    "another number of experts": lambda arrays, meta: meta["settings"].update(n_experts=2**40),
    "no draws": lambda arrays, meta: arrays.update(gate=arrays["gate"][:, :0]),
    "a weight that is no number": lambda arrays, meta: arrays["experts"].fill(np.nan),
    "a scale of zero": lambda arrays, meta: arrays["scale"].fill(0.0),
    "three classes": lambda arrays, meta: meta["classes"]["values"].append(2),
    "no classes": lambda arrays, meta: meta["classes"].update(values=[]),
    "classes of code": lambda arrays, meta: meta["classes"].update(dtype="V8"),
    "classes without end": lambda arrays, meta: meta["classes"].update(dtype="<U100000000"),
    "classes that are dictionaries": lambda arrays, meta: meta["classes"].update(
        dtype="|O", values=[{}, {"a": 1}]
    ),
    "classes out of order": lambda arrays, meta: meta["classes"]["values"].reverse(),
    "weights whose products are no numbers": lambda arrays, meta: arrays["gate"].fill(1e37),
    "no columns": lambda arrays, meta: meta.update(n_features=0),
    "names that are no names": lambda arrays, meta: meta.update(feature_names={"a": 1}),
    "notes that are no notes": lambda arrays, meta: meta.update(notes=[1, 2]),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_contents_are_refused(name, tmp_path):
    path, kind = tmp_path / "model", "mixture-of-experts-classifier"
    usual().save(path)
    arrays, meta = load_bundle(path, kind)
    FORGED[name](arrays, meta)
    save_bundle(path, arrays, meta, kind=kind)
    with pytest.raises(StorageError, match="not a model this version can read"):
        MixtureOfExpertsClassifier.load(path)


def test_classes_that_would_fill_the_memory_are_refused_before_they_do():
    many = 60_000
    stored = {"dtype": "<U16384", "values": [str(place) for place in range(many)]}
    with pytest.raises(ValueError, match="60000 classes of type <U16384"):
        files.classes_from(stored, many)


def test_classes_that_no_file_holds_are_refused():
    stored = {"dtype": "<M8[D]", "values": [date(2020, 1, 1), date(2021, 1, 1)]}
    with pytest.raises(ValueError, match="not words or numbers"):
        files.classes_from(stored, 1)


def test_weights_that_single_precision_cannot_count_are_refused():
    for weights, words in ((1e300, "divide all weights"), (1e-300, "all rows have weight 0")):
        with pytest.raises(ValueError, match=words):
            MixtureOfExpertsClassifier().fit(X, Y, sample_weight=np.full(len(Y), weights))
