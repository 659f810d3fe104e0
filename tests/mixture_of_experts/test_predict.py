"""Predictions of draws, beside the mixture written out in double precision."""

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from mixture_of_experts.expert_draws import CHAINS, DRAWS, K, P, draws, rows, written_out
from wideangle.mixture_of_experts import classes
from wideangle.mixture_of_experts import predict as predictive
from wideangle.mixture_of_experts.classes import experts_for
from wideangle.mixture_of_experts.likelihood import Pair
from wideangle.posterior import Draws, evenly
from wideangle.sphere.geometry import diversity


def mean_proba(expert, found, x, shares=None):
    return predictive.over_draws(expert.proba, found, x, shares)


def mean_and_entropy(expert, found, x, shares=None):
    both = predictive.over_draws(expert.proba_and_entropy, found, x, shares)
    return both[:, :-1], both[:, -1]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_predictions_are_the_mean_over_all_draws_if_they_are_few(n_classes):
    found, x = draws(n_classes), rows()
    expected = written_out(found, x)
    expert = experts_for(n_classes)
    mean, entropy = mean_and_entropy(expert, found, x)
    np.testing.assert_allclose(mean, expected.mean((0, 1)), rtol=2e-5)
    np.testing.assert_allclose(entropy, -(expected * np.log(expected)).sum(-1).mean((0, 1)), 1e-4)
    np.testing.assert_array_equal(mean_proba(expert, found, x), mean)
    np.testing.assert_allclose(mean.sum(1), 1.0, rtol=1e-14)


def test_chains_count_by_their_weights_and_those_of_weight_0_not_at_all():
    found, x = draws(3), rows()
    shares = np.array([0.25, 0.0, 0.75])
    expected = np.einsum("c,cnk->nk", shares, written_out(found, x).mean(1))
    mean = mean_proba(experts_for(3), found, x, shares)
    np.testing.assert_allclose(mean, expected, rtol=2e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_rare_classes_keep_their_probability(n_classes):
    found, x = draws(n_classes, n_draws=1), 40.0 * np.eye(P, dtype=np.float32)
    for sign in (-1.0, 1.0):  # all experts sure of one class
        weights = found.values["weights"]
        sure = np.zeros_like(weights.experts)
        sure[..., -1, :] = sign
        one = Draws({"weights": weights._replace(experts=sure)})
        expected = written_out(one, x).mean((0, 1))
        assert expected.min() < 1e-16
        mean = mean_proba(experts_for(n_classes), one, x)
        np.testing.assert_allclose(mean, expected, rtol=1e-5)


def test_scores_of_any_size_give_probabilities():
    scores = np.float32([-1e12, -90.0, -1.0, 0.0, 1.0, 90.0, 1e12])[None, None]
    with np.errstate(all="raise"):
        first, second = experts_for(2).mean(scores)[0]
    np.testing.assert_allclose(first + second, 1.0, rtol=1e-6)
    np.testing.assert_allclose(first, second[::-1], rtol=1e-6)
    assert np.all(np.diff(second) >= 0.0)
    assert 0.0 < second[0] < 1e-34


def test_a_row_does_not_depend_on_the_rows_around_it():
    found, x = draws(3), rows(2000)
    every = mean_proba(experts_for(3), found, x)
    for part in (slice(0, 1), slice(777, 901), slice(1999, None)):
        alone = mean_proba(experts_for(3), found, x[part])
        np.testing.assert_array_equal(alone, every[part])


def test_sparse_rows_are_those_of_dense_ones(monkeypatch):
    found, x = draws(2), np.where(rows(300) > 1.8, rows(300), 0.0)
    dense = mean_proba(experts_for(2), found, x)
    np.testing.assert_array_equal(mean_proba(experts_for(2), found, sp.csr_array(x)), dense)
    monkeypatch.setattr(predictive, "SPARSE_SHARE", 1.0)
    sparse = mean_proba(experts_for(2), found, sp.csr_array(x))
    np.testing.assert_allclose(sparse, dense, rtol=1e-5)


def test_the_device_says_the_same(monkeypatch):
    found, x = draws(3), rows(70)
    shares = np.array([0.5, 0.2, 0.3])
    host = mean_and_entropy(experts_for(3), found, x, shares)
    monkeypatch.setattr(jax, "default_backend", lambda: "other")
    monkeypatch.setattr(predictive, "HOST_ROWS", 0)
    device = mean_and_entropy(experts_for(3), found, x, shares)
    for left, right in zip(host, device, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5)


def test_many_draws_are_thinned_by_no_more_than_an_eighth_of_their_spread(monkeypatch):
    found, x = draws(2, n_draws=400), rows(50)
    exact = written_out(found, x)[..., 1]
    monkeypatch.setattr(predictive, "ROW_COST", 1)
    weights, shares = predictive.chosen_draws(found, None)
    assert len(weights.gate) == len(shares) == predictive.FEWEST_DRAWS
    assert shares.sum() == pytest.approx(1.0)
    error = mean_proba(experts_for(2), found, x)[:, 1] - exact.mean((0, 1))
    assert np.sqrt(np.mean(error**2)) < 1.2 * np.sqrt(np.mean(exact.var((0, 1)) / 64))


def test_nothing_is_compiled_for_a_prediction():
    found = draws(2, seed=9)
    with jax.log_compiles(False), jax.no_tracing():
        mean_and_entropy(experts_for(2), found, rows(37))
        predictive.gate(Pair(rows(4), rows(4)), rows(31))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_trace_is_what_each_draw_says(n_classes, monkeypatch):
    monkeypatch.setattr(predictive, "TRACE_SCORES", 7 * K * 300)  # draws in several parts
    found, x = draws(n_classes, scale=2.0), rows(300)
    table = predictive.trace(experts_for(n_classes), found, x)
    watched = x[evenly(300, predictive.REFERENCE)][: predictive.WATCHED]
    expected = written_out(found, watched)[..., 1:]
    gaps = np.abs(table.values["probability"] - expected.reshape(CHAINS, DRAWS, -1))
    assert gaps.max() < 0.51 * 10.0**-classes.DECIMALS  # rounded to the nearest
    weights = found.values["weights"]
    angle = diversity(weights.experts.reshape(CHAINS, DRAWS, K, -1)).mean_angle
    np.testing.assert_allclose(table.values["mean_angle"], angle, rtol=1e-5)
    gate = np.exp(np.einsum("cskp,np->csnk", weights.gate, x[evenly(300, 256)], dtype=float))
    mass = (gate / gate.sum(-1, keepdims=True)).mean(2)
    np.testing.assert_array_equal(table.values["n_used"], (mass > predictive.USED).sum(-1))
    assert table.needed == ("probability",)
