import json
import os
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import fitted_runs
from wideangle.frames.encode import encode
from wideangle.frames.read import read_table
from wideangle.runs.folder import read_run

CLASSES = ["p(no)", "p(yes)"]


def test_probabilities_in_the_order_of_the_file(command, people, tmp_path):
    run, data, output = fitted_runs.experts(), people(), tmp_path / "out.csv"
    code, out, err = command("predict", run, data, "--keep", "id", "-o", output)
    assert (code, out) == (0, "") and "20 rows" in err and "accuracy" in err
    found = pd.read_csv(output)
    assert list(found) == ["id", "prediction", *CLASSES, "uncertainty", "epistemic"]
    assert found["id"].tolist() == fitted_runs.people(20, 1)["id"].tolist()
    loaded = read_run(run)
    X = encode(read_table(data), loaded.frame).X
    np.testing.assert_allclose(found[CLASSES], loaded.model.predict_proba(X), rtol=1e-12)
    assert found["prediction"].tolist() == loaded.model.predict(X).tolist()
    expected = loaded.model.predict_uncertainty(X)
    np.testing.assert_allclose(found["uncertainty"], expected.total, rtol=1e-12)
    np.testing.assert_allclose(found["epistemic"], expected.epistemic, atol=1e-15)


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet", "json", "jsonl"])
def test_formats(command, people, tmp_path, suffix):
    output = tmp_path / f"out.{suffix}"
    data = people(lambda f: f.drop(columns="ill"))
    code, out, _ = command("predict", fitted_runs.experts(), data, "-o", output, "--json", "-q")
    assert code == 0 and json.loads(out) == {"output": str(output), "n_rows": 20, "notes": []}
    read = {
        "csv": pd.read_csv,
        "tsv": lambda file: pd.read_csv(file, sep="\t"),
        "parquet": pd.read_parquet,
        "json": pd.read_json,
        "jsonl": lambda file: pd.read_json(file, lines=True),
    }[suffix]
    found = read(output)
    assert found.columns[0] == "prediction" and len(found) == 20
    np.testing.assert_allclose(found[CLASSES].sum(axis=1), 1.0, rtol=1e-12)


def test_without_output_it_is_csv_on_stdout(command, people, capsys):
    code, out, _ = command("predict", fitted_runs.experts(), people(), "--quiet")
    assert code == 0 and len(out.splitlines()) == 21 and out.startswith("prediction,p(no)")


def test_features_of_new_rows(command, people, tmp_path):
    output = tmp_path / "out.csv"
    assert command("predict", fitted_runs.features(), people(), "-o", output)[0] == 0
    found = pd.read_csv(output)
    run = read_run(fitted_runs.features())
    X = encode(read_table(people()), run.frame).X
    names = [f"feature_{k + 1}" for k in range(run.model.n_components_)]
    assert list(found) == [*names, "log_density", "error"]
    np.testing.assert_allclose(found[names], run.model.transform(X), rtol=1e-12)
    np.testing.assert_allclose(found["log_density"], run.model.score_samples(X), rtol=1e-12)
    distance = np.sqrt(np.nanmean((run.model.reconstruct(X) - X) ** 2, axis=1))
    np.testing.assert_allclose(found["error"], distance, rtol=1e-12)


def new_job(frame):
    return frame.assign(job=frame["job"].where(frame.index != 2, "astronaut"))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda f: f.drop(columns="age"), "lacks the column 'age'; it has"),
        (lambda f: f.rename(columns={"age": "Age"}), "the column 'age'; did you mean 'Age'?"),
        (lambda f: f.assign(job=range(20)), "column 'job' holds numbers"),
        (lambda f: f.assign(age="old"), "column 'age' holds 'old' in row 1, and the model was"),
        (lambda f: f[:0], "has names of columns and no rows."),
    ],
)
@pytest.mark.parametrize("kind", ["experts", "features"])
def test_rows_that_do_not_fit(fails, people, tmp_path, kind, change, sentence):
    run = getattr(fitted_runs, kind)()
    assert sentence in fails("predict", run, people(change), "-o", tmp_path / "out.csv")
    assert os.listdir(tmp_path) == ["people.csv"]


def test_new_words_count_as_missing_and_are_said(command, people, tmp_path):
    arguments = ("predict", fitted_runs.experts(), people(new_job), "-o", tmp_path / "out.csv")
    code, _, err = command(*arguments)
    assert code == 0 and "'job' has categories in 1 row that were not in the training data" in err


def test_outputs_that_cannot_be(fails, people, tmp_path, monkeypatch):
    data, run = people(), fitted_runs.experts()
    assert "must end in one of .csv" in fails("predict", run, data, "-o", tmp_path / "out.doc")
    assert "is the file that is read" in fails("predict", run, data, "-o", data)
    assert "set -o too" in fails("predict", run, data, "--json")
    assert "has no column 'nr'" in fails("predict", run, data, "--keep", "nr")
    twice = people(lambda f: f.rename(columns={"id": "prediction"}), "b.csv")
    assert "the name of a prediction" in fails("predict", run, twice, "--keep", "prediction")
    assert "cannot write" in fails("predict", run, data, "-o", tmp_path / "no" / "out.csv")

    def full(_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left" in fails("predict", run, data, "-o", tmp_path / "out.csv")
    assert sorted(os.listdir(tmp_path)) == ["b.csv", "people.csv"]


@pytest.mark.parametrize("name", ["predict", "report"])
def test_folders_that_are_no_runs(fails, people, tmp_path, name):
    data = [people()] if name == "predict" else []
    assert "does not exist" in fails(name, tmp_path / "no", *data)
    assert "is not a run" in fails(name, tmp_path, *data)
    broken = shutil.copytree(fitted_runs.experts(), tmp_path / "run")
    (broken / "model.safetensors").write_bytes(b"")
    assert "was changed or damaged" in fails(name, broken, *data)


@pytest.mark.parametrize("named", [True, False])
def test_the_report_is_written_where_it_is_asked_for(command, tmp_path, monkeypatch, named):
    calls = []
    page = SimpleNamespace(write=lambda run, output: calls.append((run, output)))
    monkeypatch.setitem(sys.modules, "wideangle.report", SimpleNamespace(page=page))
    monkeypatch.setitem(sys.modules, "wideangle.report.page", page)
    folder = fitted_runs.experts()
    place = tmp_path / "page.html" if named else folder / "report.html"
    code, out, _ = command("report", folder, *(["-o", place] if named else []))
    assert (code, out) == (0, f"{place}\n")
    assert calls[0][0].kind == "moe" and calls[0][1] == place


def test_a_report_shows_images_of_a_size_that_fits(command, fails, tmp_path, monkeypatch):
    calls = []
    page = SimpleNamespace(write=lambda run, output: calls.append(run))
    monkeypatch.setitem(sys.modules, "wideangle.report", SimpleNamespace(page=page))
    monkeypatch.setitem(sys.modules, "wideangle.report.page", page)
    folder = fitted_runs.features()
    n_columns = len(read_run(folder).columns)
    assert command("report", folder, "--image", f"{n_columns}x1", "-o", tmp_path / "a.html")[0] == 0
    assert calls[0].settings["image_shape"] == [n_columns, 1]
    assert f"the run has {n_columns} columns" in fails("report", folder, "--image", "5x999")
    assert "such as 28x28" in fails("report", folder, "--image", "five")
