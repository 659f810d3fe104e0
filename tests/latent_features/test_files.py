"""Model files: arrays and JSON that come back to the last bit, or are refused in plain words."""

from pathlib import Path

import numpy as np
import pytest

from latent_features.feature_fits import GAPS, X, fit, fitted
from wideangle import LatentFeatureModel
from wideangle.storage import StorageError, load_bundle, save_bundle

KIND = "latent-feature-model"


@pytest.mark.parametrize("name", ["complete", "gaps", "noise"])
def test_a_loaded_model_is_the_same(name, tmp_path):
    model = fitted(name)
    model.save(tmp_path / "model")
    again = LatentFeatureModel.load(tmp_path / "model")
    for method in ("transform", "reconstruct", "score_samples"):
        np.testing.assert_array_equal(getattr(again, method)(GAPS), getattr(model, method)(GAPS))
    np.testing.assert_array_equal(again.sample(5), model.sample(5))
    mask = np.zeros(X.shape, bool)
    mask[3, 2] = mask[8, 1] = True
    for left, right in zip(again.score_entries(X, mask), model.score_entries(X, mask), strict=True):
        np.testing.assert_array_equal(left, right)
    for left, right in ((again.posterior_, model.posterior_), (again.trace_, model.trace_)):
        assert set(left.values) == set(right.values)
        for key, values in left.values.items():
            np.testing.assert_array_equal(values, right.values[key])
    np.testing.assert_array_equal(again.start_objectives_, model.start_objectives_)
    assert again.summary() == model.summary()
    assert repr(again) == repr(model)
    np.testing.assert_array_equal(again.get_feature_names_out(), model.get_feature_names_out())


def test_names_paths_and_generators_in_settings(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    model = fit(frame, checkpoint=tmp_path / "folder", random_state=np.random.RandomState(0))
    model.save(tmp_path / "model")
    again = LatentFeatureModel.load(tmp_path / "model")
    assert again.feature_names_in_.tolist() == list("abcdef")
    assert Path(again.checkpoint) == tmp_path / "folder"
    assert again.random_state is None
    np.testing.assert_array_equal(again.transform(frame), model.transform(frame))


@pytest.mark.parametrize("damage", ["truncated", "altered", "empty", "other kind", "no file"])
def test_a_damaged_or_wrong_file_is_refused_in_plain_words(damage, tmp_path):
    path = tmp_path / "model"
    fitted().save(path)
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
        save_bundle(path, {"shift": np.zeros(3)}, {}, kind="something else")
    with pytest.raises(StorageError, match="model"):
        LatentFeatureModel.load(path)


def without(name):
    return lambda arrays, meta: arrays.pop(name)


def cut(name):
    return lambda arrays, meta: arrays.update({name: arrays[name][:-1]})


WRONG = {
    "no draws": lambda arrays, meta: [
        arrays.pop(k) for k in list(arrays) if k.startswith("draws_")
    ],
    "no scale": lambda arrays, meta: meta.pop("scale"),
    "a setting nobody knows": lambda arrays, meta: meta["settings"].update(colour="red"),
    "a setting out of range": lambda arrays, meta: meta["settings"]["inference"]["params"].update(
        n_draws=0
    ),
    "a class nobody knows": lambda arrays, meta: meta["settings"].update(
        prior={"class": "Path", "params": {}}
    ),
    "another number of columns": lambda arrays, meta: meta.update(n_features=7),
    "another number of rows": lambda arrays, meta: meta.update(n_rows=7),
    "no components": without("matched_components"),
    "too few chains": cut("chains"),
    "too short a shift": cut("shift"),
    "too few features": cut("draws_vectors"),
    "too few indices": cut("matched_index"),
    "indices out of range": lambda arrays, meta: arrays.update(
        matched_index=arrays["matched_index"] + 100
    ),
    "indices before the first": lambda arrays, meta: arrays.update(
        matched_index=arrays["matched_index"] - 100
    ),
    "more chains than there is memory": lambda arrays, meta: arrays.update(
        chains=np.full_like(arrays["chains"], 2**60)
    ),
    "fewer features than none": lambda arrays, meta: arrays["draws_n_features"].__imul__(-1),
    "features that are no numbers when squared": lambda arrays, meta: arrays["draws_vectors"].fill(
        1e37
    ),
    "no columns": lambda arrays, meta: meta.update(n_features=0),
}


@pytest.mark.parametrize("name", WRONG)
def test_contents_that_do_not_fit_together_are_refused(name, tmp_path):
    path = tmp_path / "model"
    fitted().save(path)
    arrays, meta = load_bundle(path, KIND)
    WRONG[name](arrays, meta)
    save_bundle(path, arrays, meta, kind=KIND)
    with pytest.raises(StorageError, match="not a model this version can read"):
        LatentFeatureModel.load(path)


def test_an_unfitted_model_is_not_saved(tmp_path):
    with pytest.raises(ValueError, match="fit"):
        LatentFeatureModel().save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
