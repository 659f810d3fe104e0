"""Which features matter, and summaries of training rows."""

import numpy as np
import pytest
from scipy.stats import norm

from latent_features.feature_problems import make_draw
from statistical import FOUR, z_score
from wideangle.latent_features.score import sample_rows
from wideangle.latent_features.state import price, removal_cost, worth


def problem(n_rows=300, dim=30, seed=0, noise=0.25, scales=(1.0, 1.0, 0.6, 0.4)):
    """A draw at the truth, with its rows; two features are close to parallel."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(len(scales), dim)) * np.array(scales)[:, None]
    features[1] = features[0] + 0.5 * features[1]
    sticks = np.linspace(0.6, 0.1, len(scales))
    z = (rng.random((n_rows, len(scales))) < sticks).astype(np.uint8)
    draw = make_draw(features, sticks, noise, z)
    return draw, z @ features + np.sqrt(noise) * rng.normal(size=(n_rows, dim))


def statistics(draw, rows):
    z = draw.assignments.astype(float)
    return z.T @ z, z.T @ rows


def cost_of(draw, rows):
    return removal_cost(draw.vectors, draw.noise_variance, *statistics(draw, rows))


def worth_of(draw, rows):
    return worth(draw.vectors, draw.noise_variance, *statistics(draw, rows), len(rows))


def log_likelihood(draw, rows, z):
    return norm.logpdf(rows, z @ draw.vectors, np.sqrt(draw.noise_variance)).sum()


def test_removal_cost_is_the_loss_of_log_likelihood():
    draw, rows = problem()
    whole = log_likelihood(draw, rows, draw.assignments)
    expected = []
    for k in range(4):
        without = draw.assignments.copy()
        without[:, k] = 0
        expected.append(whole - log_likelihood(draw, rows, without))
    np.testing.assert_allclose(cost_of(draw, rows), expected, rtol=1e-9)


def test_price_by_hand():
    found = price([5, 0, 10, 1], [25.0, 1.0, 1.0, 0.1], 0.5, 10, 2)
    entropy = -np.log(0.1) * 0.1 - np.log(0.9) * 0.9
    expected = [
        10 * np.log(2) + 1 + np.log(5 * 25 / (2 * 0.5)),
        0.0,
        1 + np.log(10 * 1 / (2 * 0.5)),
        10 * entropy + 0.1,
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_price_is_the_cost_of_writing_the_column_down():
    # The entropy term is the logarithm of the number of columns with m ones, to leading order.
    columns = np.sum(np.log(np.arange(1801, 2001))) - np.sum(np.log(np.arange(1, 201)))
    assert price([200], [0.0], 1.0, 2000, 3)[0] == pytest.approx(columns, rel=0.01)


@pytest.mark.parametrize("count", [1, 3])
def test_a_vector_fitted_to_noise_does_not_matter_however_many_columns(count):
    rng = np.random.default_rng(count)
    rows = rng.normal(size=(50, 4000))
    z = np.zeros((50, 1), np.uint8)
    z[:count] = 1
    draw = make_draw(rows[:count].mean(axis=0)[None], np.full(1, 0.1), 1.0, z)
    assert not (worth_of(draw, rows) > 0).any()


def test_true_features_matter_and_unneeded_ones_do_not():
    draw, rows = problem()
    rng = np.random.default_rng(5)
    tiny = 0.05 * rng.normal(size=(2, 30))
    z_tiny = rng.random((300, 2)) < 0.3
    unused = rng.normal(size=(1, 30))
    wider = make_draw(
        np.concatenate([draw.vectors, tiny, unused]),
        np.append(draw.weights, [0.3, 0.3, 0.01]),
        0.25,
        np.concatenate([draw.assignments, z_tiny, np.zeros((300, 1))], axis=1).astype(np.uint8),
    )
    found = worth_of(wider, rows) > 0
    np.testing.assert_array_equal(found, [True] * 4 + [False] * 3)


def test_hundreds_of_features_matter_at_once():
    # Each holds less than half a percent of the energy, and all are there.
    draw, rows = problem(2000, 400, scales=(0.5,) * 250)
    assert (worth_of(draw, rows) > 0).all()


def test_float32_statistics_give_the_same_answer():
    draw, rows = problem()
    vectors = draw.vectors.astype(np.float32)
    stats = [part.astype(np.float32) for part in statistics(draw, rows)]
    np.testing.assert_allclose(
        removal_cost(vectors, draw.noise_variance, *stats), cost_of(draw, rows), rtol=1e-3
    )


def test_sampled_rows_have_the_moments_of_the_model():
    draw, _ = problem(dim=3)
    rows = sample_rows(draw, 20_000, np.random.default_rng(0))
    assert z_score(rows, draw.weights @ draw.vectors) < FOUR
    variance = (draw.weights * (1 - draw.weights)) @ draw.vectors**2 + draw.noise_variance
    assert z_score((rows - draw.weights @ draw.vectors) ** 2, variance) < FOUR
