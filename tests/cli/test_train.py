import json
import os
import stat
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import fitted_runs
from wideangle import LatentFeatureModel, MixtureOfExpertsClassifier
from wideangle.cli import fitting
from wideangle.frames.encode import encode
from wideangle.frames.read import read_table
from wideangle.runs import train
from wideangle.runs.folder import read_run
from wideangle.storage import StorageError

QUICK = ("--inference", "map", "--starts", "1", "--passes", "5", "--experts", "2")


def test_a_table_becomes_a_run(command, tmp_path, quick_compiler):
    """The shared run again, by the command: the same file, options and seed."""
    data = tmp_path / "people.csv"
    fitted_runs.people().to_csv(data, index=False)
    output = tmp_path / "out" / "run"
    code, out, err = command("train", "moe", data, "--target", "ill", "-o", output, *QUICK)
    assert code == 0
    for sentence in ("left out 'id'", "'job' (4)", "missing values in 2 columns", "next: "):
        assert sentence in err
    assert "accuracy" in out and "held out" in out
    assert os.listdir(output.parent) == ["run"]
    run, shared = read_run(output), read_run(fitted_runs.experts())
    np.testing.assert_allclose(run.sample.values["proba"], shared.sample.values["proba"], atol=1e-4)
    assert run.settings["command"][:3] == ["wideangle", "train", "moe"]
    assert run.settings["options"]["n_experts"] == 2 and "jax" in run.settings["versions"]
    assert "left out 'id'" in run.log

    code, out, err = command(
        "train", "moe", data, "-t", "ill", "-o", output, *QUICK, "--force", "--json", "--quiet"
    )
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["metrics"]["accuracy"] == run.metrics["accuracy"] and found["kind"] == "moe"


def test_the_model_that_is_kept_has_seen_all_rows(people, monkeypatch):
    """Its scores are those of one that has not."""
    fits = []

    def fit(model, X, y):
        fits.append((X, y))
        return plain_fit(model, X, y)

    plain_fit = MixtureOfExpertsClassifier.fit
    monkeypatch.setattr(MixtureOfExpertsClassifier, "fit", fit)
    options = {"n_experts": 2, "inference": "map", "inference__n_starts": 1}
    options |= {"inference__n_passes": 5, "verbose": False}
    data = people(n_rows=30)
    job = train.Job("moe", data, "ill", options=options, refit=True)
    run, alone = (train.train(one, print) for one in (job, replace(job, refit=False)))
    assert [len(y) for _, y in fits] == [len(fits[2][1]), 30, len(fits[2][1])]
    assert fits[1][1].tolist() == pd.read_csv(data)["ill"].tolist()
    X = encode(read_table(data), run.frame).X
    np.testing.assert_array_equal(fits[1][0], X)
    assert run.metrics["log_loss"] == alone.metrics["log_loss"]
    np.testing.assert_array_equal(run.sample.values["proba"], alone.sample.values["proba"])
    gate = run.model.gate_proba(run.sample.X)
    np.testing.assert_array_equal(run.sample.values["activations"], gate)
    assert run.settings["refit"] and "refit" in run.metrics["seconds"]


def test_a_second_fit_that_is_interrupted_leaves_the_first(people, monkeypatch):
    fits = []

    def fit(model, X, y):
        fits.append(len(y))
        if len(fits) > 1:
            raise KeyboardInterrupt
        return plain_fit(model, X, y)

    plain_fit = MixtureOfExpertsClassifier.fit
    monkeypatch.setattr(MixtureOfExpertsClassifier, "fit", fit)
    options = {"n_experts": 2, "inference": "map", "inference__n_starts": 1}
    options |= {"inference__n_passes": 5, "verbose": False}
    run = train.train(train.Job("moe", people(), "ill", options=options, refit=True), print)
    assert len(fits) == 2 and "refit" not in run.settings
    assert "without the held-out rows" in run.metrics["warnings"][-1]
    assert np.isfinite(run.model.predict_proba(run.sample.X)).all()


def test_a_process_that_is_killed_during_the_second_fit_leaves_the_first(
    people, monkeypatch, tmp_path
):
    class Killed(BaseException):
        """Nothing catches it, as nothing catches SIGKILL."""

    fits = []

    def fit(model, X, y):
        fits.append(len(y))
        if len(fits) == 2:
            raise Killed
        return plain_fit(model, X, y)

    plain_fit = MixtureOfExpertsClassifier.fit
    monkeypatch.setattr(MixtureOfExpertsClassifier, "fit", fit)
    options = {"n_experts": 2, "inference": "map", "inference__n_starts": 1}
    options |= {"inference__n_passes": 5, "verbose": False}
    job = train.Job("moe", people(), "ill", options=options, refit=True)
    output, how = tmp_path / "run", {"as_json": False, "quiet": True}
    with pytest.raises(Killed):
        fitting.run(job, output, resume=False, force=False, **how)
    run = read_run(output)
    assert "refit" not in run.settings and run.metrics["accuracy"] >= 0
    assert "without the held-out rows" in run.metrics["warnings"][-1]
    fitting.run(job, output, resume=False, force=True, **how)
    assert read_run(output).settings["refit"]
    assert "without the held-out rows" not in "".join(read_run(output).metrics["warnings"])


def test_columns_of_words_are_doubted_for_features():
    X = np.array([[0.5, 1, 0], [1.5, 0, np.nan]])
    (sentence,) = LatentFeatureModel.presentation.doubts(["age", "job = cook", "member"], X)
    assert sentence.startswith("2 of 3 columns hold only 0 and 1")
    assert "'job = cook'" in sentence and "wideangle train moe" in sentence
    assert LatentFeatureModel.presentation.doubts(["age"], X[:, :1]) == []
    # Numbers of a table are divided by their standard deviation before.
    (again,) = LatentFeatureModel.presentation.doubts(["age", "job = cook", "member"], X * 2.5)
    assert again == sentence


def test_a_doubt_is_printed_once(monkeypatch, tmp_path, capsys):
    run = read_run(fitted_runs.experts())
    run = replace(run, metrics=run.metrics | {"warnings": ["columns are odd", "chains differ"]})

    def fitted(job, say, keep):
        say("warning: columns are odd")
        return run

    monkeypatch.setattr(train, "train", fitted)
    job = train.Job("moe", tmp_path / "people.csv", "ill")
    how = {"resume": False, "force": False, "as_json": False}
    fitting.run(job, tmp_path / "run", **how, quiet=False)
    err = capsys.readouterr().err
    assert err.count("columns are odd") == 1 and "warning: chains differ" in err


def test_a_quantity_is_learned_and_predicted(command, tmp_path, quick_compiler):
    data, output = tmp_path / "people.csv", tmp_path / "run"
    fitted_runs.people().to_csv(data, index=False)
    quick = ("--experts", "2", "--inference", "vi", "--starts", "1", "--passes", "50")
    code, out, err = command("train", "regression", data, "-t", "income", "-o", output, *quick)
    assert code == 0, err
    assert "root mean squared error" in out and "rows in their 90 % interval" in out
    metrics = read_run(output).metrics
    assert metrics["rmse"] > 0 and 0 <= metrics["coverage_95"] <= 1 and metrics["crps"] > 0
    predicted = tmp_path / "predicted.csv"
    code, _, err = command("predict", output, data, "-o", predicted)
    assert code == 0 and "rmse" in err and "log-density" in err
    lines = predicted.read_text().splitlines()
    assert lines[0] == "prediction,low,high,uncertainty,epistemic" and len(lines) == 61


@pytest.mark.parametrize(
    ("change", "target", "sentence"),
    [
        (None, "ill", "holds no numbers; for classes there is `wideangle train moe`."),
        (lambda f: f.assign(income=2.0), "income", "is 2 in every row; there is nothing"),
        (None, "age", "is missing in"),
    ],
)
def test_quantities_that_do_not_suit(fails, people, tmp_path, change, target, sentence):
    data = people(change)
    found = fails("train", "regression", data, "-t", target, "-o", tmp_path / "run")
    assert sentence in found
    assert os.listdir(tmp_path) == ["people.csv"]


def lacking_target(frame):
    return frame.assign(ill=frame["ill"].where(frame.index != 3))


@pytest.mark.parametrize(
    ("change", "options", "sentence"),
    [
        (None, ["-t", "Ill"], "has no column 'Ill'; did you mean 'ill'?"),
        (None, [], "name the column to predict: --target and one of 'ill', 'job'"),
        (None, ["-t", "ill", "--ignore", "no"], "has no column 'no'; it has 'id', 'age'"),
        (None, ["-t", "income"], "the target 'income' has 20 classes in 20 rows"),
        (lambda f: f.assign(ill="no"), ["-t", "ill"], "is 'no' in every row"),
        (lacking_target, ["-t", "ill"], "is missing in 1 row (the first is row 4)"),
        (lambda f: f[:1], ["-t", "ill"], "has 1 row: too few to learn from."),
        (lambda f: f[:0], ["-t", "ill"], "has names of columns and no rows."),
        (lambda f: f[["ill", "id"]], ["-t", "ill", "--max-categories", "5"], "no column left"),
        (lambda f: f.rename(columns={"id": "age"}), ["-t", "ill"], "'age' is that of columns 1"),
    ],
)
def test_tables_that_do_not_suit(fails, people, tmp_path, change, options, sentence):
    data = people(change)
    assert sentence in fails("train", "moe", data, "-o", tmp_path / "run", *options)
    assert os.listdir(tmp_path) == ["people.csv"]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.csv", b"", "is empty."),
        ("a.png", b"\x89PNG", "is of a type that wideangle cannot read"),
        ("a.csv", b"\x89PNG\0", "is not a text file"),
        ("a.npz", b"PK\3\4", "is not a NumPy archive"),
        ("a.parquet", b"PAR", "is not a Parquet file"),
    ],
)
@pytest.mark.parametrize("kind", ["moe", "regression", "features", "clusters"])
def test_files_that_are_no_tables(fails, tmp_path, kind, name, content, sentence):
    (tmp_path / name).write_bytes(content)
    assert sentence in fails("train", kind, tmp_path / name, "-o", tmp_path / "run")
    assert os.listdir(tmp_path) == [name]


def test_features_of_one_row(fails, people, tmp_path):
    data = people(lambda f: f[:1])
    assert "too few" in fails("train", "features", data, "-o", tmp_path / "run")


def test_features_that_need_another_prior(fails, people, tmp_path):
    arguments = ("train", "features", people(lambda f: f[["age"]]), "-o", tmp_path / "run")
    assert "directions need at least two columns; use prior='gaussian'" in fails(*arguments)
    sentence = fails(*arguments, "--process", "pitman-yor")
    assert "use prior='gaussian' or prior='vmf'" in sentence


def test_an_option_that_goes_with_another_choice_is_refused(fails, people, tmp_path):
    arguments = ("train", "moe", people(), "-t", "ill", "-o", tmp_path / "run", "--inference")
    assert fails(*arguments, "map", "--draws", "9") == "--draws is not for inference 'map'."
    assert fails(*arguments, "mcmc", "--starts", "9") == "--starts is not for inference 'mcmc'."
    sentence = fails(*arguments, "map", "--prior", "gaussian", "--cosine", "0.3")
    assert sentence == "--cosine is not for prior 'gaussian'."


def test_no_file(fails, tmp_path):
    sentence = fails("train", "moe", tmp_path / "no.csv", "-t", "y", "-o", tmp_path / "run")
    assert sentence == f"{tmp_path / 'no.csv'} does not exist."
    assert os.listdir(tmp_path) == []


def test_a_wrong_option_is_refused_by_name(command, people, tmp_path):
    code, _, err = command("train", "moe", people(), "-o", tmp_path / "run", "--inference", "luck")
    assert code == 2 and "luck" in err


def test_an_output_that_exists(fails, people, tmp_path):
    data, there = people(), fitted_runs.experts()
    arguments = ("train", "moe", data, "-t", "ill", "-o")
    assert "holds an earlier run" in fails(*arguments, there)
    for place in (tmp_path, data):
        assert "is not a run" in fails(*arguments, place, "--force")
    assert data.exists()


def test_a_folder_that_cannot_be_written(fails, people, tmp_path, monkeypatch):
    data, place = people(), tmp_path / "locked"
    place.mkdir()
    place.chmod(stat.S_IRUSR | stat.S_IXUSR)
    if os.geteuid() == 0:  # who may write anywhere is refused by hand

        def refuse(self, **_):
            raise PermissionError(13, "Permission denied", str(self))

        monkeypatch.setattr(type(place), "mkdir", refuse)
    sentence = fails("train", "moe", data, "-t", "ill", "-o", place / "run")
    assert "Permission denied" in sentence and str(place / "run") in sentence
    assert os.listdir(place) == []


@pytest.fixture
def stand_in(monkeypatch):
    """Let a stand-in do the fit; it gets the folder of the checkpoint."""

    def put(fit):
        class Model(MixtureOfExpertsClassifier):
            def fit(self, *_):
                return fit(self.checkpoint)

        monkeypatch.setattr(train, "estimator_of", lambda _: Model)

    return put


def save_something(checkpoint):
    (checkpoint / "chain-0").mkdir(parents=True)
    (checkpoint / "chain-0" / "state.safetensors").write_text("a state")


def test_ctrl_c_says_what_was_kept(command, fails, people, tmp_path, stand_in):
    def stopped(checkpoint):
        save_something(checkpoint)
        raise KeyboardInterrupt("stopped before the first draw")

    stand_in(stopped)
    data = people()
    arguments = ("train", "moe", data, "-t", "ill", "-o", tmp_path / "run")
    code, out, err = command(*arguments)
    rest = f"{tmp_path / 'run'}.partial"
    assert (code, out) == (130, "")
    assert err.splitlines()[-1] == (
        f"wideangle: stopped before the first draw: kept in {rest}; the same command with "
        "--resume continues."
    )
    assert sorted(os.listdir(tmp_path)) == ["people.csv", "run.partial"]

    assert "add --resume to continue" in fails(*arguments)
    sentence = fails(*arguments, "--resume", "--draws", "7")
    assert "begun with the default n_draws and not with n_draws 7" in sentence
    people(n_rows=21)
    assert "has changed since" in fails(*arguments, "--resume")
    people()

    seen = []
    stand_in(lambda folder: (seen.extend(os.listdir(folder)), stopped_again())[1])

    def stopped_again():
        raise KeyboardInterrupt

    assert command(*arguments, "--resume")[0] == 130
    assert seen == ["chain-0"]
    stand_in(lambda folder: (seen.append(folder.exists()), stopped_again())[1])
    code, _, err = command(*arguments, "--force")
    assert code == 130 and seen[-1] is False
    assert err.endswith("wideangle: stopped: there was nothing to keep.\n")
    assert os.listdir(tmp_path) == ["people.csv"]


def test_nothing_to_resume(fails, people, tmp_path):
    sentence = fails("train", "moe", people(), "-t", "ill", "-o", tmp_path / "run", "--resume")
    assert sentence.startswith("there is nothing to resume")


def test_a_stranger_in_the_way_is_left_alone(fails, people, tmp_path):
    (tmp_path / "run.partial").mkdir()
    (tmp_path / "run.partial" / "mine.txt").write_text("mine")
    arguments = ("train", "moe", people(), "-t", "ill", "-o", tmp_path / "run")
    for option in ([], ["--force"], ["--resume"]):
        assert "is in the way" in fails(*arguments, *option)
    assert (tmp_path / "run.partial" / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("n_good", [0, 2, 7])
def test_a_full_disk(fails, people, tmp_path, monkeypatch, n_good):
    """Before the fit, and after it with some or most of the files written."""
    data, turns, flush = people(), iter([True] * n_good), os.fsync

    def fsync(number):
        if next(turns, False):
            return flush(number)
        with open("/dev/full", "wb", buffering=0) as device:
            device.write(b"the real error of a real device")

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr("wideangle.runs.train.train", lambda *_: shared)
    shared = read_run(fitted_runs.experts())
    sentence = fails("train", "moe", data, "-t", "ill", "-o", tmp_path / "run")
    assert "No space left on device" in sentence
    assert os.listdir(tmp_path) == ["people.csv"]


def test_a_finished_run_is_not_thrown_away(fails, people, tmp_path, monkeypatch):
    monkeypatch.setattr("wideangle.runs.train.train", lambda *_: shared)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "elsewhere"))
    (tmp_path / "elsewhere").mkdir()
    shared, rename = read_run(fitted_runs.experts()), os.rename

    def refuse(source, target):
        if str(target) == str(tmp_path / "run"):
            raise OSError(28, os.strerror(28))
        rename(source, target)

    monkeypatch.setattr(os, "rename", refuse)
    sentence = fails("train", "moe", people(), "-t", "ill", "-o", tmp_path / "run")
    assert sentence.startswith(f"cannot write {tmp_path / 'run'}: No space left on device;")
    place = sentence.partition("The run, which is complete, is in ")[2].removesuffix(" instead.")
    assert read_run(place).metrics == shared.metrics
    assert sorted(os.listdir(tmp_path)) == ["elsewhere", "people.csv"]


def test_a_checkpoint_that_fails_says_what_is_left(fails, people, tmp_path, stand_in):
    def fail(checkpoint):
        save_something(checkpoint)
        raise StorageError("cannot write a state: No space left on device.")

    stand_in(fail)
    sentence = fails("train", "moe", people(), "-t", "ill", "-o", tmp_path / "run")
    assert sentence.endswith(f"What was saved before is in {tmp_path / 'run'}.partial.")


def test_options_reach_the_model(command, tmp_path, monkeypatch):
    jobs = []

    def take(job, *_):
        jobs.append(job)
        return read_run(fitted_runs.features())

    monkeypatch.setattr("wideangle.runs.train.train", take)
    np.savez(tmp_path / "a.npz", X=np.eye(4))
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    for name in ("a.csv", "a.npz"):
        output = tmp_path / f"{name}.run"
        code, out, _ = command(
            "train", "features", tmp_path / name, "-o", output, "--process", "pitman-yor",
            "--prior", "vmf", "--missing=-9", "--ignore", "a", "--category", "b", "--draws", "5",
            "--held-out", "0.5", "--seed", "3", "--no-header", "--dense", "--noise-scale", "0.5",
        )  # fmt: skip
        assert code == 0 and "reconstruction error" in out
    table, arrays = jobs
    assert table.options["process"] == "pitman-yor" and table.options["prior"] == "vmf"
    assert table.options["noise_scale"] == 0.5 and table.options["inference__n_draws"] == 5
    assert table.plan.ignore == ("a",) and table.plan.categories == ("b",)
    assert table.plan.sparse is False
    assert table.reading.missing == ("-9",) and not table.reading.header
    assert (table.seed, table.held_out) == (3, 0.5)
    # Columns of a table have units of their own, columns of an array have not.
    assert table.plan.scale and table.options["standardise"]
    assert not arrays.plan.scale and not arrays.options["standardise"]
    assert table.checkpoint == tmp_path / "a.csv.run.partial" / "checkpoint"


def test_a_name_cannot_steer_the_terminal(command, tmp_path, stand_in):
    def stop(_):
        raise KeyboardInterrupt

    stand_in(stop)
    (tmp_path / "a.csv").write_text("y,\x1b[2Jx\n" + "a,1\nb,1\n" * 4)
    code, _, err = command("train", "moe", tmp_path / "a.csv", "-t", "y", "-o", tmp_path / "run")
    assert code == 2 and "no column left" in err and "\x1b" not in err
