"""Scores of new rows and hidden entries against sums over all states."""

from functools import partial

import numpy as np
import pytest
from scipy import sparse
from scipy.special import logsumexp
from scipy.stats import norm

from latent_features.feature_problems import (
    brute_force,
    log_joint,
    make_draw,
    random_draw,
    random_rows,
    with_gaps,
)
from statistical import FOUR
from wideangle.latent_features import fields as row_fields
from wideangle.latent_features import score as lfm_score
from wideangle.latent_features.importance import annealed_evidence
from wideangle.latent_features.score import (
    activation,
    expected_rows,
    log_likelihood,
    score_entries,
)

DRAWS = [random_draw(4, 6), random_draw(7, 6, seed=5, noise=0.4), random_draw(2, 6, seed=6)]


def exact_log_likelihood(draws, rows):
    by_draw = [brute_force(draw, rows)[0] for draw in draws]
    return logsumexp(by_draw, axis=0) - np.log(len(draws))


def test_log_likelihood_sums_out_assignments_and_averages_draws():
    rows = random_rows(DRAWS[1], 11)
    found = log_likelihood(DRAWS, rows, 0)
    np.testing.assert_allclose(found, exact_log_likelihood(DRAWS, rows), rtol=1e-11)


def test_log_likelihood_beyond_enumeration_is_close(monkeypatch):
    monkeypatch.setattr(lfm_score, "ENUMERATED", 0)
    rows = random_rows(DRAWS[1], 60)
    evidence = partial(annealed_evidence, n_steps=400, n_walks=10)
    monkeypatch.setattr(lfm_score, "annealed_evidence", evidence)
    found = log_likelihood(DRAWS, rows, 0)
    np.testing.assert_allclose(found, exact_log_likelihood(DRAWS, rows), atol=0.25)


def test_densities_integrate_to_1():
    draw = random_draw(3, 1, noise=0.3)
    grid = np.linspace(-12.0, 12.0, 4001)
    density = np.exp(log_likelihood([draw, random_draw(3, 1, noise=0.1)], grid[:, None], 0))
    assert np.trapezoid(density, grid) == pytest.approx(1.0, abs=1e-6)


def test_missing_entries_are_integrated_out(monkeypatch):
    rows = with_gaps(random_rows(DRAWS[1], 20))
    rows[3] = np.nan
    rows[4] = 1.0
    exact = exact_log_likelihood(DRAWS, rows)
    np.testing.assert_allclose(log_likelihood(DRAWS, rows, 0), exact, rtol=1e-10, atol=1e-12)
    assert exact[3] == pytest.approx(0.0, abs=1e-12)
    monkeypatch.setattr(row_fields, "CHUNK_BYTES", 8 * 7 * 7 * 3)
    np.testing.assert_allclose(log_likelihood(DRAWS, rows, 0), exact, rtol=1e-10, atol=1e-12)


def test_the_offset_is_subtracted_where_entries_are_seen():
    rows, offset = with_gaps(random_rows(DRAWS[1], 12)), np.arange(6.0)
    np.testing.assert_allclose(
        log_likelihood(DRAWS, rows + offset, 0, offset=offset),
        exact_log_likelihood(DRAWS, rows),
        rtol=1e-9,
    )


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array, sparse.coo_matrix])
def test_sparse_rows_are_dense_rows(kind):
    dense = np.where(np.random.default_rng(0).random((30, 6)) < 0.4, random_rows(DRAWS[0], 30), 0.0)
    offset = np.linspace(-0.5, 0.5, 6)
    for rows in (dense, with_gaps(dense, 0.1)):
        np.testing.assert_allclose(
            log_likelihood(DRAWS, kind(rows), 0, offset=offset),
            log_likelihood(DRAWS, rows, 0, offset=offset),
            rtol=1e-10,
        )


def test_chunks_change_nothing(monkeypatch):
    draws = [random_draw(18, 12), random_draw(20, 12, seed=3)]
    rows = with_gaps(random_rows(draws[0], 40), 0.05)
    index = np.array([[0, 5, -1], [2, -1, -1]])
    mask = np.random.default_rng(0).random(rows.shape) < 0.1

    def everything():
        return [
            log_likelihood(draws, rows, 0),
            activation(draws, index, rows, 0),
            *score_entries(draws, rows, mask & ~np.isnan(rows), 0),
        ]

    whole = everything()
    monkeypatch.setattr(row_fields, "CHUNK_BYTES", 8 * 20 * 20 * 7)
    for found, expected in zip(everything(), whole, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-7)


def test_float32_rows_and_draws():
    single = [
        make_draw(d.vectors.astype("f4"), d.weights.astype("f4"), np.float32(d.noise_variance))
        for d in DRAWS
    ]
    rows = (random_rows(DRAWS[1], 30) + 100.0).astype(np.float32)  # a common offset, not removed
    found = log_likelihood(single, rows, 0)
    exact = exact_log_likelihood(
        [
            make_draw(d.vectors.astype(float), d.weights.astype(float), d.noise_variance)
            for d in single
        ],
        rows.astype(float),
    )
    np.testing.assert_allclose(found, exact, rtol=1e-12)


def test_activation_is_averaged_over_the_draws_that_have_the_component():
    rows = with_gaps(random_rows(DRAWS[0], 15))
    index = np.array([[0, 3, -1], [6, -1, -1], [1, 0, -1]])
    first, second, third = (brute_force(draw, rows)[1] for draw in DRAWS)
    found = activation(DRAWS, index, rows, 0)
    expected = (first[:, 0] + second[:, 6] + third[:, 1]) / 3, (first[:, 3] + third[:, 0]) / 2
    np.testing.assert_allclose(found[:, :2], np.transpose(expected), atol=1e-11)
    assert (found[:, 2] == 0.0).all()


def test_gibbs_activation_with_missing_entries(monkeypatch):
    monkeypatch.setattr(lfm_score, "ENUMERATED", -1)
    monkeypatch.setattr(lfm_score, "SWEEPS", 4000)
    monkeypatch.setattr(lfm_score, "SWEEPS_OF_ALL", 4000)
    draw = random_draw(5, 6, noise=1.0)
    rows = with_gaps(random_rows(draw, 10))
    found = activation([draw], np.arange(5)[None], rows, 0)
    np.testing.assert_allclose(found, brute_force(draw, rows)[1], atol=0.03)


def test_expected_rows_fill_gaps():
    rows, offset = with_gaps(random_rows(DRAWS[0], 15)), np.arange(6.0)
    exact = np.mean([brute_force(draw, rows)[1] @ draw.vectors for draw in DRAWS], axis=0)
    found = expected_rows(DRAWS, rows + offset, 0, offset=offset)
    np.testing.assert_allclose(found, exact, atol=1e-9)


def exact_entries(draws, rows, mask):
    """Mean and log density of hidden entries by the sum over all states."""
    seen = np.where(mask, np.nan, rows)
    means, densities = [], []
    for draw in draws:
        joint, states = log_joint(draw, seen)
        weights = joint - logsumexp(joint, axis=1, keepdims=True)
        centres = states @ draw.vectors
        spread = np.sqrt(draw.noise_variance)
        density = norm.logpdf(rows[:, None, :], centres, spread)
        densities.append(logsumexp(weights[:, :, None] + density, axis=1))
        means.append(np.exp(weights) @ centres)
    density = logsumexp(densities, axis=0) - np.log(len(draws))
    return np.mean(means, axis=0)[mask], density[mask]


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csr_array])
@pytest.mark.parametrize("cheap", [-1, 10])
def test_hidden_entries_are_predicted_from_the_others(monkeypatch, kind, cheap):
    monkeypatch.setattr(lfm_score, "ENUMERATED", cheap)
    monkeypatch.setattr(lfm_score, "SWEEPS", 2000)
    draws = [random_draw(4, 6, noise=1.0), random_draw(6, 6, seed=5, noise=0.8)]
    rows = random_rows(draws[0], 12)
    rows[0, 0] = 0.0
    mask = np.random.default_rng(3).random(rows.shape) < 0.3
    mask[0, 0], mask[5] = True, False
    offset = np.linspace(-1.0, 1.0, 6)
    mean, log_density = exact_entries(draws, rows - offset, mask)
    found = score_entries(draws, kind(rows), kind(mask), 0, offset=offset)
    np.testing.assert_allclose(found.mean, mean, atol=0.06)
    np.testing.assert_allclose(found.log_density, log_density, atol=0.06)


def test_hidden_values_do_not_leak():
    rows = random_rows(DRAWS[1], 20)
    mask = np.random.default_rng(3).random(rows.shape) < 0.3
    moved = np.where(mask, 1e6, rows)
    np.testing.assert_array_equal(
        score_entries(DRAWS, rows, mask, 0).mean, score_entries(DRAWS, moved, mask, 0).mean
    )


def test_repeats_of_the_annealed_score_err_downwards(monkeypatch):
    monkeypatch.setattr(lfm_score, "ENUMERATED", 0)
    draw = random_draw(8, 5, noise=0.1)
    rows = random_rows(draw, 30)
    exact = exact_log_likelihood([draw], rows)
    monkeypatch.setattr(lfm_score, "annealed_evidence", partial(annealed_evidence, n_steps=10))
    error = np.array([(log_likelihood([draw], rows, s) - exact).mean() for s in range(20)])
    assert error.mean() < FOUR * error.std() / np.sqrt(20)
    assert abs(error.mean()) < 0.2
