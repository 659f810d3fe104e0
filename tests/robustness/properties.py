"""What must hold for every input: a clear error, or an answer that is finite and adds up."""

import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import sklearn

import wideangle
from robustness.inputs import Case
from wideangle import LatentFeatureModel, MixtureOfExpertsClassifier
from wideangle.convergence import ConvergenceWarning
from wideangle.latent_features.state import RoomError

EXPECTED = (ConvergenceWarning,)
OVERFITTED = "In cross-validation the most probable weights"
"""Labels of these cases are noise, and a maximum is expected to say so."""
OUR_CODE = tuple(str(Path(package.__file__).parent) for package in (wideangle, sklearn))
LEAST_WORDS = 4


def outcome(action: Any, wrong: set[str]) -> str:
    """ "right" or "refused"; anything else is a defect and raised.

    A refusal counts as clear if it is a ValueError or TypeError in words that was raised by a
    check: the innermost frame is this library's or scikit-learn's, not one of NumPy or JAX that
    the data happened to reach.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            action()
        except (ValueError, TypeError, RoomError) as error:
            place = traceback.extract_tb(error.__traceback__)[-1].filename
            assert place.startswith(OUR_CODE), f"raised in {place}: {error}"
            assert len(str(error).split()) >= LEAST_WORDS, f"says too little: {error!r}"
            return "refused"
    assert not wrong, f"accepted, but {wrong}"
    strange = [str(one.message) for one in caught if not issubclass(one.category, EXPECTED)]
    strange = [message for message in strange if not message.startswith(OVERFITTED)]
    assert not strange, strange
    return "right"


def experts_answer(case: Case) -> None:
    """Fit, and look at every prediction."""
    model = MixtureOfExpertsClassifier().set_params(**case.settings)
    model.fit(case.X, case.y, sample_weight=case.sample_weight)
    check_experts(model, case.X)
    again = _through_a_file(model)
    np.testing.assert_array_equal(again.predict_proba(case.X), model.predict_proba(case.X))


def check_experts(model: MixtureOfExpertsClassifier, X: Any) -> None:
    """Probabilities are probabilities, classes are classes, and no number is lost."""
    proba = model.predict_proba(X)
    assert proba.shape == (X.shape[0], len(model.classes_))
    assert np.isfinite(proba).all()
    assert proba.min() >= 0.0
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-4)
    assert set(model.predict(X).tolist()) <= set(model.classes_.tolist())
    for part in model.predict_uncertainty(X):
        assert np.isfinite(part).all()
        assert part.min() >= 0.0
    gate = model.gate_proba(X)
    assert np.isfinite(gate).all()
    np.testing.assert_allclose(gate.sum(axis=1), 1.0, atol=1e-4)
    assert np.isfinite(model.experts_).all()
    assert np.isfinite(model.gates_).all()
    assert model.summary()


def features_answer(case: Case) -> None:
    """Fit, and look at everything that is derived."""
    model = LatentFeatureModel().set_params(**case.settings).fit(case.X)
    check_features(model, case.X)
    again = _through_a_file(model)
    np.testing.assert_array_equal(again.reconstruct(case.X), model.reconstruct(case.X))


def _through_a_file(model: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        return type(model).load(Path(folder) / "model")


def check_features(model: LatentFeatureModel, X: Any) -> None:
    """Activations are probabilities, reconstructions and scores are numbers."""
    active = model.transform(X)
    assert active.shape == (X.shape[0], model.n_components_)
    assert np.isfinite(active).all()
    assert ((active >= 0.0) & (active <= 1.0)).all()
    assert np.isfinite(model.reconstruct(X)).all()
    assert not np.isnan(model.score_samples(X)).any()
    assert np.isfinite(model.components_).all()
    assert np.isfinite(model.inverse_transform(active)).all()
    assert np.isfinite(model.sample(3)).all()
    assert np.isfinite(model.noise_scale_)
    assert model.noise_scale_ >= 0.0
    dense = X.toarray() if sp.issparse(X) else X
    assert dense.shape == model.reconstruct(X).shape
    assert model.summary()
