"""The search for a first state: what it finds, what it costs, and where it must find nothing."""

import math
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import sparse

from marks import first_quick
from wideangle import LatentFeatureModel, Sampling
from wideangle.latent_features import anneal as lfm_anneal
from wideangle.latent_features import start as lfm_start
from wideangle.latent_features.anneal import Problem, penalty
from wideangle.latent_features.memory import MemoryRows
from wideangle.latent_features.start import find_features

NOISE = 0.25


def block_images(seed, n_rows=1000):
    """Four 3 x 3 shapes in the corners of a 6 x 6 image, each there with probability 1/2."""
    rng = np.random.default_rng(seed)
    corners = [
        ["010", "111", "010"],
        ["111", "101", "111"],
        ["100", "110", "111"],
        ["111", "010", "010"],
    ]
    features = np.zeros((4, 6, 6))
    for k, shape in enumerate(corners):
        row, column = 3 * (k // 2), 3 * (k % 2)
        features[k, row : row + 3, column : column + 3] = [[int(c) for c in line] for line in shape]
    features = features.reshape(4, 36)
    chosen = rng.random((n_rows, 4)) < 0.5
    return chosen @ features + math.sqrt(NOISE) * rng.normal(size=(n_rows, 36)), features


def planted(seed, n_rows, dim, n_features, *, probability=0.2, ones=False, n_nonzero=None):
    rng = np.random.default_rng(seed)
    features = np.zeros((n_features, dim))
    for w in features:
        some = rng.choice(dim, n_nonzero or dim // 10, replace=False)
        w[some] = 1.0 if ones else rng.normal(size=len(some))
    chosen = rng.random((n_rows, n_features)) < probability
    noise = math.sqrt(NOISE) * rng.normal(size=(n_rows, dim))
    return chosen @ features + noise, features


def n_found(truth, start):
    gaps = np.linalg.norm(truth[:, None] - start.features, axis=2)
    return int(np.sum(gaps.min(axis=1, initial=np.inf) < 0.25 * np.linalg.norm(truth, axis=1)))


def n_substantial(start, data, share):
    carried = start.assignments.sum(axis=0) * np.sum(start.features**2, axis=1)
    return int(np.sum(carried >= share * np.sum(data**2)))


def search(data, noise_variance=None, seed=0, **options):
    rng = np.random.default_rng(seed)
    return find_features(rng, MemoryRows(data), noise_variance, **options)


# What it finds


@pytest.mark.parametrize("noise", [NOISE, None])
def test_all_shapes_of_block_images_and_no_others(noise):
    data, truth = block_images(3, n_rows=500)
    start = search(data, noise, max_features=20, hops=40)
    assert n_found(truth, start) == len(start.features) == 4
    assert start.noise_variance == pytest.approx(NOISE, rel=0.05)


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, np.float32])
def test_planted_features_are_found_in_dense_sparse_and_single_precision(kind):
    data, truth = planted(0, 1000, 100, 10, n_nonzero=15)
    start = search(kind(data), max_features=40, hops=5)
    assert n_found(truth, start) == len(start.features) == 10


def test_an_offset_is_seen_as_if_subtracted():
    data, truth = planted(0, 600, 60, 5, n_nonzero=15)
    shift = np.linspace(1.0, 3.0, 60)
    start = find_features(np.random.default_rng(0), MemoryRows(data + shift, shift), NOISE, hops=5)
    assert n_found(truth, start) == len(start.features) == 5


@pytest.mark.parametrize("factor", [1e-25, 1e-3, 1e25])
def test_units_do_not_matter_even_in_single_precision(factor):
    data, truth = planted(1, 400, 40, 4, n_nonzero=15)
    start = search((data * factor).astype(np.float32), max_features=10, hops=20)
    assert n_found(truth * factor, start) == len(start.features) == 4
    assert start.noise_variance == pytest.approx(NOISE * factor**2, rel=0.05)


@pytest.mark.parametrize("wrong", [0.1, 10.0])
def test_a_wrong_guess_of_the_noise_is_mended(monkeypatch, wrong):
    data, truth = planted(2, 1000, 60, 6, n_nonzero=15)
    reading = lfm_start.Reading(wrong * NOISE, None)
    monkeypatch.setattr("wideangle.latent_features.start.read_spectrum", lambda *_: reading)
    start = search(data, max_features=30, hops=30)
    assert n_found(truth, start) == 6
    assert start.noise_variance == pytest.approx(NOISE, rel=0.05)


def test_the_same_generator_gives_the_same_answer_also_in_threads():
    data, _ = block_images(0, n_rows=200)
    alone = [search(data, seed=seed, max_features=8, hops=5) for seed in range(3)]
    with ThreadPoolExecutor(3) as pool:
        together = list(
            pool.map(lambda seed: search(data, seed=seed, max_features=8, hops=5), range(3))
        )
    for first, second in zip(alone, together, strict=True):
        np.testing.assert_array_equal(first.features, second.features)
        np.testing.assert_array_equal(first.assignments, second.assignments)
    assert not np.array_equal(alone[0].features, alone[1].features)


def test_a_search_to_the_end_goes_on_while_the_objective_rises(monkeypatch):
    data, _ = planted(0, 400, 30, 6, n_nonzero=10)
    worths, going = iter([5.0, 9.0, 9.5, 100.0]), []

    def anneal(rng, problem, noise, effort, schedule, start):
        going.append(schedule)
        return found._replace(objective=next(worths))

    problem = Problem(MemoryRows(data), 30)
    found = lfm_anneal.settle(problem, np.ones((400, 1), np.uint8), NOISE)._replace(objective=0.0)
    monkeypatch.setattr(lfm_start, "anneal", anneal)
    effort, rng = lfm_anneal.Effort(10), np.random.default_rng(0)
    best = lfm_start._go_on(rng, problem, found, effort)
    assert (best.objective, going) == (9.0, [lfm_start.COLD] * 3)
    assert lfm_start._go_on(rng, problem._replace(stop=lambda: True), found, effort) is found


def test_the_objective_is_the_log_likelihood_less_the_prices():
    data, _ = block_images(1, n_rows=300)
    start = search(data, NOISE, max_features=10, hops=2)
    left = data - start.assignments @ start.features
    log_lik = -0.5 * np.sum(left**2) / NOISE - 0.5 * data.size * np.log(2 * np.pi * NOISE)
    counts, lengths = start.assignments.sum(axis=0), np.sum(start.features**2, axis=1)
    prices = penalty(Problem(MemoryRows(data), 36), counts, lengths, NOISE)
    assert start.objective == pytest.approx(log_lik - prices.sum(), rel=1e-9)


@pytest.mark.slow
def test_mixtures_give_way_to_as_many_features_as_the_spectrum_counts():
    data, _ = planted(0, 2000, 100, 10, probability=0.5, ones=True, n_nonzero=20)
    rng, problem = np.random.default_rng(0), Problem(MemoryRows(data), 100)
    effort = lfm_anneal.Effort(60)
    reading = lfm_start.read_spectrum(rng, problem.rows)
    mixed = lfm_anneal.anneal(rng, problem, NOISE, effort)
    assert reading.rank == 10
    assert len(mixed.features) > 12
    tight = lfm_start._tighten(rng, problem, mixed, reading, effort)
    assert len(tight.features) <= 12
    assert tight.objective > mixed.objective
    for unclear in (reading._replace(rank=None), reading._replace(noise_variance=2 * NOISE)):
        assert lfm_start._tighten(rng, problem, mixed, unclear, effort) is mixed


# Where there is little or nothing to find


@pytest.mark.parametrize("noise", [1.0, None])
@pytest.mark.parametrize("shape", [(300, 20), (20, 500), (300, 1), (1, 20), (2, 3)])
def test_noise_has_no_features(shape, noise):
    data = np.random.default_rng(1).normal(size=shape)
    start = search(data, noise, max_features=10, hops=5)
    few = min(shape) <= 2  # a single row may be its own feature
    assert len(start.features) <= few
    assert np.isfinite(start.objective)
    assert start.noise_variance > 0


def test_one_column_in_two_groups():
    rng = np.random.default_rng(0)
    data = 8.0 * (rng.random((300, 1)) < 0.3) + rng.normal(size=(300, 1))
    for noise in (1.0, None):
        start = search(data, noise, max_features=10, hops=5)
        assert start.features[0] == pytest.approx(8.0, abs=0.5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_rows_are_one_feature(dtype):
    start = search(np.full((100, 7), 3.0, dtype), max_features=10, hops=5)
    np.testing.assert_allclose(start.assignments @ start.features, 3.0, rtol=1e-3)
    assert len(start.features) == 1


def test_rows_given_many_times_are_explained():
    data = np.repeat(5.0 * np.random.default_rng(0).normal(size=(3, 20)), 50, axis=0)
    start = search(data, max_features=10, hops=20)
    assert len(start.features) == 3
    np.testing.assert_allclose(start.assignments @ start.features, data, atol=0.05)


@pytest.mark.parametrize("data", [np.zeros((10, 4)), sparse.csr_matrix((10, 4))])
def test_zeros_have_no_features_and_a_usable_noise(data):
    start = search(data)
    assert start.features.shape == (0, 4)
    assert start.assignments.shape == (10, 0)
    assert start.noise_variance == 1.0


@pytest.mark.parametrize("most", [0, 1, 2])
@pytest.mark.parametrize("noise", [NOISE, None])
def test_there_are_never_more_features_than_allowed(most, noise):
    data, _ = block_images(0, n_rows=200)
    start = search(data, noise, max_features=most, hops=20)
    assert len(start.features) == start.assignments.shape[1] == most


# Its parts


def test_the_launch_climbs_and_finds_the_only_feature():
    rng = np.random.default_rng(0)
    feature = rng.normal(size=30)
    data = np.outer(rng.random(500) < 0.3, feature) + 0.5 * rng.normal(size=(500, 30))
    for _ in range(5):
        new = lfm_anneal.launch(rng, data, NOISE)
        assert np.linalg.norm(new.feature - feature) < 0.15 * np.linalg.norm(feature)
        assert new.share == pytest.approx(0.3, abs=0.06)


def test_the_price_is_likelihood_gained_less_evidence():
    dim, n_rows, variance, count, square = 6, 50, 0.4, 12, 3.0
    problem = Problem(MemoryRows(np.zeros((n_rows, dim))), dim)
    # Evidence of rows with mean w ~ N(0, t I) against no feature, t by brute force.
    t = np.geomspace(1e-6, 1e4, 400_001)
    energy = count * square
    ratio = 1.0 + count * t / variance
    evidence = np.max(0.5 * energy / variance * (1.0 - 1.0 / ratio) - 0.5 * dim * np.log(ratio))
    share = count / n_rows
    code = -n_rows * (share * np.log(share) + (1 - share) * np.log1p(-share))
    expected = code + 0.5 * energy / variance - evidence
    assert penalty(problem, count, square, variance) == pytest.approx(expected, rel=1e-8)
    tiny = 1e-3
    assert penalty(problem, count, tiny, variance) == pytest.approx(
        code + 0.5 * count * tiny / variance
    )


def test_a_projection_changes_no_decision():
    """Gain less price is the same whether the directions without signal are seen or not."""
    n_rows, dim, variance, count, square = 100, 40, 0.3, 30, 2.0
    small = Problem(MemoryRows(np.zeros((n_rows, 4))), dim)
    full = Problem(MemoryRows(np.zeros((n_rows, dim))), dim)
    unseen = (dim - 4) * variance / count
    net = [
        0.5 * count * length / variance - penalty(problem, count, length, variance)
        for problem, length in ((small, square), (full, square + unseen))
    ]
    assert net[0] == pytest.approx(net[1])


def test_pruning_refits_what_it_keeps():
    rng = np.random.default_rng(0)
    data, _ = block_images(0, n_rows=300)
    chosen = np.column_stack([rng.random((300, 3)) < 0.5, np.arange(300) == 7]).astype(np.uint8)
    rows = MemoryRows(data)
    fit = lfm_anneal.least_squares(rows, chosen)
    kept, less = lfm_anneal.prune(Problem(rows, 36), fit, chosen.sum(axis=0), NOISE)
    again = lfm_anneal.least_squares(rows, chosen[:, kept])
    assert 3 not in kept
    np.testing.assert_allclose(less.features, again.features, atol=1e-8)
    np.testing.assert_allclose(less.inverse, again.inverse, atol=1e-10)
    assert less.residual == pytest.approx(again.residual, rel=1e-3)


def test_gibbs_passes_have_the_frequencies_of_the_exact_conditional():
    rng = np.random.default_rng(0)
    features = np.array([[1.0, 0.3], [0.4, -0.8]])
    n_rows, variance = 40_000, 0.9
    rows = MemoryRows(np.tile([0.9, -0.2], (n_rows, 1)))
    chosen = (rng.random((n_rows, 2)) < 0.5).astype(np.uint8)
    products, gram = rows.products(features), features @ features.T
    logits = np.array([-0.5, 0.3])
    for _ in range(12):
        lfm_anneal._pass(rng, products, gram, logits, 1.0 / variance, chosen)
    states = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    log_p = (
        states @ logits
        - 0.5 * np.sum((np.array([0.9, -0.2]) - states @ features) ** 2, axis=1) / variance
    )
    exact = np.exp(log_p) / np.exp(log_p).sum()
    seen = np.bincount(2 * chosen[:, 0] + chosen[:, 1], minlength=4) / n_rows
    assert np.all(np.abs(seen - exact) < 4.0 * np.sqrt(exact * (1 - exact) / n_rows))


def test_features_that_are_nearly_the_same_are_joined():
    features = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.1, 0.1, 0.0]])
    chosen = np.array([[1, 0, 0], [0, 1, 1], [0, 0, 0]], np.uint8)
    joined, who = lfm_anneal.merge(features, chosen)
    np.testing.assert_array_equal(joined, features[:2])
    np.testing.assert_array_equal(who, [[1, 0], [1, 1], [0, 0]])


def test_unfolding_reads_a_base_with_negatives_as_the_features():
    rng = np.random.default_rng(0)
    truth = np.eye(3, 5) * 2.0
    chosen = (rng.random((50, 3)) < 0.5).astype(np.uint8)
    folded = np.vstack([truth.sum(axis=0), -truth])
    who = np.column_stack([np.ones(50, np.uint8), 1 - chosen])
    features, unfolded = lfm_start.unfold(folded, who, 0)
    np.testing.assert_array_equal(features, truth)
    np.testing.assert_array_equal(unfolded, chosen)


@pytest.mark.parametrize("trap", ["base and negatives", "halves", "rotated"])
def test_hops_leave_the_usual_traps(trap):
    """Wrong explanations without any residual, which local moves do not leave."""
    rng = np.random.default_rng(0)
    a, b, c = np.eye(3, 12) * 3.0
    chosen = rng.random((400, 3)) < 0.4
    data = chosen @ np.array([a, b, c]) + 0.5 * rng.normal(size=(400, 12))
    wrong = {
        "base and negatives": [a + b + c, -a, -b, -c],
        "halves": [(a + b) / 2, (a - b) / 2, (b - a) / 2, c],
        "rotated": [(a + b - c) / 2, (a - b + c) / 2, (b + c - a) / 2, (a + b + c) / 2],
    }[trap]
    problem = Problem(MemoryRows(data), 12)
    who = lfm_anneal.draw_assignments(
        None, problem.rows, np.array(wrong), np.zeros((400, 4), np.uint8), NOISE, 5
    )
    best = lfm_anneal.settle(problem, who, NOISE)
    assert len(best.features) == 4
    assert lfm_start.effective_rank(best.features) == 3
    effort = lfm_anneal.Effort(10)
    for _ in range(12):
        tries = np.zeros(len(best.features))
        new = lfm_start.hop(rng, problem, best, tries, effort)
        best = best if new is None or new.objective < best.objective else new
    assert n_found(np.array([a, b, c]), best) == len(best.features) == 3


@pytest.mark.parametrize(
    ("n_rows", "dim", "n_features"),
    first_quick([(2000, 30, 0), (2000, 30, 8), (60, 900, 5), (500, 500, 10), (1500, 1200, 20)], 4),
)
def test_the_noise_is_guessed_within_a_few_per_cent(n_rows, dim, n_features):
    data, _ = planted(0, n_rows, dim, n_features, probability=0.5, n_nonzero=dim // 2)
    reading = lfm_start.read_spectrum(np.random.default_rng(0), MemoryRows(data))
    assert reading.noise_variance == pytest.approx(NOISE, rel=0.06)
    assert reading.rank == n_features


def test_columns_of_zeros_do_not_spoil_the_guess():
    data, _ = planted(0, 1000, 30, 5, n_nonzero=10)
    wide = np.hstack([data, np.zeros((1000, 30))])
    guess = lfm_start.read_spectrum(np.random.default_rng(0), MemoryRows(wide)).noise_variance
    assert guess == pytest.approx(NOISE, rel=0.06)


# The whole promise


@pytest.mark.slow
@pytest.mark.parametrize("noise", [NOISE, None])
def test_twenty_of_twenty_block_images(noise):
    wrong = []
    for seed in range(20):
        data, truth = block_images(seed)
        start = search(data, noise, seed, max_features=20)
        if n_found(truth, start) < 4 or n_substantial(start, data, 0.005) > 5:
            wrong.append(seed)
    assert not wrong


@pytest.mark.slow
@pytest.mark.parametrize("noise", [NOISE, None])
@pytest.mark.parametrize("ones", [False, True])
def test_thirty_features_of_thirty(noise, ones):
    wrong = []
    for seed in range(5):
        data, truth = planted(seed, 5000, 200, 30, ones=ones, n_nonzero=20)
        start = search(data, noise, seed)
        if n_found(truth, start) < 30 or n_substantial(start, data, 0.001) > 31:
            wrong.append(seed)
    assert not wrong


def test_one_row_that_is_its_own_mean_has_noise():
    """Centred it is zeros but for rounding, and no noise at all would be divided by."""
    row = sparse.csr_array([[6.33352623e34, -2.20350988e21, 5.20289743e32]])
    chain = Sampling(n_warmup=1, n_draws=1, n_chains=1, thin=1, hops=0)
    model = LatentFeatureModel(prior="vmf", inference=chain, standardise=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(row)
    assert model.noise_scale_ > 0
