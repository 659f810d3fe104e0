"""What fitted models of all families have in common: NumPy's arrays, names of columns, ArviZ."""

import jax
import numpy as np
import pandas as pd
import pytest

from wideangle import (
    LatentFeatureModel,
    Maximise,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    Sampling,
    SphericalMixture,
    Variational,
)

pytestmark = [
    pytest.mark.usefixtures("compile_quickly"),
    pytest.mark.filterwarnings("ignore"),  # of chains this short
]

TABLE = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 3)), columns=["a", "b", "c"])
Y = (TABLE["a"] > 0).astype(int)
CHAINS = Sampling(n_warmup=4, n_draws=4, n_chains=2)
STARTS = Variational(n_passes=3, n_starts=3)
QUICK = Maximise(n_passes=5, n_starts=2)
MODELS = {
    "classes, mcmc": lambda: MixtureOfExpertsClassifier(2, inference=CHAINS),
    "classes, vi": lambda: MixtureOfExpertsClassifier(2, inference=STARTS),
    "classes, map": lambda: MixtureOfExpertsClassifier(2, inference=QUICK),
    "classes, map, vmf": lambda: MixtureOfExpertsClassifier(2, inference=QUICK, prior="vmf"),
    "quantities, map": lambda: MixtureOfExpertsRegressor(2, inference=QUICK),
    "features": lambda: LatentFeatureModel(inference=CHAINS),
    "clusters, map": lambda: SphericalMixture(2, inference=QUICK),
    "clusters, mcmc": lambda: SphericalMixture(2, inference=CHAINS),
}
FITTED = {}


def fitted(name):
    if name not in FITTED:
        FITTED[name] = MODELS[name]().set_params(random_state=0, verbose=False).fit(TABLE, Y)
    return FITTED[name]


@pytest.mark.parametrize("name", MODELS)
def test_fitted_attributes_are_arrays_of_numpy(name):
    model = fitted(name)
    public = [one for one in dir(model) if one.endswith("_") and not one.startswith("_")]
    assert len(public) > 5
    for attribute in (*public, *vars(model)):
        leaves = jax.tree.leaves(getattr(model, attribute, None))
        assert not any(isinstance(leaf, jax.Array) for leaf in leaves), attribute


@pytest.mark.parametrize("name", [name for name in MODELS if name != "clusters, map"])
def test_arviz_knows_the_names_of_columns(name):
    pytest.importorskip("arviz")
    raw = fitted(name).to_arviz()["posterior_raw"]
    assert list(raw.coords["column"].values)[:3] == ["a", "b", "c"]


def test_starts_of_an_approximation_do_not_pose_as_chains():
    pytest.importorskip("arviz")
    model = fitted("classes, vi")
    n_starts, n_draws = model.posterior_.n_chains, model.posterior_.n_draws
    assert n_starts == 3
    result = model.to_arviz(TABLE, Y)
    assert dict(result["posterior"].sizes)["chain"] == 1
    starts = result["sample_stats"]["start"].values[0]
    assert np.bincount(starts).max() - np.bincount(starts).min() <= 1
    raw = result["posterior_raw"]["gate"].values[0]
    gates = model.posterior_.values["weights"].gate
    kept = result["posterior"].coords["draw"].values
    assert len(kept) == len(starts) <= n_starts * n_draws
    np.testing.assert_array_equal(raw, [gates[i % n_starts, i // n_starts] for i in kept])
    np.testing.assert_array_equal(starts, kept % n_starts)
    log_lik = result["log_likelihood"]["y"].values
    assert log_lik.shape == (1, len(kept), len(Y))


def test_a_maximum_has_no_draws_for_arviz():
    pytest.importorskip("arviz")
    with pytest.raises(ValueError, match="has no draws"):
        fitted("clusters, map").to_arviz()
