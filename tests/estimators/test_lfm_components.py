"""Which features matter, and summaries of training rows."""

import numpy as np
import pytest
from scipy.stats import norm

from statistical import FOUR, z_score
from wideangle.estimators import lfm_components
from wideangle.estimators.lfm_components import (
    matters,
    price,
    removal_cost,
    sample_rows,
    training_activation,
    training_mean,
)
from wideangle.models.held_out_rows import FeatureDraw


def problem(n_rows=300, dim=30, seed=0, noise=0.25, scales=(1.0, 1.0, 0.6, 0.4)):
    """A draw at the truth, with its rows; two features are close to parallel."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(len(scales), dim)) * np.array(scales)[:, None]
    features[1] = features[0] + 0.5 * features[1]
    sticks = np.linspace(0.6, 0.1, len(scales))
    z = (rng.random((n_rows, len(scales))) < sticks).astype(np.uint8)
    draw = FeatureDraw(features, sticks, noise, z)
    return draw, z @ features + np.sqrt(noise) * rng.normal(size=(n_rows, dim))


def statistics(draw, rows):
    z = draw.assignments.astype(float)
    return z.T @ z, z.T @ rows


def log_likelihood(draw, rows, z):
    return norm.logpdf(rows, z @ draw.features, np.sqrt(draw.noise_variance)).sum()


def test_removal_cost_is_the_loss_of_log_likelihood():
    draw, rows = problem()
    whole = log_likelihood(draw, rows, draw.assignments)
    expected = []
    for k in range(4):
        without = draw.assignments.copy()
        without[:, k] = 0
        expected.append(whole - log_likelihood(draw, rows, without))
    np.testing.assert_allclose(removal_cost(draw, *statistics(draw, rows)), expected, rtol=1e-9)


def test_price_by_hand():
    draw = FeatureDraw(np.array([[3.0, 4.0], [0.0, 1.0], [1.0, 0.0]]), np.full(3, 0.5), 0.5)
    found = price(draw, [5, 0, 10], 10)
    expected = [
        10 * np.log(2) + np.log(1 + 5 * 25 / (2 * 0.5)),
        0.0,
        np.log(1 + 10 * 1 / (2 * 0.5)),
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_price_is_the_cost_of_writing_the_column_down():
    # The entropy term is the logarithm of the number of columns with m ones, to leading order.
    draw = FeatureDraw(np.zeros((1, 3)), np.full(1, 0.5), 1.0)
    columns = np.sum(np.log(np.arange(1801, 2001))) - np.sum(np.log(np.arange(1, 201)))
    assert price(draw, [200], 2000)[0] == pytest.approx(columns, rel=0.01)


def test_true_features_matter_and_unneeded_ones_do_not():
    draw, rows = problem()
    rng = np.random.default_rng(5)
    tiny = 0.05 * rng.normal(size=(2, 30))
    z_tiny = rng.random((300, 2)) < 0.3
    unused = rng.normal(size=(1, 30))
    wider = FeatureDraw(
        np.concatenate([draw.features, tiny, unused]),
        np.append(draw.sticks, [0.3, 0.3, 0.01]),
        0.25,
        np.concatenate([draw.assignments, z_tiny, np.zeros((300, 1))], axis=1).astype(np.uint8),
    )
    found = matters(wider, *statistics(wider, rows), 300)
    np.testing.assert_array_equal(found, [True] * 4 + [False] * 3)


def test_hundreds_of_features_matter_at_once():
    # Each holds less than half a percent of the energy, and all are there.
    draw, rows = problem(2000, 400, scales=(0.5,) * 250)
    found = matters(draw, *statistics(draw, rows), 2000)
    assert found.all()


def test_the_factor_sets_the_rule():
    draw, rows = problem()
    stats = statistics(draw, rows)
    ratio = removal_cost(draw, *stats) / price(draw, np.diagonal(stats[0]), 300)
    middle = np.sort(ratio)[1:3].mean()
    np.testing.assert_array_equal(matters(draw, *stats, 300, factor=middle), ratio > middle)
    assert matters(draw, *stats, 300, factor=0.0).all()
    assert not matters(draw, *stats, 300, factor=1e9).any()


def test_float32_statistics_give_the_same_answer():
    draw, rows = problem()
    single = draw._replace(features=draw.features.astype(np.float32))
    stats = [part.astype(np.float32) for part in statistics(draw, rows)]
    np.testing.assert_allclose(
        removal_cost(single, *stats), removal_cost(draw, *statistics(draw, rows)), rtol=1e-3
    )


def test_training_rows_are_averaged_over_draws(monkeypatch):
    monkeypatch.setattr(lfm_components, "CHUNK_ROWS", 7)
    rng = np.random.default_rng(0)
    draws = [
        FeatureDraw(
            rng.normal(size=(k, 4)), np.full(k, 0.5), 1.0, rng.integers(0, 2, (20, k), np.uint8)
        )
        for k in (2, 0, 3)
    ]
    z = [draw.assignments for draw in draws]
    index = np.array([[1, 0, -1], [-1, -1, -1], [0, -1, -1]])
    found = training_activation(draws, index)
    expected = np.transpose([(z[0][:, 1] + z[2][:, 0]) / 2, z[0][:, 0], np.zeros(20)])
    np.testing.assert_allclose(found, expected)
    means = sum(a @ draw.features for a, draw in zip(z, draws, strict=True)) / 3
    np.testing.assert_allclose(training_mean(draws), means)


def test_draws_without_assignments_are_refused():
    draw = problem()[0]._replace(assignments=None)
    with pytest.raises(ValueError, match="assignments"):
        training_mean([draw])


def test_sampled_rows_have_the_moments_of_the_model():
    draw, _ = problem(dim=3)
    rows = sample_rows(draw, 20_000, np.random.default_rng(0))
    assert z_score(rows, draw.sticks @ draw.features) < FOUR
    variance = (draw.sticks * (1 - draw.sticks)) @ draw.features**2 + draw.noise_variance
    assert z_score((rows - draw.sticks @ draw.features) ** 2, variance) < FOUR
