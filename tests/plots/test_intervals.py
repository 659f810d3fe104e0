"""Bands and coverage: the numbers of the model in the artists."""

import numpy as np
import pytest

import fitted_runs
from wideangle import plots
from wideangle.plots.calibration import COVERED
from wideangle.presentation.regressor import levels_of
from wideangle.runs.folder import read_run

matplotlib = pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def fit():
    run = read_run(fitted_runs.regression())
    return run.model, run.sample.X, run.sample.y


def test_the_line_is_the_median_along_the_column(fit):
    model, X, y = fit
    axes = plots.prediction_bands(model, X, y, column=1, levels=(0.8,)).axes[0]
    rows = np.repeat(np.median(X, axis=0, keepdims=True), 200, axis=0)
    rows[:, 1] = np.linspace(X[:, 1].min(), X[:, 1].max(), 200)
    line = axes.lines[0]
    np.testing.assert_allclose(line.get_xdata(), rows[:, 1])
    np.testing.assert_allclose(line.get_ydata(), model.predict_quantiles(rows, 0.5))
    assert "at their medians" in axes.get_title(loc="left")
    points = axes.collections[0].get_offsets()
    np.testing.assert_allclose(points, np.column_stack([X[:, 1], y]))


def test_points_are_shares_of_rows_inside(fit):
    model, X, y = fit
    axes = plots.interval_calibration(model, X, y).axes[0]
    ends = model.predict_quantiles(X, levels_of(COVERED))
    low, high = np.split(ends, 2, axis=1)
    inside = np.mean((y[:, None] >= low) & (y[:, None] <= high), axis=0)
    dots = next(line for line in axes.lines if len(line.get_xdata()) == len(COVERED))
    np.testing.assert_allclose(dots.get_ydata(), inside)
    assert f"{len(y)} rows" in axes.texts[0].get_text()
