"""Every sampler and guide against posteriors that an independent sampler has drawn."""

import json
import os

import numpy as np
import pytest
from sklearn.base import clone

from reference.compare import FOLDER, discrepancy, reference, z_scores
from reference.make import diagnostics
from reference.problems import (
    POINTS,
    PROBES,
    PROBLEMS,
    WATCHED,
    class_numbers,
    cluster_numbers,
    feature_numbers,
    quantity_numbers,
)
from wideangle import Sampling, Variational
from wideangle.latent_features.state import probes
from wideangle.streaming import NpyRows

FARTHEST = 4.5
"""Standard errors: of some thirty numbers of each fit none may be farther off."""
LEAST = 0.002
"""P-value of the discrepancy."""
MOST_BYTES = 300_000


def fitted(name, inference, **settings):
    """A fit of a problem as a user calls it."""
    problem = PROBLEMS[name]
    model = clone(problem.model).set_params(
        inference=inference, random_state=3, progress=False, **settings
    )
    return model.fit(*problem.data)


def experts(name, model):
    """Numbers of the draws of a mixture of experts."""
    weights, values = model.posterior_.values["weights"], model.posterior_.values
    gate, vectors = (np.asarray(one, np.float64) for one in weights)
    if name == "experts-classes":
        return class_numbers(gate, vectors[..., 0, :])
    scales = {key: np.asarray(value, np.float64) for key, value in values["scales"].items()}
    return quantity_numbers(gate, vectors, scales)


def features(name, model):
    """Numbers of every sweep of latent features."""
    (X,) = PROBLEMS[name].data
    trace = {key: np.asarray(value) for key, value in model.trace_.values.items()}
    entries = trace["signal"][..., places(X)]
    residual = X.size * trace["residual_rms"] ** 2
    noise = trace["noise_scale"] ** 2
    return feature_numbers(X.size, residual, entries, noise, trace["n_active"], trace["alpha"])


def places(X):
    """Where the entries of the problem are among those that the library watches."""
    rows, columns = probes(*X.shape)
    watched = list(zip(rows.tolist(), columns.tolist(), strict=True))
    return [watched.index(one) for one in PROBES.values()]


def clusters(name, model):
    """Numbers of every draw of clusters."""
    trace = {key: np.asarray(value) for key, value in model.trace_.values.items()}
    others = {key: trace[key] for key in ("n_used", "concentration")}
    if name == "clusters-finite":
        others["log alpha"] = np.log(trace["alpha"])
    places = np.linspace(0, 17, trace["density"].shape[-1]).astype(int).tolist()
    density = np.full((*trace["log_lik"].shape, 18), np.nan)
    density[..., places] = trace["density"]
    return cluster_numbers(density, **others) | {"log_lik": trace["log_lik"]}


SAMPLERS = {
    "experts-classes hmc": Sampling(n_warmup=1000, n_draws=2000, kernel="hmc"),
    "experts-classes geodesic": Sampling(n_warmup=1000, n_draws=1000, thin=8, kernel="geodesic"),
    "experts-classes metropolis": Sampling(
        n_warmup=3000, n_draws=1000, thin=60, kernel="metropolis"
    ),
    "experts-quantity hmc": Sampling(n_warmup=1000, n_draws=4000),
    "features-ibp gibbs": Sampling(n_warmup=200, n_draws=1500, thin=1, kernel="gibbs"),
    "features-pitman-yor gibbs": Sampling(n_warmup=200, n_draws=1500, thin=1, kernel="gibbs"),
    "clusters-finite gibbs": Sampling(n_warmup=300, n_draws=3000),
    "clusters-infinite gibbs": Sampling(n_warmup=300, n_draws=3000),
}
NUMBERS = {"experts": experts, "features": features, "clusters": clusters}


def numbers_of(name, model):
    """Of the draws of a model."""
    return NUMBERS[name.partition("-")[0]](name, model)


def verdict(draws, known):
    """The worst of the numbers, how far it is off, and the p-value of the discrepancy."""
    scores = z_scores(draws, known)
    worst = max(scores, key=lambda one: abs(scores[one]))
    return worst, abs(scores[worst]), discrepancy(draws, known)[1]


@pytest.mark.parametrize("name", PROBLEMS)
def test_references_are_small_and_their_chains_agree(name):
    assert os.path.getsize(FOLDER / f"{name}.npz") < MOST_BYTES
    record = json.loads((FOLDER / f"{name}.json").read_text())
    known = reference(name)
    assert {one.shape for one in known.values()} == {tuple(record["shape"])}
    assert np.prod(record["shape"]) == 10_000
    again = diagnostics(known)
    for key, one in record["numbers"].items():
        assert one["rhat"] < 1.01 and one["ess"] > 1500, key
        np.testing.assert_allclose(again[key]["mean"], one["mean"], atol=1e-3 * one["sd"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of chains that are short on purpose
@pytest.mark.parametrize("case", SAMPLERS)
def test_a_sampler_draws_from_the_posterior(case):
    name, _ = case.split()
    model = fitted(name, SAMPLERS[case])
    worst, farthest, p_value = verdict(numbers_of(name, model), reference(name))
    print(case, worst, round(farthest, 2), p_value)
    assert farthest < FARTHEST, worst
    assert p_value > LEAST
