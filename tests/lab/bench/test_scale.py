import json
from pathlib import Path

import numpy as np
import pytest

from wideangle_lab.bench.scale import drawn, jobs, page
from wideangle_lab.bench.scale.model import Costs, learn
from wideangle_lab.marks import fill

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def record():
    return json.loads((ROOT / page.RECORD).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def card():
    return json.loads((ROOT / page.CARD).read_text(encoding="utf-8"))


def test_the_model_is_found_again_from_times_it_gave():
    true = Costs(5.0, 2e-9, 1e-6, 3e-9, 4e-10, 5e-8)
    paces = [
        {
            "experts": k, "starts": s, "columns": p, "look": true.look * p, "begin": true.begin,
            "row": (true.vi(1e9, p, k, s, 1) - true.vi(1e9, p, k, s, 0)) / 1e9,
        }
        for k, s, p in [(4, 1, 31), (8, 2, 31), (16, 2, 31), (8, 4, 31), (4, 1, 127), (8, 2, 127)]
    ]  # fmt: skip
    np.testing.assert_allclose(learn(paces), true, rtol=1e-6)


def test_predictions_of_the_record_are_near(record):
    costs = learn(record["vi"]["paces"])
    np.testing.assert_allclose(costs, list(record["vi"]["costs"].values()), rtol=1e-3, atol=1e-12)
    assert max(abs(gap) for gap in page.gaps(record)) < page.NEAR
    fits = [*record["vi"]["fits"], record["features"]["fits"][-1]]
    assert all(fit["rows"] >= 10_000_000 for fit in fits)
    assert all(fit["peak_mib"] < 2000 for fit in fits)  # the files have 1200 and 2400


def test_the_page_is_that_of_the_records(record, card):
    text = (ROOT / page.PAGE).read_text(encoding="utf-8")
    assert text == fill(text, page.blocks(record, card))


def test_the_page_has_the_largest_runs_that_there_are(record):
    stamp = record["vi"]["stamp"]
    fit = record["vi"]["fits"][0] | {"rows": 100_000_000, "columns": 64}
    (said,) = page.vast({})
    assert "--part vast-vi --part vast-features" in said
    some = record | {"vast-vi": {"stamp": stamp, "fits": [fit]}}
    text = "\n".join(page.vast(some))
    assert "100,000,000 rows of 64 columns (23.8 GiB)" in text
    assert "Not measured yet: `python -m wideangle_lab.bench.scale --part vast-features`." in text
    assert "vast-vi" not in text
    assert len(page.gaps(some)) == len(page.gaps(record)) + 1


def test_a_set_is_the_same_whatever_comes_after(tmp_path):
    drawn.draw_classes(tmp_path, 70_000, 3)
    X, y = np.load(tmp_path / "X.npy"), np.load(tmp_path / "y.npy")
    assert X.shape == (70_000, drawn.COLUMNS) and X.dtype == np.float32
    chance = drawn.truth(3).chance(X)
    assert abs(np.mean(y - chance)) < 4 * np.sqrt(np.mean(chance * (1 - chance)) / len(y))
    drawn.draw_classes(tmp_path, 66_000, 3)
    np.testing.assert_array_equal(np.load(tmp_path / "X.npy"), X[:66_000])
    drawn.draw_features(tmp_path, 5000, 3)
    F = np.load(tmp_path / "F.npy")
    mean = drawn.SHARE * drawn.true_features(3).sum(axis=0)
    np.testing.assert_allclose(F.mean(axis=0), mean, atol=0.06)


@pytest.mark.parametrize(
    ("seconds", "words"), [(3.21, "3.2 s"), (45, "45 s"), (600, "10 min"), (1e5, "28 h")]
)
def test_durations_are_in_a_unit_that_suits(seconds, words):
    assert page.duration(seconds) == words


@pytest.mark.slow
def test_memory_of_a_feature_stream_does_not_grow_with_the_rows(tmp_path):
    peaks = []
    for rows in (100_000, 1_000_000):  # 230 MB more
        jobs.run("draw", folder=str(tmp_path), rows=rows, seed=0, what="features")
        options = {"folder": str(tmp_path), "rows": rows, "seed": 0, "n_warmup": 1, "n_draws": 2}
        found = jobs.run("features", **options)
        assert found["n_features"] == found["true_features"] and found["largest_error"] < 0.05
        peaks.append(found["peak_mib"])
    assert peaks[1] < peaks[0] + 80
