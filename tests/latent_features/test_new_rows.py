"""New rows of the feature model: fields, activations, enumeration."""

import numpy as np
import pytest

from latent_features.feature_problems import (
    broken,
    brute_force,
    fields_of,
    log_joint,
    make_draw,
    random_draw,
    random_rows,
)
from statistical import FOUR, z_score
from wideangle.latent_features import fields as row_fields
from wideangle.latent_features import importance as annealed_rows
from wideangle.latent_features.fields import enumerate_rows
from wideangle.latent_features.importance import walk


def log_density_of(fields, states):
    """The quadratic function of the module's docstring, by plain sums."""
    pairs = np.einsum("sj,njk,sk->ns", states, fields.couplings[fields.pattern], states)
    linear = (fields.fields + fields.log_odds) @ states.T
    return fields.constant[:, None] + fields.log_all_off + linear - 0.5 * pairs


def test_fields_are_the_joint_density():
    draw = random_draw(5, 7)
    rows = random_rows(draw, 6)
    expected, states = log_joint(draw, rows)
    np.testing.assert_allclose(log_density_of(fields_of(draw, rows), states), expected, rtol=1e-12)


def test_weights_at_the_ends_stay_finite():
    draw = random_draw(3, 4)._replace(weights=np.array([1.0, 0.0, 0.5], np.float32))
    evidence, activation = enumerate_rows(fields_of(draw, random_rows(draw, 5)))
    assert np.isfinite(evidence).all()
    np.testing.assert_allclose(activation[:, :2], [[1.0, 0.0]] * 5, atol=1e-6)


@pytest.mark.parametrize("n_features", [1, 2, 7, 10])
def test_enumeration_is_brute_force(n_features):
    draw = random_draw(n_features, 6, seed=n_features)
    rows = random_rows(draw, 9)
    evidence, activation = enumerate_rows(fields_of(draw, rows))
    expected, probability = brute_force(draw, rows)
    np.testing.assert_allclose(evidence, expected, rtol=1e-12)
    np.testing.assert_allclose(activation, probability, atol=1e-12)


def test_enumeration_without_features_is_the_noise_density():
    draw = make_draw(np.zeros((0, 4)), np.zeros(0), 0.5)
    rows = np.random.default_rng(0).normal(size=(3, 4))
    evidence, activation = enumerate_rows(fields_of(draw, rows))
    expected = -(rows**2).sum(axis=1) - 2.0 * np.log(np.pi)
    np.testing.assert_allclose(evidence, expected, rtol=1e-12)
    assert activation.shape == (3, 0)


def test_enumeration_survives_tiny_noise_and_far_rows():
    draw = random_draw(6, 5, noise=1e-6)
    rows = random_rows(draw, 4) + 3.0
    evidence, activation = enumerate_rows(fields_of(draw, rows))
    expected, probability = brute_force(draw, rows)
    np.testing.assert_allclose(evidence, expected, rtol=1e-10)
    np.testing.assert_allclose(activation, probability, atol=1e-6)


def test_float32_draws_and_rows_lose_little():
    draw = random_draw(8, 200)
    rows = random_rows(draw, 20).astype(np.float32)
    single = make_draw(
        draw.vectors.astype(np.float32), draw.weights.astype(np.float32), np.float32(0.25)
    )
    double = make_draw(
        single.vectors.astype(float), single.weights.astype(float), draw.noise_variance
    )
    np.testing.assert_allclose(
        enumerate_rows(fields_of(single, rows))[0],
        enumerate_rows(fields_of(double, rows.astype(float)))[0],
        atol=0.02,
    )


def activation_is_off(of_rows=row_fields, of_walks=annealed_rows):
    """Standard errors between activations of many short walks and those by brute force."""
    draw = random_draw(6, 4, noise=0.5)
    rows = np.repeat(random_rows(draw, 1), 6000, axis=0)
    exact = brute_force(draw, rows[:1])[1][0]
    fields = fields_of(draw, rows, of_rows)
    _, activation, states = of_walks.walk(fields, 3, 50, 10, n_streams=len(rows))
    return max(z_score(activation, exact), z_score(states.mean(axis=1), exact))


def test_the_activation_of_walks_is_the_posterior():
    assert activation_is_off() < FOUR


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("/ noise - half[self.pattern]", "/ noise - 0.9 * half[self.pattern]"),
        ("np.log(weights) - np.log1p(-weights)", "np.log(weights)"),
    ],
)
def test_broken_fields_are_noticed(old, new):
    assert activation_is_off(of_rows=broken(row_fields, old, new)) > FOUR


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("activation / max(n_sweeps, 1)", "activation / (n_sweeps + 1)"),
        ("1.0, logistic[s, single], activation[n]", "0.9, logistic[s, single], activation[n]"),
        ("1.0, gumbel[s, pair], partner[s, pair]", "0.8, gumbel[s, pair], partner[s, pair]"),
    ],
)
def test_broken_walks_are_noticed(old, new):
    assert activation_is_off(of_walks=broken(annealed_rows, old, new)) > FOUR


def test_averaged_probabilities_beat_averaged_states():
    draw = random_draw(8, 6)
    fields = fields_of(draw, random_rows(draw, 300))
    exact = enumerate_rows(fields)[1]
    _, activation, states = walk(fields, 0, 20, 20)
    assert np.mean((activation - exact) ** 2) < 0.8 * np.mean((states.mean(axis=1) - exact) ** 2)


def test_rows_take_random_numbers_in_turn():
    draw = random_draw(20, 30)
    rows = random_rows(draw, 70)
    found = walk(fields_of(draw, rows), 5, 10, 5)
    late = walk(fields_of(draw, rows[37:]), 5, 10, 5, first_row=37)
    np.testing.assert_array_equal(late.states, found.states[37:])
    np.testing.assert_allclose(late.log_weights, found.log_weights[37:], atol=1e-9)
    other = walk(fields_of(draw, rows), 6, 10, 5)
    assert not np.array_equal(other.activation, found.activation)
    same = np.repeat(rows[:1], 20, axis=0)
    by_turn = walk(fields_of(draw, same), 5, 3, 1).log_weights
    assert len(np.unique(by_turn)) == 16
    np.testing.assert_array_equal(by_turn[16:], by_turn[:4])
    assert np.ptp(walk(fields_of(draw, same), 5, 3, 1, n_streams=1).log_weights) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("masses @ states / total", "masses @ states / (1.01 * total)"),
        ("- shared[rows.pattern]", "- 0.99 * shared[rows.pattern]"),
        ("np.triu_indices(n_features, 1)", "np.triu_indices(n_features, 2)"),
        ("+ top + np.log(total)", "+ np.log(total)"),
        ("rows.log_all_off + top", "top"),
    ],
)
def test_broken_enumerations_are_noticed(old, new):
    module = broken(row_fields, old, new)
    draw = random_draw(6, 4)
    rows = random_rows(draw, 5)
    found = module.enumerate_rows(fields_of(draw, rows))
    off = [np.abs(a - b).max() for a, b in zip(found, brute_force(draw, rows), strict=True)]
    assert max(off) > 1e-4
