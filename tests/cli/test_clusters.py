"""`wideangle train clusters`, `predict` and `report`, and input that does not suit."""

import os

import numpy as np
import pandas as pd
import pytest

from wideangle.runs.folder import read_run

QUICK = ("--clusters", "4", "--starts", "1", "--passes", "5")
WORDS = ("apple", "pear", "bolt", "nut", "sea", "wave")


def documents(n_rows=60, seed=0):
    """Counts of six words, two for each of three themes."""
    rng = np.random.default_rng(seed)
    themes = rng.integers(3, size=n_rows)
    rates = np.full((3, 6), 0.3) + 4.0 * np.repeat(np.eye(3), 2, axis=1)
    return pd.DataFrame(rng.poisson(rates[themes]), columns=WORDS).assign(
        apple=lambda f: f.apple + 1
    )


@pytest.fixture
def table(tmp_path):
    def make(change=None, name="documents.csv"):
        frame = documents()
        frame = frame if change is None else change(frame)
        frame.to_csv(tmp_path / name, index=False)
        return tmp_path / name

    return make


def test_a_table_becomes_clusters_words_and_predictions(command, table, tmp_path):
    data, output = table(), tmp_path / "run"
    code, out, err = command("train", "clusters", data, "-o", output, *QUICK)
    assert code == 0, err
    assert "clusters in use" in out
    run = read_run(output)
    assert run.metrics["log_density"] > 0 and 2 <= run.model.n_used_ <= 4
    predicted = tmp_path / "predicted.csv"
    code, _, err = command("predict", output, data, "-o", predicted)
    assert code == 0, err
    found = pd.read_csv(predicted)
    assert list(found) == ["cluster", "probability", "log_density"] and len(found) == 60
    assert found["cluster"].between(1, run.model.n_used_).all()
    code, _, err = command("report", output)
    assert code == 0, err
    page = (output / "report.html").read_text(encoding="utf-8")
    assert "More than others" in page and "wave" in page and "Clusters in use" in page
    # Angles do not tell whether clusters overlap, and one fit has no chains.
    assert "one cluster may be enough" not in page and "nearly the same direction: " not in page
    assert "Did the chains agree?" not in page and "#chains" not in page


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda f: 0 * f, "no column left to learn from"),
        (lambda f: f[["sea"]], "minimum of 2 is required"),
        (lambda f: f[:1], "too few to learn from"),
        (lambda f: f[:0], "no rows"),
    ],
)
def test_tables_that_do_not_suit(fails, table, tmp_path, change, sentence):
    data = table(change)
    assert sentence in fails("train", "clusters", data, "-o", tmp_path / "run", *QUICK)
    assert os.listdir(tmp_path) == ["documents.csv"]


def test_what_is_missing_is_filled_in_and_said(command, table, tmp_path):
    data = table(lambda f: f.mask((np.arange(60) == 7)[:, None] & (f.columns == "sea")))
    code, _, err = command("train", "clusters", data, "-o", tmp_path / "run", *QUICK)
    assert code == 0 and "missing" in err


def test_another_table_is_refused_by_the_columns_it_lacks(command, fails, table, tmp_path):
    output = tmp_path / "run"
    assert command("train", "clusters", table(), "-o", output, *QUICK)[0] == 0
    other = table(lambda f: f.drop(columns=["sea"]), "other.csv")
    assert "sea" in fails("predict", output, other, "-o", tmp_path / "predicted.csv")
    assert not (tmp_path / "predicted.csv").exists()


def test_options_that_exclude_each_other(fails, table, tmp_path):
    sentence = fails("train", "clusters", table(), "-o", tmp_path / "run", "--draws", "5")
    assert sentence == "--draws is not for inference 'map'."
