"""The test of uniform ranks accepts the exact posterior and rejects ones that are a little off."""

import numpy as np
import pytest
from scipy import stats

from wideangle_lab.calibration import ranks
from wideangle_lab.calibration.verdicts import (
    Ranked,
    autocorrelation,
    judge_changes,
    judge_ranks,
    to_json,
)

N_SETS, N_DRAWS = 512, 31


def conjugate(shift=0.0, factor=1.0, n_sets=N_SETS, follow=0.0):
    """A normal mean: prior N(0, 1), one observation of variance 1, draws of N(x/2, 1/2)."""
    rng = np.random.default_rng(1)
    truth = rng.normal(size=n_sets)
    seen = truth + rng.normal(size=n_sets)
    noise = rng.normal(size=(n_sets, N_DRAWS))
    for i in range(1, N_DRAWS):
        noise[:, i] = follow * noise[:, i - 1] + np.sqrt(1 - follow**2) * noise[:, i]
    draws = 0.5 * seen[:, None] + shift + factor * np.sqrt(0.5) * noise
    return truth, draws


def judge(**options) -> Ranked:
    truth, draws = conjugate(**options)
    return judge_ranks({"mean": truth}, {"mean": draws}, seed=0)


def test_exact_draws_pass_and_cover_what_they_say():
    found = judge()
    assert found.passed and found.p_value > 0.01
    for share, width in zip(found.quantities["mean"].coverage, ranks.INTERVALS, strict=True):
        assert abs(share - width) < 4 * np.sqrt(width * (1 - width) / N_SETS) + 1 / N_DRAWS


@pytest.mark.parametrize(
    "fault", [{"shift": 0.25}, {"factor": 0.75}, {"factor": 1.4}, {"follow": 0.95}]
)
def test_a_biased_sampler_is_caught(fault):
    found = judge(**fault)
    assert not found.passed
    assert not to_json(found)["passed"]


def test_the_mean_rank_has_the_side_of_the_fault():
    assert judge(shift=0.3).quantities["mean"].mean < 0.45
    assert judge(shift=-0.3).quantities["mean"].mean > 0.55


def test_ties_are_broken_evenly():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 2, 4000).astype(float)
    draws = rng.integers(0, 2, (4000, N_DRAWS)).astype(float)
    uniform = ranks.assess(ranks.rank(truth, draws, rng), N_DRAWS)
    assert uniform.p_value > 1e-3
    low = np.sum(draws < truth[:, None], axis=1)  # always the first place of a tie
    assert ranks.assess(low, N_DRAWS).p_value < 1e-6


def test_both_p_values_are_uniform_where_ranks_are():
    rng = np.random.default_rng(2)
    found = [ranks.assess(rng.integers(0, 32, 128), 31) for _ in range(300)]
    for name in ("chi_square", "ecdf"):
        assert stats.kstest([getattr(one, name) for one in found], "uniform").pvalue > 1e-4


def test_the_band_holds_uniform_ranks_all_the_way():
    rng = np.random.default_rng(3)
    low, high = ranks.band(200, 32, 0.95)
    assert np.all(low <= 0) and np.all(high >= 0)
    counts = rng.multinomial(200, np.full(32, 1 / 32), size=2000)
    away = np.cumsum(counts, axis=1) / 200 - np.arange(1, 33) / 32
    inside = np.mean(np.all((away >= low - 1e-12) & (away <= high + 1e-12), axis=1))
    assert abs(inside - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 2000) + 0.01


def test_ranks_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="equal bins"):
        ranks.in_bins(np.ones(33, int))


def test_autocorrelation_is_that_of_the_chain():
    for follow in (0.0, 0.5, -0.3):
        assert abs(autocorrelation(conjugate(follow=follow)[1]) - follow) < 0.06


def test_restarts_see_a_drift_and_states_that_stand_still():
    rng = np.random.default_rng(4)
    before = {"x": rng.normal(size=2000), "fixed": np.ones(2000)}
    after = {"x": rng.normal(size=2000), "fixed": np.ones(2000)}
    assert judge_changes(before, after, {}).passed
    assert list(judge_changes(before, after, {}).z) == ["x"]
    assert not judge_changes(before, {**after, "x": after["x"] + 0.2}, {}).passed
    assert not judge_changes(before, {**after, "x": after["x"] * np.nan}, {}).passed
    with pytest.raises(RuntimeError, match="moved"):
        judge_changes(before, before, {})


def test_a_quantity_that_is_not_a_number_is_refused():
    truth, draws = conjugate()
    with pytest.raises(FloatingPointError, match="mean"):
        judge_ranks({"mean": truth}, {"mean": draws * np.nan}, seed=0)
