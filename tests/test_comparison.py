import numpy as np
import pytest
from scipy.stats import t
from sklearn.datasets import make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from wideangle import (
    LatentFeatureModel,
    Maximise,
    MixtureOfExpertsClassifier,
    MutualAngularPrior,
    VonMisesFisherPrior,
    compare,
)
from wideangle.comparison import Comparison, without_repulsion


def test_the_twin_differs_in_the_repulsion_alone():
    prior = MutualAngularPrior(cosine=0.4, scale=2.0, magnitude_shape=3.0)
    model = MixtureOfExpertsClassifier(3, prior=prior, inference=Maximise(n_starts=2))
    twin = without_repulsion(model)
    assert isinstance(twin.prior, VonMisesFisherPrior) and model.prior is prior
    assert (twin.prior.scale, twin.prior.magnitude_shape) == (2.0, 3.0)
    assert (twin.n_experts, twin.inference.n_starts) == (3, 2)
    inside = without_repulsion(make_pipeline(StandardScaler(), LatentFeatureModel()))
    assert isinstance(inside[-1].prior, VonMisesFisherPrior)
    pair = without_repulsion(MixtureOfExpertsClassifier(prior=("gaussian", "mutual-angular")))
    assert pair.prior[0] == "gaussian" and isinstance(pair.prior[1], VonMisesFisherPrior)
    for other in (LogisticRegression(), LatentFeatureModel("vmf")):
        with pytest.raises(ValueError, match="no mutual-angular prior"):
            without_repulsion(other)


@pytest.mark.slow
def test_scores_are_those_of_cross_validation_and_the_interval_is_paired(compile_quickly):
    X, y = make_moons(60, noise=0.3, random_state=0)
    inference = Maximise(n_starts=1, n_passes=20)
    model = MixtureOfExpertsClassifier(2, inference=inference, verbose=False, random_state=0)
    found = compare(model, X, y, cv=3)
    folds = StratifiedKFold(3)
    expected = [
        cross_val_score(one, X, y, cv=folds, scoring="neg_log_loss")
        for one in (model, without_repulsion(model))
    ]
    np.testing.assert_allclose([found.with_repulsion, found.without], expected)
    gaps = expected[0] - expected[1]
    error = np.sqrt((1 / 3 + 1 / 2) * gaps.var(ddof=1))
    assert np.isclose(found.difference, gaps.mean())
    assert np.isclose(found.high - found.difference, t.ppf(0.975, 2) * error)
    assert not hasattr(model, "classes_")


@pytest.mark.parametrize(
    ("ends", "advice"),
    [((0.1, 0.3), "keep the repulsion"), ((-0.3, -0.1), "leave the repulsion out"),
     ((-0.1, 0.3), "no clear difference")],
)  # fmt: skip
def test_the_sentence_follows_from_the_interval(ends, advice):
    found = Comparison(float(np.mean(ends)), *ends, np.zeros(5), np.zeros(5))
    assert (
        str(found).endswith(f"5 folds): {advice}.")
        or f": {advice} (" in str(found)
        or (f": {advice}, " in str(found))
    )
