"""What chains say together: components of seen entries, units, sentences."""

import warnings

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from latent_features.feature_fits import GAPS, X, fitted
from wideangle.latent_features import posterior as lfm_posterior
from wideangle.latent_features.files import as_hyper
from wideangle.latent_features.memory import gram_of
from wideangle.latent_features.posterior import (
    DrawsOfChains,
    disagreements,
    some_draws,
)
from wideangle.latent_features.rows import rows_in_memory
from wideangle.latent_features.settings import Scaling
from wideangle.latent_features.state import Draw, probes, removal_cost

RNG = np.random.default_rng(0)
NOISE = 0.3


@pytest.mark.parametrize("offset", [None, np.linspace(-1, 1, 6)], ids=["as is", "centred"])
def test_removal_costs_the_likelihood_of_seen_entries(offset):
    used = RNG.integers(0, 2, (len(GAPS), 3)).astype(np.uint8)
    vectors = RNG.normal(size=(3, 6))
    (rows,) = rows_in_memory(GAPS, offset)
    cost = removal_cost(vectors, NOISE, gram_of(used), rows.cross_observed(used, vectors))
    centred = GAPS if offset is None else GAPS - offset

    def log_lik(z):
        return np.nansum(norm.logpdf(centred, z @ vectors, np.sqrt(NOISE)))

    for k in range(3):
        less = used.copy()
        less[:, k] = 0
        assert cost[k] == pytest.approx(log_lik(used) - log_lik(less), rel=1e-9)


def state(n_features, noise=1.0):
    hyper = as_hyper(np.array([1.0, 0.0, 1.0, noise, 0.0, 2.0]))
    used = RNG.integers(0, 2, (5, n_features)).astype(np.uint8)
    vectors = RNG.normal(size=(n_features, 6))
    packed = np.packbits(used, axis=1)
    return Draw(RNG.random(n_features), vectors, hyper, packed, np.ones(n_features))


def test_draws_are_padded_and_in_units_of_the_data():
    states = [state(n) for n in (2, 0, 3, 1, 1)]
    gathered = DrawsOfChains(states, np.array([0, 0, 0, 1, 1]), {})
    values = lfm_posterior.as_draws(gathered, Scaling(np.zeros(6), 10.0)).values
    assert values["features"].shape == (2, 2, 3, 6)  # cut to the shorter chain
    np.testing.assert_array_equal(values["n_features"], [[2, 0], [1, 1]])
    np.testing.assert_allclose(values["features"][0, 0, :2], 10 * states[0].vectors)
    assert not values["features"][0, 1].any()
    np.testing.assert_array_equal(values["counts"][0, 0, :2], states[0].assignments.sum(axis=0))
    np.testing.assert_array_equal(values["weights"][1, 1], [states[4].weights[0], 0, 0])


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_extreme_units_have_a_place(scale):
    one = state(1)
    one = one._replace(vectors=one.vectors.astype(np.float32))
    units = Scaling(np.zeros(6), scale)
    values = lfm_posterior.as_draws(DrawsOfChains([one], np.array([0]), {}), units).values
    np.testing.assert_allclose(values["features"][0, 0, 0] / scale, one.vectors[0], rtol=1e-6)


def test_predictions_use_states_of_every_chain():
    states = [state(1, noise=float(i)) for i in range(60)]
    draws, numbers = some_draws(DrawsOfChains(states, np.repeat(np.arange(4), 15), {}))
    assert len(draws) == len(numbers) == lfm_posterior.N_DRAWS
    assert (numbers[0], numbers[-1]) == (0, 59)
    assert [draw.noise_variance for draw in draws] == numbers.tolist()
    few, numbers = some_draws(DrawsOfChains(states[:3], np.zeros(3, int), {}))
    assert len(few) == 3 and numbers.tolist() == [0, 1, 2]


def test_draws_of_stacked_chains_are_in_proportion_to_their_weights():
    states = [state(1, noise=float(i)) for i in range(60)]
    chains = np.repeat(np.arange(4), 15)
    shares = np.array([0.6, 0.0, 0.4, 0.0])
    found = DrawsOfChains(states, chains, {}, shares)
    np.testing.assert_array_equal(found.weights, shares)
    draws, numbers = some_draws(found)
    assert np.bincount(chains[numbers], minlength=4).tolist() == [15, 0, 10, 0]
    assert len(np.unique(numbers)) == 25  # spread over each chain
    assert [draw.noise_variance for draw in draws] == numbers.tolist()
    _, numbers = some_draws(DrawsOfChains(states[:2], np.arange(2), {}, np.array([0.2, 0.8])))
    assert np.bincount(numbers).tolist() == [5, 20]


@pytest.mark.parametrize("magnitude_shape", [None, 3.0], ids=["gaussian", "polar"])
def test_the_trace_is_in_units_of_the_data(magnitude_shape):
    numbers = {name: np.array([[1.0, 4.0]]) for name in ("noise_variance", "residual_rms", "rate")}
    numbers |= {
        name: np.ones((1, 2)) for name in ("n_active", "alpha", "concentration", "strength")
    }
    numbers["acceptance"] = np.array([[0.1, 0.2]])
    numbers["signal"] = np.arange(32.0).reshape(1, 2, 16)
    trace = lfm_posterior.trace(
        DrawsOfChains([state(1)], np.array([0]), numbers),
        Scaling(np.arange(6.0), 10.0),
        magnitude_shape,
    )
    _, columns = probes(7, 6)
    np.testing.assert_allclose(trace["signal"], 10.0 * numbers["signal"] + columns)
    np.testing.assert_allclose(trace["noise_scale"], [[10.0, 20.0]])
    np.testing.assert_allclose(trace["residual_rms"], [[10.0, 40.0]])
    # The standard deviation of an entry from its precision; or the mean length over sqrt(D).
    expected = [[10.0, 5.0]]
    if magnitude_shape is not None:
        expected = 10.0 * magnitude_shape / np.array([[1.0, 4.0]]) / np.sqrt(6)
    np.testing.assert_allclose(trace["feature_scale"], expected)
    assert set(trace) == {
        "noise_scale", "residual_rms", "feature_scale", "n_active", "alpha", "concentration",
        "signal",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["complete", "gaps"])
def test_chains_are_watched_at_reconstructed_entries(name):
    one = fitted(name)
    rows, columns = probes(*X.shape)
    assert len({*rows}) == len(rows) and len({*columns}) == X.shape[1]
    expected = [draw.assignments[rows] @ draw.vectors for draw in one.chains_.draws]
    expected = np.array(expected)[:, np.arange(len(rows)), columns] * one.scaling_.scale
    expected += one.scaling_.shift[columns]
    found = one.trace_.values["signal"]
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-5)
    summary = one.diagnostics_
    needed = [
        name for name, is_needed in zip(summary.names, summary["needed"], strict=True) if is_needed
    ]
    assert needed == [f"signal[{i}]" for i in range(len(rows))]


def sentences(objectives, n_disputed=0):
    return disagreements(np.array(objectives), n_disputed, 100)


@pytest.mark.parametrize("objectives", [[5.0], [5.0, 4.0], [50.0, 49.0, 0.0], [np.nan, np.nan]])
def test_searches_that_agree_are_not_mentioned(objectives):
    assert sentences(objectives) == []


@pytest.mark.parametrize("objectives", [[50.0, 0.0], [50.0, 0.0, -10.0, 10.0]])
def test_a_best_search_that_stands_alone_is_reported(objectives):
    (sentence,) = sentences(objectives)
    assert f"only one of {len(objectives)} searches" in sentence
    assert "(50;" in sentence


def test_chains_that_disagree_are_reported():
    (sentence,) = sentences([1.0, 1.0], n_disputed=3)
    assert sentence.startswith("3 features are in most draws of one chain and not of another")


@pytest.mark.parametrize("name", ["complete", "noise"])
def test_arviz_gets_both_groups(name):
    pytest.importorskip("arviz")
    one = fitted(name)
    found = one.to_arviz()
    np.testing.assert_array_equal(
        found["posterior"]["noise_scale"].values, one.trace_.values["noise_scale"]
    )
    np.testing.assert_array_equal(
        found["posterior_raw"]["features"].values, one.posterior_.values["features"]
    )
    assert found["posterior_raw"]["features"].dims == ("chain", "draw", "feature", "column")


def test_arviz_can_leave_one_out_given_rows():
    arviz = pytest.importorskip("arviz")
    one = fitted()
    found = one.to_arviz(X)
    assert found["log_likelihood"]["x"].dims == ("chain", "draw", "row")
    assert found["posterior"]["log_lik"].shape == found["log_likelihood"]["x"].shape[:2]
    np.testing.assert_array_equal(found["observed_data"]["rows"], X)
    every = logsumexp(found["log_likelihood"]["x"].values.reshape(-1, len(X)), axis=0)
    draws = np.prod(found["log_likelihood"]["x"].shape[:2])
    np.testing.assert_allclose(every - np.log(draws), one.score_samples(X), rtol=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of chains this short
        assert np.isfinite(arviz.loo(found, var_name="x").elpd_loo)
