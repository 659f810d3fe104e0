"""New rows of the feature model: fields, Gibbs sweeps, enumeration."""

import numpy as np
import pytest
from numba import njit

from latent_features.feature_problems import (
    broken,
    brute_force,
    fields_of,
    log_joint,
    make_draw,
    random_draw,
    random_rows,
)
from statistical import FOUR, RARE, ks_pvalue, z_score
from wideangle.latent_features import parallel as row_parallel
from wideangle.latent_features.predict import enumerated as enumerated_rows
from wideangle.latent_features.predict import held_out as held_out_rows
from wideangle.latent_features.predict.enumerated import enumerate_rows
from wideangle.latent_features.predict.held_out import gibbs_rows


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


def gibbs_is_off(module):
    """Standard errors between activations by many short Gibbs runs and by brute force."""
    draw = random_draw(6, 4, noise=0.5)
    rows = np.repeat(random_rows(draw, 1), 6000, axis=0)
    gram = draw.vectors @ draw.vectors.T
    fields = module.row_fields(draw, rows @ draw.vectors.T, (rows**2).sum(axis=1), gram)
    exact = brute_force(draw, rows[:1])[1][0]
    activation, states = module.gibbs_rows(fields, 3, n_sweeps=10, n_warmup=25)
    return max(z_score(activation, exact), z_score(states.mean(axis=1), exact))


def test_gibbs_activation_is_the_posterior():
    assert gibbs_is_off(held_out_rows) < FOUR


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("products / noise - half[pattern]", "products / noise - 0.9 * half[pattern]"),
        ("activation / n_sweeps, states", "activation / (n_sweeps + 1), states"),
        ("power = 1.0 if counts", "power = 0.9 if counts"),
        ("mean = activation[n] if counts", "mean = activation[n] if step < n_warmup"),
        ("np.log(weights) - np.log1p(-weights)", "np.log(weights)"),
    ],
)
def test_broken_sweeps_are_noticed(old, new):
    assert gibbs_is_off(broken(held_out_rows, old, new)) > FOUR


def test_averaged_probabilities_beat_averaged_states():
    draw = random_draw(8, 6)
    fields = fields_of(draw, random_rows(draw, 300))
    exact = enumerate_rows(fields)[1]
    activation, states = gibbs_rows(fields, 0)
    assert np.mean((activation - exact) ** 2) < 0.8 * np.mean((states.mean(axis=1) - exact) ** 2)


def test_threads_and_chunks_change_nothing(monkeypatch):
    draw = random_draw(20, 30)
    rows = random_rows(draw, 700)
    activation, states = gibbs_rows(fields_of(draw, rows), 5)
    late, _ = gibbs_rows(fields_of(draw, rows[400:]), 5, first_row=400)
    np.testing.assert_allclose(late, activation[400:], atol=1e-9)
    monkeypatch.setattr(row_parallel, "THREADED_WORK", np.inf)
    alone, states_alone = gibbs_rows(fields_of(draw, rows), 5)
    np.testing.assert_array_equal(alone, activation)
    np.testing.assert_array_equal(states_alone, states)
    other, _ = gibbs_rows(fields_of(draw, rows), 6)
    assert not np.array_equal(other, activation)


@njit
def numbers_of(seed, n_rows, n_numbers):
    numbers = np.empty((n_rows, n_numbers))
    for row in range(n_rows):
        state = row_parallel.stream(seed, row)
        for i in range(n_numbers):
            state, numbers[row, i] = row_parallel.uniform(state)
    return numbers


def test_streams_are_uniform_and_unrelated():
    numbers = numbers_of(np.uint64(7), 20_000, 10)
    assert ks_pvalue(numbers, lambda u: u) > RARE
    for left, right in [
        (numbers[1:, 0], numbers[:-1, 0]),  # neighbouring rows
        (numbers[:, 1], numbers[:, 0]),  # one after the other
        (numbers[1:, 0], numbers[:-1, 1]),  # a stream must not be its neighbour, shifted
        (numbers[:, 0], numbers_of(np.uint64(8), 20_000, 1)[:, 0]),  # neighbouring seeds
    ]:
        assert abs(np.corrcoef(left, right)[0, 1]) < FOUR / np.sqrt(len(left))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        activation[d] += mass[d]", "        activation[d] += 0.5 * mass[d]"),
        ("below[d, j] - coupling[d, j]", "below[d, j] - 0.99 * coupling[d, j]"),
        ("activation *= shrink", "activation *= 1.0"),
        ("mass *= shrink", "mass *= 1.0"),
        ("rows.log_all_off + log_sums", "log_sums"),
    ],
)
def test_broken_enumerations_are_noticed(old, new):
    module = broken(enumerated_rows, old, new)
    draw = random_draw(6, 4)
    rows = random_rows(draw, 5)
    found = module.enumerate_rows(fields_of(draw, rows))
    off = [np.abs(a - b).max() for a, b in zip(found, brute_force(draw, rows), strict=True)]
    assert max(off) > 1e-4
