"""Settings objects in files: each comes back as it was, or is refused in plain words."""

import json

import jax
import numpy as np
import pytest

from wideangle import (
    DeterminantalComponents,
    DeterminantalPrior,
    GaussianComponents,
    GaussianPrior,
    IndianBuffet,
    LatentFeatureModel,
    Maximise,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MutualAngular,
    MutualAngularPrior,
    PitmanYor,
    PolarComponents,
    Sampling,
    SphericalMixture,
    Variational,
    VonMisesFisherPrior,
)
from wideangle.mixture_of_experts.files import prior_from_plain, prior_to_plain
from wideangle.settings import KINDS
from wideangle.storage.models import described, remade

OBJECTS = [
    GaussianPrior(scale=2.0, common=False),
    VonMisesFisherPrior(scale="learn"),
    MutualAngularPrior(cosine=0.3, kind="II", scale=0.5),
    DeterminantalPrior(scale=3.0),
    IndianBuffet(alpha=2.0),
    PitmanYor(discount="learn"),
    Sampling(n_warmup=3, n_draws=4, kernel="hmc", combine="stacking"),
    Variational(guide="vmf", diversity=(1.0, 2.0)),
    Maximise(n_starts=2, diversity=0.5),
]
OF_FEATURES = {IndianBuffet: "process", PitmanYor: "process"}


def models():
    for one in OBJECTS:
        name = OF_FEATURES.get(type(one), "inference" if hasattr(one, "n_starts") else "prior")
        name = "inference" if isinstance(one, Sampling) else name
        if type(one) in OF_FEATURES:
            yield LatentFeatureModel(**{name: one})
            continue
        yield MixtureOfExpertsClassifier(**{name: one})
        yield MixtureOfExpertsRegressor(**{name: one})
    yield MixtureOfExpertsClassifier(prior=(OBJECTS[0], "vmf"), class_weight="balanced")
    yield LatentFeatureModel(prior=OBJECTS[0], inference=Sampling(n_draws=5, hops=2))
    yield SphericalMixture(prior=MutualAngularPrior(cosine=0.3), inference=Sampling(n_draws=5))


def test_every_class_of_settings_is_tried():
    assert {type(one) for one in OBJECTS} == set(KINDS.values())


@pytest.mark.parametrize("model", list(models()), ids=lambda model: " ".join(repr(model).split()))
def test_settings_come_back_from_a_file(model):
    model.n_features_in_ = 3
    meta = json.loads(json.dumps(described(model)))
    again = remade(type(model), meta)
    assert repr(again) == repr(model)
    assert repr(again.get_params()) == repr(model.get_params())


class MyPrior(GaussianPrior):
    pass


class MyComponents(GaussianComponents):
    pass


ROWS = np.random.default_rng(0).normal(size=(40, 2))
CLASSES = (ROWS[:, 0] > 0).astype(int)
QUICK = {"inference": Maximise(n_passes=20, n_starts=2), "verbose": False, "random_state": 0}


@pytest.mark.usefixtures("compile_quickly")
@pytest.mark.parametrize(
    "prior",
    [MyPrior(), MyComponents(2, 3), ("gaussian", MyPrior())],
    ids=["settings", "distribution", "one of a pair"],
)
def test_a_class_of_the_user_is_refused_with_what_to_do(prior, tmp_path):
    model = MixtureOfExpertsClassifier(2, prior=prior, **QUICK).fit(ROWS, CLASSES)
    with pytest.raises(ValueError, match=r"prior: My\w+ is a class of your own.*pickle"):
        model.save(tmp_path / "model")


DISTRIBUTIONS = [
    GaussianComponents(2, 3, 2.0),
    DeterminantalComponents(2, 3, 1.5, 2.5, n_sweeps=7),
    PolarComponents(MutualAngular.from_cosine(2, 3, 0.4, "II"), 3.0, 0.1),
    PolarComponents(MutualAngular(2, 3, 1.0, first=np.array([0.0, 0.6, 0.8]))),
]


@pytest.mark.parametrize("prior", DISTRIBUTIONS, ids=lambda prior: type(prior).__name__)
def test_distributions_of_the_library_come_back_to_the_last_bit(prior):
    again = prior_from_plain(json.loads(json.dumps(prior_to_plain(prior))))
    assert jax.tree.structure(again) == jax.tree.structure(prior)
    for left, right in zip(jax.tree.leaves(again), jax.tree.leaves(prior), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.usefixtures("compile_quickly")
def test_a_model_with_distributions_as_priors_is_saved(tmp_path):
    pair = DISTRIBUTIONS[0], DISTRIBUTIONS[2]
    model = MixtureOfExpertsClassifier(2, prior=pair, **QUICK).fit(ROWS, CLASSES)
    model.save(tmp_path / "model")
    again = MixtureOfExpertsClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_proba(ROWS), model.predict_proba(ROWS))
    assert [type(one) for one in again.prior] == [type(one) for one in pair]
