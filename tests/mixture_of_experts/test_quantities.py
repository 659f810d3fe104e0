"""Predictive distributions of a quantity, beside mixtures of SciPy's Gaussians."""

import jax
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from mixture_of_experts.expert_draws import CHAINS, DRAWS, K, P, rows
from wideangle.mixture_of_experts import predict as predictive
from wideangle.mixture_of_experts import quantities
from wideangle.mixture_of_experts.likelihood import Pair
from wideangle.mixture_of_experts.quantities import GaussianExperts
from wideangle.posterior import Draws, evenly

EXPERT = GaussianExperts(0.02)


def draws(n_draws=DRAWS, scale=0.5, seed=0):
    rng = np.random.default_rng(seed)
    gate = scale * rng.normal(size=(CHAINS, n_draws, K, P))
    experts = scale * rng.normal(size=(CHAINS, n_draws, K, 2, P))
    return Draws({"weights": Pair(gate.astype(np.float32), experts.astype(np.float32))})


def written_out(found, x):
    """Weights, means and deviations (chain, draw, expert, row) in double precision."""
    weights = found.values["weights"]
    gate = np.exp(np.einsum("...kp,np->...kn", weights.gate, x, dtype=float))
    scores = np.einsum("...kop,np->...kon", weights.experts, x, dtype=float)
    variance = 0.02**2 + 1.0 / (np.exp(-scores[..., 1, :]) + 1e-2)
    return gate / gate.sum(-2, keepdims=True), scores[..., 0, :], np.sqrt(variance)


def distribution(found, x, y, shares=None):
    """Distribution function of the mixture over all draws at numbers y of the rows."""
    gate, mean, deviation = written_out(found, x)
    shares = np.full(CHAINS, 1.0 / CHAINS) if shares is None else shares
    inside = np.sum(gate * norm.cdf(y, mean, deviation), axis=2).mean(1)
    return shares @ inside


def test_moments_are_those_of_the_mixture():
    found, x = draws(), rows()
    gate, mean, deviation = written_out(found, x)
    by_draw = np.sum(gate * mean, axis=2)
    variance = np.sum(gate * (deviation**2 + mean**2), axis=2) - by_draw**2
    result = quantities.moments(EXPERT, found, x)
    np.testing.assert_allclose(result.mean, by_draw.mean((0, 1)), atol=1e-5)
    np.testing.assert_allclose(result.within, variance.mean((0, 1)), rtol=1e-4)
    np.testing.assert_allclose(result.between, by_draw.var((0, 1)), rtol=1e-4)


def test_the_device_says_the_same(monkeypatch):
    found, x, shares = draws(), rows(70), np.array([0.5, 0.2, 0.3])
    host = quantities.moments(EXPERT, found, x, shares)
    monkeypatch.setattr(jax, "default_backend", lambda: "other")
    monkeypatch.setattr(predictive, "HOST_ROWS", 0)
    device = quantities.moments(EXPERT, found, x, shares)
    for left, right in zip(host, device, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


LEVELS = np.array([1e-6, 0.01, 0.3, 0.5, 0.9, 0.999])


@pytest.mark.parametrize("scale", [0.1, 0.5, 3.0])
def test_quantiles_are_roots_of_the_distribution_function(scale):
    found, x = draws(scale=scale), rows(60)
    shares = np.array([0.25, 0.0, 0.75])
    result = quantities.quantiles(EXPERT, found, x, LEVELS, shares)
    assert result.shape == (60, len(LEVELS))
    assert (np.diff(result, axis=1) > 0).all()
    for level, y in zip(LEVELS, result.T, strict=True):
        np.testing.assert_allclose(distribution(found, x, y, shares), level, rtol=1e-3, atol=1e-6)


def test_quantiles_between_far_peaks_are_found():
    """Two narrow peaks: nearly no density where the median is."""
    weight = np.array([[0.5, 0.5], [0.5 + 1e-7, 0.5 - 1e-7]])
    mean, deviation = np.array([[0.0, 1e3]] * 2), np.full((2, 2), 1e-2)
    for level in (0.1, 0.5, 0.9):
        x = quantities._quantile(weight, mean, deviation, level)
        reached = np.sum(weight * norm.cdf(x[:, None], mean, deviation), axis=1)
        np.testing.assert_allclose(reached, level, atol=1e-7)


def test_log_density_is_that_of_the_mixture_and_does_not_underflow():
    found, x = draws(), rows(80)
    gate, mean, deviation = written_out(found, x)
    for y in (np.random.default_rng(2).normal(size=80), np.full(80, 400.0)):
        said = np.log(gate) + norm.logpdf(y, mean, deviation)
        expected = logsumexp(said, axis=(0, 1, 2)) - np.log(CHAINS * DRAWS)
        result = quantities.log_density(EXPERT, found, x, y)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_drawn_numbers_have_the_distribution_of_their_draw():
    found = draws(n_draws=3)
    x = np.repeat(rows(2), 4000, axis=0)
    weights = Pair(*(leaf[0] for leaf in found.values["weights"]))
    drawn = EXPERT.draw(np.random.default_rng(0), weights, x)
    gate, mean, deviation = (part[0] for part in written_out(found, rows(2)))
    for place in range(2):
        part = drawn[:, 4000 * place : 4000 * (place + 1)]
        for y in (-0.5, 0.0, 0.7):
            p = np.sum(gate * norm.cdf(y, mean, deviation), axis=1)[:, place]
            assert (np.abs((part < y).mean(1) - p) < 5.0 * np.sqrt(p * (1 - p) / 4000)).all()


def test_a_row_does_not_depend_on_the_rows_around_it():
    found, x = draws(), rows(1500)
    every = quantities.quantiles(EXPERT, found, x, np.array([0.2, 0.7]))
    for part in (slice(0, 1), slice(777, 901), slice(1499, None)):
        alone = quantities.quantiles(EXPERT, found, x[part], np.array([0.2, 0.7]))
        np.testing.assert_allclose(alone, every[part], rtol=1e-7, atol=1e-7)


def test_the_trace_watches_mean_and_spread():
    found, x = draws(), rows(300)
    table = predictive.trace(EXPERT, found, x)
    assert table.needed == ("prediction", "spread")
    watched = x[evenly(300, predictive.REFERENCE)][: predictive.WATCHED]
    gate, mean, deviation = written_out(found, watched)
    by_draw = np.sum(gate * mean, axis=2)
    spread = np.sqrt(np.sum(gate * (deviation**2 + mean**2), axis=2) - by_draw**2)
    np.testing.assert_allclose(table.values["prediction"], by_draw, atol=6e-4)
    np.testing.assert_allclose(table.values["spread"], spread, atol=6e-4)
