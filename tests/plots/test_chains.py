"""Ranks and calibration, against counts made by hand."""

import copy

import numpy as np
import pytest

import fitted
from wideangle import plots
from wideangle.plots.calibration import outcomes
from wideangle.plots.chains import rank_counts
from wideangle.posterior import Draws
from wideangle.presentation.classifier import reliability
from wideangle.presentation.family import share_interval

pytest.importorskip("matplotlib")


def test_ranks_are_counted_by_chain():
    # Chain one has the lower half of the values.
    values = np.array([[1.0, 2, 3, 4], [5.0, 6, 7, 8]])
    assert rank_counts(values, n_bins=4).tolist() == [[2, 2, 0, 0], [0, 0, 2, 2]]


def test_ties_are_spread_over_chains():
    # With ties in the order of the chains the first would fill the lower bins alone.
    counts = rank_counts(np.zeros((2, 2000)), n_bins=4)
    error = 4 * np.sqrt(4000 * 0.125 * 0.875)
    assert np.all(np.abs(counts - 500) < error)
    assert np.all(counts.sum(axis=0) == 1000)


def test_bars_of_the_rank_plot_are_the_counts():
    model = copy.copy(fitted.experts())
    shift = np.array([[0.0], [0.5]])  # draws without ties, whatever the chains rejected
    rng = np.random.default_rng(0)
    names = ("log_lik", "mean_angle")
    model.trace_ = Draws({name: rng.normal(size=(2, 25)) + shift for name in names})
    figure = plots.rank_plot(model, ["log_lik", "mean_angle"], n_bins=5)
    axes = np.array(figure.axes).reshape(2, 2)  # chain, quantity
    for column, name in enumerate(("log_lik", "mean_angle")):
        values = model.trace_.values[name]
        below = (values[:, :, None] > values.ravel()).sum(axis=2)  # ranks, without ties
        for chain in range(2):
            bars = [p.get_height() for p in axes[chain, column].patches if p.get_width() < 1]
            expected = np.bincount(below[chain] * 5 // values.size, minlength=5)
            assert bars == expected.tolist()
    assert axes[0, 0].get_title(loc="left") == "Log-likelihood"


def test_bins_compare_probability_with_frequency():
    found = reliability([1, 0, 1, 1], [0.55, 0.51, 0.95, 1.0], n_bins=10)
    assert np.allclose(found.predicted, [0.53, 0.975])
    assert np.allclose(found.observed, [0.5, 1.0])
    assert found.count.tolist() == [2, 2]
    assert np.isclose(found.error, 0.5 * 0.03 + 0.5 * 0.025)


def test_intervals_end_where_what_was_seen_becomes_too_unlikely():
    # Wilson: the frequency is 1.645 standard deviations of either end away from it.
    found = reliability([1] * 3 + [0] * 7, np.full(10, 0.3), n_bins=1)
    for end in (found.low[0], found.high[0]):
        assert np.isclose(abs(end - 0.3), 1.6449 * np.sqrt(end * (1 - end) / 10), rtol=1e-3)


def test_few_cases_that_are_all_alike_leave_doubt():
    assert np.allclose(share_interval(18, 18), [0.824, 1.0], atol=1e-3)
    assert np.allclose(share_interval(0, 18), [0.0, 0.176], atol=1e-3)


def test_intervals_hold_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(0)
    inside = []
    for _ in range(1500):
        found = reliability(rng.random(60) < 0.3, np.full(60, 0.3), n_bins=1)
        inside.append(found.low[0] < 0.3 < found.high[0])
    # Exact coverage of a discrete distribution wavers around the level by some hundredths.
    assert abs(np.mean(inside) - 0.9) < 0.03 + 4 * np.sqrt(0.09 / 1500)


def test_what_a_probability_is_about():
    proba = np.array([[0.2, 0.8], [0.6, 0.4]])
    happened, probability, name = outcomes(proba, ["b", "a"], ["a", "b"])
    assert happened.tolist() == [True, False]
    assert probability.tolist() == [0.8, 0.4]
    assert name == "class b"
    three = np.array([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]])
    happened, probability, name = outcomes(three, [1, 2], [0, 1, 2])
    assert happened.tolist() == [True, False]
    assert probability.tolist() == [0.5, 0.6]
    assert name == "a right answer"


def test_points_of_the_calibration_curve_are_its_bins():
    model, (X, y) = fitted.experts(), fitted.plane(300, 9)
    axes = plots.calibration(model, X, y, n_bins=5).axes[0]
    probability, happened = model.predict_proba(X)[:, 1], y == "yes"
    points = axes.collections[-1].get_offsets()
    expected = []
    for b in range(5):
        member = (probability >= b / 5) & (probability < (b + 1) / 5 + (b == 4))
        if member.any():
            expected.append((probability[member].mean(), happened[member].mean()))
    assert np.allclose(points, expected)
    gap = plots.calibration(model, X, y, n_bins=5).axes[0].texts[0].get_text()
    assert gap.startswith("300 rows\nmean gap 0.")
    assert axes.get_xlabel() == "probability of class yes"
