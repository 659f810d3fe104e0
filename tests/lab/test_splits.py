"""Intervals over splits that share rows, and corrections for many comparisons."""

import numpy as np
import pytest
from scipy.stats import t as student

from wideangle_lab.splits import holm, mean_effect, over_splits

GAINS = [0.3, 0.5, 0.1, 0.4, 0.2]


def test_an_interval_is_students_with_a_variance_for_shared_rows():
    found = over_splits(GAINS, shared=3 / 7)
    error = np.std(GAINS, ddof=1) * np.sqrt(1 / 5 + 3 / 7)
    assert found.mean == pytest.approx(0.3)
    assert found.error == pytest.approx(error)
    low, high = found.interval
    assert (high - low) / 2 == pytest.approx(2.776 * error, rel=1e-3)
    assert found.detectable == pytest.approx(3.717 * error, rel=1e-3)


def test_one_split_has_no_interval():
    found = over_splits([0.3], shared=0.5)
    assert np.isnan(found.error)
    assert found.text("+.1f") == "+0.3"


def test_an_interval_covers_the_truth_where_splits_are_independent():
    rng = np.random.default_rng(0)
    intervals = [over_splits(rng.normal(1.0, 2.0, 5).tolist(), 0.0).interval for _ in range(2000)]
    covered = np.mean([low < 1.0 < high for low, high in intervals])
    assert covered == pytest.approx(0.95, abs=0.015)


def test_p_values_agree_with_the_interval():
    found = over_splits(GAINS, shared=0.0)
    low, high = found.interval
    assert found.p_above(low) == pytest.approx(0.025)
    assert found.p_below(high) == pytest.approx(0.025)
    assert found.p_above(0.0) == pytest.approx(student.sf(0.3 / found.error, 4))


def test_equal_gains_are_certain():
    found = over_splits([0.25, 0.25, 0.25], shared=0.5)
    assert (found.p_above(0.0), found.p_below(0.0)) == (0.0, 1.0)
    assert (found.p_above(0.5), found.p_below(0.5)) == (1.0, 0.0)
    assert found.p_below(0.25) == found.p_above(0.25) == 1.0


def test_a_mean_of_data_sets_has_their_errors_and_degrees_of_freedom():
    one, other = over_splits(GAINS, 0.4), over_splits([2 * gain for gain in GAINS], 0.4)
    both = mean_effect([one, other])
    assert both.mean == pytest.approx(0.45)
    assert both.error == pytest.approx(np.hypot(one.error, other.error) / 2)
    assert both.df == pytest.approx((1 + 4) ** 2 / ((1 + 16) / 4))
    same = mean_effect([one, one])
    assert same.df == pytest.approx(8)


def test_holm_multiplies_the_smallest_most():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
