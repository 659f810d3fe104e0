"""The page about a run of regressions: charts, words and rows to look at."""

from dataclasses import replace

import numpy as np
import pytest

import fitted_runs
from wideangle.presentation.records import Scored
from wideangle.presentation.regressor import (
    LEVELS,
    coverage,
    crps,
    levels_of,
    score_quantity,
)
from wideangle.report import charts, page, parts
from wideangle.runs.folder import read_run

pytest.importorskip("plotly")


@pytest.fixture(scope="module")
def run():
    return read_run(fitted_runs.regression())


def test_the_page_is_rendered(run):
    text = page.render(run)
    for words in (
        "Can the intervals be trusted?",
        "Root mean squared error",
        "Rows farthest from their prediction",
        "2 experts predict “income”",
        "is off by",
        "level",
        "Predicts higher values where",
    ):
        assert words in text
    assert len(text.encode()) < 2_000_000


def test_bars_are_not_dwarfed_by_the_intercept(run):
    for part in parts.parts_of(run):
        mean, *others = (panel["names"] for panel in part.weights)
        assert "(intercept)" not in mean and all("(intercept)" in names for names in others)
        assert len(mean) == len(others[0]) - 1
    level = run.presentation.component_columns(run)[0]
    np.testing.assert_array_equal(level.values, run.model.experts_[:, -1])


def test_a_single_held_out_row_has_no_r2_and_a_page(run):
    alone = replace(run, metrics=run.metrics | {"r2": None})
    assert "Root mean squared error" in page.render(alone)


def test_points_are_shares_of_rows_inside(run):
    figure = charts.intervals(run)
    y, values = run.sample.y, run.sample.values
    inside = np.mean((y[:, None] >= values["low"]) & (y[:, None] <= values["high"]), axis=0)
    np.testing.assert_allclose(figure["data"][1]["y"], inside, atol=1e-4)
    assert figure["data"][1]["x"] == list(LEVELS)


def test_predictions_stand_against_what_was_seen(run):
    dots = charts.predicted(run)["data"][1]
    np.testing.assert_allclose(dots["x"], run.sample.y, rtol=1e-3)
    np.testing.assert_allclose(dots["y"], run.sample.values["prediction"], rtol=1e-3)
    assert dots["text"][0].startswith(f"row {run.sample.rows[0]}, is ")


def test_rows_farthest_from_their_prediction_come_first(run):
    table = run.presentation.rows_to_look_at(run)
    far = np.abs(run.sample.y - run.sample.values["prediction"]) / run.sample.values["spread"]
    np.testing.assert_array_equal(table.order, np.argsort(-far, kind="stable")[:25])
    assert [column.title for column in table.columns][:2] == ["observed", "predicted"]


def test_intervals_that_are_too_short_are_mentioned(run):
    shown = run.presentation
    run.metrics.update(n_test=1000, coverage_90=0.7, coverage_50=0.5, coverage_95=0.99)
    said = " ".join(shown.cautions(run))
    assert "Intervals of 90 % hold 70 % of the held-out rows: they are too short." in said
    assert "Intervals of 50 %" not in said and "Intervals of 95 %" not in said


def test_the_share_of_rows_inside_has_an_interval_that_knows_small_samples(run):
    metrics = run.metrics | {"n_test": 18, "coverage_90": 1.0}
    card = run.presentation.results(metrics)[-1]
    assert (card.value, card.note) == ("100 %", "95 % interval 82 to 100 %")


def test_scores_are_those_of_a_known_distribution():
    rng = np.random.default_rng(0)
    y = rng.normal(size=4000)
    ends = np.tile(np.array([-0.674, -1.282, -1.645, -1.96, 0.674, 1.282, 1.645, 1.96]), (4000, 1))
    density = -0.5 * y**2 - 0.5 * np.log(2 * np.pi)
    samples = rng.normal(size=(4000, 100))
    found = score_quantity(y, np.zeros(4000), density, ends, samples, (0.0, 1.0))
    assert found["rmse"] == found["rmse_of_guess"] == pytest.approx(1.0, abs=0.03)
    assert found["log_density"] == pytest.approx(found["log_density_of_guess"])
    for level in LEVELS:
        assert found[f"coverage_{100 * level:.0f}"] == pytest.approx(level, abs=0.03)
    # of a standard normal: 1 / sqrt(pi)
    assert found["crps"] == pytest.approx(1 / np.sqrt(np.pi), abs=0.02)
    assert levels_of([0.8]) == pytest.approx([0.1, 0.9])


def test_the_ranked_score_is_unbiased_for_any_number_of_draws():
    rng = np.random.default_rng(1)
    y = rng.normal(size=20_000)
    for m in (2, 5):
        found = crps(rng.normal(size=(20_000, m)), y).mean()
        assert found == pytest.approx(1 / np.sqrt(np.pi), abs=0.02)


def test_coverage_has_an_interval_around_it():
    found = coverage(np.arange(10.0), np.tile([2.0, 7.0], (10, 1)))
    assert found.observed.tolist() == [0.6]
    assert found.low[0] < 0.6 < found.high[0]


def test_a_model_is_scored_on_rows_it_has_not_seen(run):
    rows = Scored(run.sample.X, run.sample.y, np.zeros(1), np.zeros(0), 0, (2e4, 1e4))
    found = run.presentation.score(rows)
    assert found["rmse"] == pytest.approx(
        np.sqrt(np.mean((run.model.predict(run.sample.X) - run.sample.y) ** 2))
    )
