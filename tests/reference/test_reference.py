"""Every sampler and guide against posteriors that an independent sampler has drawn."""

import json
import os
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from reference.compare import FOLDER, n_effective, reference, z_scores
from reference.fits import (
    GUIDES,
    SAMPLERS,
    TOLERANCE,
    fitted,
    mean_predictions,
    numbers_of,
    verdict,
)
from reference.make import diagnostics
from reference.problems import POINTS, POWER_LAW, PROBLEMS, WATCHED, feature_rows
from reference.samplers import enumerated_features, gibbs_of_features
from wideangle.mixture_of_experts import task
from wideangle.streaming import NpyRows

FARTHEST = 4.5
"""Standard errors: of some thirty numbers of each fit none may be farther off."""
LEAST = 0.002
"""P-value of the discrepancy."""
MOST_BYTES = 300_000


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
def test_the_gibbs_sampler_of_features_agrees_with_enumeration():
    X = feature_rows(15)[:3]
    names = ("feature_scale", "noise", "discount", "strength")
    scale, noise, *process = (POWER_LAW[name] for name in names)
    signal, _, n_active, _ = gibbs_of_features(X, 1, scale, noise, *process, 40_000, 3)
    residual = np.sum((X - signal) ** 2, axis=(-2, -1))
    log_lik = -0.5 * (residual / noise**2 + X.size * np.log(2 * np.pi * noise**2))
    exact = enumerated_features(X, scale, noise, *process)
    for draws, value in zip((log_lik, n_active), exact, strict=True):
        error = draws.std() / np.sqrt(n_effective(draws))
        assert abs(draws.mean() - value) < 4 * error


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of chains that are short on purpose
@pytest.mark.parametrize("case", SAMPLERS)
def test_a_sampler_draws_from_the_posterior(case):
    name, _ = case.split()
    model = fitted(name, SAMPLERS[case])
    worst, farthest, p_value = verdict(numbers_of(name, model), reference(name))
    assert farthest < FARTHEST, worst
    assert p_value > LEAST


FAULTS = {
    "experts-classes": ("experts-classes hmc", {"prior__scale": 1.2}),
    "experts-quantity": ("experts-quantity hmc", {"prior__concentration": 0.0}),
    "features-ibp": ("features-ibp gibbs", {"prior__scale": 1.1}),
    "features-pitman-yor": ("features-pitman-yor gibbs", {"process__strength": 1.0}),
    "clusters-finite": ("clusters-finite gibbs", {"tightness": 0.6}),
    "clusters-infinite": ("clusters-infinite gibbs", {"alpha": 1.4}),
}
"""A constant of each model that is not the one of the reference."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_constant_is_seen(name):
    case, change = FAULTS[name]
    model = fitted(name, SAMPLERS[case], **change)
    _, farthest, p_value = verdict(numbers_of(name, model), reference(name))
    assert farthest > FARTHEST or p_value < LEAST


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_another_prior_of_sharp_gates_is_seen(monkeypatch):
    monkeypatch.setattr(task, "GATE_SCALE", 2.0)
    case = "experts-quantity hmc"
    draws = numbers_of("experts-quantity", fitted("experts-quantity", SAMPLERS[case]))
    assert abs(z_scores(draws, reference("experts-quantity"))["log scale, gate, mean"]) > FARTHEST


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("streamed", [False, True], ids=["memory", "streamed"])
@pytest.mark.parametrize("case", GUIDES)
def test_a_guide_predicts_as_the_posterior_does(case, streamed):
    name, _ = case.split()
    problem = PROBLEMS[name]
    model: Any = clone(problem.model)
    model.set_params(inference=GUIDES[case], random_state=3, verbose=False)
    if streamed:
        model.fit_stream(NpyRows(*problem.data, block_rows=8))
    else:
        model.fit(*problem.data)
    away = mean_predictions(numbers_of(name, model)) - mean_predictions(reference(name))
    assert np.abs(away).max() < TOLERANCE[name]
    points = POINTS[problem.data[0].shape[1]]
    said = model.predict_proba(points)[:, 1] if "classes" in name else model.predict(points)
    np.testing.assert_allclose(said, mean_predictions(numbers_of(name, model)), atol=0.05)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("streamed", [False, True], ids=["memory", "streamed"])
def test_the_guide_of_clusters_gives_the_density_of_the_posterior(streamed):
    problem = PROBLEMS["clusters-finite"]
    model: Any = clone(problem.model)
    model.set_params(inference="vi", random_state=3, verbose=False)
    (X,) = problem.data
    model = model.fit_stream(NpyRows(X, block_rows=5)) if streamed else model.fit(X)
    known = reference("clusters-finite")
    expected = [np.log(np.mean(np.exp(known[f"density {i}"]))) for i in WATCHED]
    said = model.score_samples(X)[list(WATCHED)] + np.log(4 * np.pi)
    # Factors of three clusters for eighteen rows: which optimum is reached depends on the start.
    np.testing.assert_allclose(said, expected, atol=0.75)
