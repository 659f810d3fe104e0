"""Matching features across draws: order, absence, surplus, sign, chains."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from latent_features.feature_problems import make_draw
from wideangle.latent_features import posterior
from wideangle.latent_features.posterior import match, relative_distance

TRUTH = np.random.default_rng(0).normal(size=(6, 20)) * np.linspace(0.5, 3.0, 6)[:, None]


def shuffled_draws(n_draws, *, jitter=0.1, absent=(), spurious=0, dtype=float):
    """Draws with features in random order; ``absent[s]`` are missing from draw s."""
    rng = np.random.default_rng(1)
    draws, orders = [], []
    for s in range(n_draws):
        gone = absent[s] if s < len(absent) else []
        order = rng.permutation(np.setdiff1d(np.arange(6), gone))
        features = TRUTH[order] + jitter * rng.normal(size=(len(order), 20))
        features = np.concatenate([features, rng.normal(size=(spurious, 20))])
        sticks = np.append((order + 1) / 10.0, np.full(spurious, 0.01))
        draws.append(make_draw(features.astype(dtype), sticks.astype(dtype), 0.25))
        orders.append(np.append(order, np.full(spurious, -1)))
    return draws, orders


def truth_of(matched):
    """Which true feature each component is."""
    distance = relative_distance(matched.components, TRUTH)
    assert (distance.min(axis=1) < 0.2).all()
    return distance.argmin(axis=1)


def check_index(matched, orders):
    which = truth_of(matched)
    for numbers, order in zip(matched.index, orders, strict=True):
        present = numbers >= 0
        np.testing.assert_array_equal(order[numbers[present]], which[present])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_permutation_is_undone(dtype):
    draws, orders = shuffled_draws(12, dtype=dtype)
    matched = match(draws)
    check_index(matched, orders)
    assert sorted(truth_of(matched)) == list(range(6))
    np.testing.assert_array_equal(matched.presence, 1.0)
    assert np.abs(matched.components - TRUTH[truth_of(matched)]).max() < 4 * 0.1 / np.sqrt(12) * 1.1
    assert matched.components.dtype == np.float64


def test_components_are_in_order_of_energy():
    matched = match(shuffled_draws(12)[0])
    which = truth_of(matched)
    expected = (which + 1) / 10 * (np.sum(TRUTH[which] ** 2, axis=1) + 20 * 0.01)
    np.testing.assert_allclose(matched.energy, expected, rtol=0.1)
    assert (np.diff(matched.energy) <= 0).all()
    np.testing.assert_allclose(matched.prevalence, (which + 1) / 10)


def test_spread_is_the_relative_scatter():
    matched = match(shuffled_draws(200)[0])
    expected = 0.1 * np.sqrt(20) / np.linalg.norm(TRUTH[truth_of(matched)], axis=1)
    np.testing.assert_allclose(matched.spread, expected, rtol=0.1)


def test_presence_counts_draws_and_absence_is_minus_1(monkeypatch):
    draws, orders = shuffled_draws(10, absent=[[2], [2], [2, 5], [2]])
    matched = match(draws)
    check_index(matched, orders)
    presence = matched.presence[np.argsort(truth_of(matched))]
    np.testing.assert_allclose(presence, [1, 1, 0.6, 1, 1, 0.9])
    np.testing.assert_allclose((matched.index < 0).sum(axis=0), 10 * (1 - matched.presence))
    for share, n_components in ((0.6, 6), (0.7, 5)):
        monkeypatch.setattr(posterior, "MIN_PRESENCE", share)
        assert len(match(draws).components) == n_components


def test_a_feature_that_the_first_draw_lacks_is_found():
    draws, orders = shuffled_draws(10, absent=[[0, 4]])
    matched = match(draws)
    check_index(matched, orders)
    assert sorted(truth_of(matched)) == list(range(6))


def test_spurious_features_are_left_out():
    draws, orders = shuffled_draws(10, spurious=4)
    matched = match(draws)
    assert len(matched.components) == 6
    check_index(matched, orders)


def test_features_worth_nothing_are_left_out_and_numbers_stay():
    draws, orders = shuffled_draws(10, spurious=2)
    draws = [
        draw._replace(worth=np.where(order == 3, -1.0, 1.0))
        for draw, order in zip(draws, orders, strict=True)
    ]
    matched = match(draws)
    assert 3 not in truth_of(matched)
    check_index(matched, orders)


def test_a_feature_and_its_negative_are_two():
    draws, _ = shuffled_draws(10)
    flipped = [d._replace(vectors=-d.vectors) for d in draws[5:]]
    matched = match(draws[:5] + flipped)
    assert len(matched.components) == 12
    np.testing.assert_array_equal(matched.presence, 0.5)
    assert len(match(draws[:6] + flipped[1:]).components) == 6


def test_lengths_count_not_only_directions():
    draws, _ = shuffled_draws(10)
    longer = [d._replace(vectors=2.5 * d.vectors) for d in draws[5:]]
    assert len(match(draws[:5] + longer).components) == 12


def test_chains_that_disagree_are_reported(monkeypatch):
    draws, _ = shuffled_draws(40, absent=[[]] * 10 + [[1]] * 30)
    matched = match(draws, chains=np.repeat([3, 5, 7, 9], 10))
    assert len(matched.components) == 5
    assert matched.n_disputed == 1  # found by one chain alone, so not among the components
    np.testing.assert_array_equal(matched.by_chain, np.ones((4, 5)))
    assert match(draws[10:], chains=np.repeat([0, 1, 2], 10)).n_disputed == 0
    monkeypatch.setattr(posterior, "MIN_PRESENCE", 0.2)
    matched = match(draws, chains=np.repeat([3, 5, 7, 9], 10))
    which = int(np.flatnonzero(truth_of(matched) == 1)[0])
    np.testing.assert_array_equal(matched.by_chain[:, which], [1.0, 0.0, 0.0, 0.0])


def test_crowded_features_are_assigned_with_the_least_total_distance():
    # Two centres within the cut-off of each other: greedy choice takes the wrong pair.
    base = np.array([[10.0, 0.0], [10.0, 1.0]])
    centres = base
    vectors = np.array([[10.0, 0.6], [10.0, 3.5]])
    distance = relative_distance(vectors, centres)
    left, right = linear_sum_assignment(distance)
    expected = np.empty(2, int)
    expected[right] = left
    np.testing.assert_array_equal(posterior._assign(vectors, centres), expected)
    assert distance.argmin(axis=1).tolist() == [1, 1]  # one to one is not nearest


def test_a_pair_beyond_the_cutoff_is_not_forced():
    # Both vectors are near the first centre; the second pair would be left over, too far apart.
    centres, vectors = np.array([[10.0], [14.0]]), np.array([[10.0], [6.0]])
    np.testing.assert_array_equal(posterior._assign(vectors, centres), [0, -1])


def test_candidates_are_plain_means_of_what_they_collect():
    draws, orders = shuffled_draws(9)
    centres = posterior._candidates([d.vectors.astype(np.float32) for d in draws])
    means = np.mean([d.vectors[np.argsort(o)] for d, o in zip(draws, orders, strict=True)], axis=0)
    np.testing.assert_allclose(centres, means[orders[0]], rtol=1e-4, atol=1e-5)


def test_relative_distance_against_plain_norms():
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(3, 5)), 4 * rng.normal(size=(4, 5))
    left[0] = 0.0
    right[0] = left[1]
    expected = [
        [np.linalg.norm(a - b) / max(np.linalg.norm(a), np.linalg.norm(b)) for b in right]
        for a in left
    ]
    np.testing.assert_allclose(relative_distance(left, right), expected, atol=1e-7)


def test_components_are_searched_for_in_draws_of_every_chain():
    # The first feature always; the second late in a long chain, the third in a short one only.
    kinds = np.repeat([0, 1, 2], [200, 300, 3])
    vectors = [TRUTH[:1], TRUTH[:2], TRUTH[[0, 2]]]
    draws = [make_draw(vectors[kind], np.full(len(vectors[kind]), 0.1), 1.0) for kind in kinds]
    matched = match(draws, chains=np.repeat([0, 1], [500, 3]))
    assert sorted(truth_of(matched)) == [0, 1]
    assert matched.n_disputed == 2
    assert posterior.MIN_PRESENCE**posterior.SEARCHED <= 1e-3


@pytest.mark.parametrize("sizes", [(0, 0), (0, 3), (3, 0)])
def test_draws_without_features(sizes):
    draws = [make_draw(TRUTH[:k], np.full(k, 0.1), 1.0) for k in sizes]
    matched = match(draws)
    assert matched.components.shape == (max(sizes), 20)
    assert matched.index.shape == (2, max(sizes))
