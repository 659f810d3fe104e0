"""The areas "sweeps" and "features": sweeps that move, floors that are products, known truths."""

import numpy as np
import pytest
import scipy.sparse as sp

from wideangle.datasets import block_images
from wideangle_lab.bench import feature_quality as quality
from wideangle_lab.bench import features
from wideangle_lab.bench.harness import AREAS, Settings, Size

QUICK = Settings(quick=True, seed=0, repeats=2)


def test_the_areas_are_measured():
    assert AREAS["sweeps"] == features.__name__
    assert AREAS["features"] == quality.__name__


def test_rows_without_the_file_have_the_density_of_text():
    X, source = features.news_rows(QUICK, Size(400, 300, 5))
    assert X.shape == (400, 300) and X.dtype == np.float32
    assert abs(X.nnz / (400 * 300) - features.DENSITY) < 0.001
    assert "random rows" in source


def test_rough_features_are_means_of_groups_without_the_mean_row():
    X = sp.csr_array(np.random.default_rng(0).random((30, 7)) * (np.arange(7) < 5))
    found, assignments = features.rough_features(X, 4, seed=1)
    rows = X.toarray()
    assert np.all(assignments.sum(axis=1) == 1)
    assert np.all(assignments.sum(axis=0) >= 1)
    for k in range(4):
        expected = rows[assignments[:, k] == 1].mean(axis=0) - rows.mean(axis=0)
        np.testing.assert_allclose(found[k], expected, atol=1e-12)


def test_a_problem_and_its_fresh_rows_share_features_and_no_rows():
    for problem in quality.problems(quick=True):
        made, fresh = problem.make(3), problem.fresh(3)
        np.testing.assert_array_equal(made.features, fresh.features)
        assert not np.any(np.all(made.X[:, None] == fresh.X[None, :50], axis=2))


def test_features_count_as_found_once_and_only_if_near():
    truth = block_images(0).features
    off = truth[0] + 0.24 * np.linalg.norm(truth[0]) * np.eye(36)[35]
    assert quality.n_found(truth, truth[::-1]) == 4
    assert quality.n_found(truth[:1], off[None]) == 1
    far = truth[0] + 0.26 * np.linalg.norm(truth[0]) * np.eye(36)[35]
    assert quality.n_found(truth[:1], far[None]) == 0
    assert quality.n_found(truth, np.repeat(truth[:1], 5, axis=0)) == 1
    assert quality.n_found(truth, np.empty((0, 36))) == 0


@pytest.mark.parametrize(
    ("change", "good"),
    [
        ({}, True),
        ({"n_found": 3}, False),
        ({"n_components": 6}, False),
        ({"mean_error": 0.11}, False),
        ({"draw_error": 0.5}, True),
    ],
)
def test_a_fit_is_good_if_everything_is(change, good):
    blocks = quality.problems(quick=True)[0]
    fit = quality.Found(4, 5, 0.09, 0.2, 1.0, 0.1)._replace(**change)
    assert fit.good(blocks, 4) == good


def test_single_draws_count_where_they_are_asked_for():
    problem = quality.problems(quick=False)[1]
    fit = quality.Found(30, 33, 0.049, 0.059, 1.0, 0.1)
    assert fit.good(problem, 30)
    assert not fit._replace(draw_error=0.061).good(problem, 30)
    assert not fit._replace(n_components=34).good(problem, 30)


def test_length_and_sign_of_a_component_of_a_peer_do_not_count():
    truth = block_images(0).features
    assert quality.n_found_up_to_length(truth, -3.0 * truth[::-1]) == 4
    assert quality.n_found_up_to_length(truth, truth[:1] + 0.01) == 1
    assert quality.n_found_up_to_length(truth, truth.mean(axis=0, keepdims=True)) == 0
    assert quality.n_found_up_to_length(truth, np.zeros((2, 36))) == 0


@pytest.mark.parametrize("name", quality.peers(4, 0))
def test_peers_reconstruct_better_than_nothing_and_not_perfectly(name):
    made, fresh = block_images(0, 300), block_images(10_000, 300)
    found = quality.fit_peer(name, quality.peers(4, 0)[name], made, fresh)
    nothing = quality.rms(fresh.X.mean(axis=0), fresh)
    assert 0.05 < found.mean_error < 0.9 * nothing
    assert found.seconds > 0 and found.applied > 0
    assert 0 <= found.n_found <= 4


@pytest.mark.slow
def test_a_sweep_moves_the_chain_and_its_floor_is_two_products():
    sweeper = features.dense_sweeper(0, features.SMALL)
    assert sweeper.ready().chain.n_done == features.WARM
    for n_done in (1, 2):
        sweeper.sweep()
        assert sweeper.chain.n_done == features.WARM + n_done
    assert not sweeper.chain.draws
    first, second = (np.asarray(sweeper.sweep().assignments) for _ in range(2))
    assert np.any(first[:, :6] != second[:, :6])
    assert int(sweeper.chain.features.n_live) == features.SMALL.components
    products, sums = sweeper.floor()
    assert products.shape == (features.SMALL.rows, features.SMALL.components)
    assert sums.shape == features.SMALL[:2]


def test_sparse_features_have_the_numbers_asked_for():
    made = quality.sparse_features(1)
    assert made.X.shape == (5000, 200)
    assert np.all((made.features != 0).sum(axis=1) == 20)
    assert made.features.shape == (30, 200)
    entries = made.features[made.features != 0]
    assert abs(entries.std() - 1.0) < 4 / np.sqrt(2 * entries.size)
    assert abs(made.assignments.mean() - 0.2) < 4 * 0.4 / np.sqrt(made.assignments.size)
    residual = made.X - made.signal
    assert abs(residual.std() - 0.5) < 4 * 0.5 / np.sqrt(2 * residual.size)
