import errno
import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

import fitted_runs
from wideangle.report import page
from wideangle.runs import folder
from wideangle.runs.folder import PARTS, check_free, is_run, read_run, write_run
from wideangle.storage import StorageError
from wideangle.storage.files import exchange


@pytest.fixture(params=["experts", "regression", "features"])
def run(request):
    return read_run(getattr(fitted_runs, request.param)())


@pytest.fixture
def copy(tmp_path):
    return shutil.copytree(fitted_runs.experts(), tmp_path / "run")


def refused(call):
    with pytest.raises(StorageError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def assert_equal(a, b):
    assert (a.kind, a.frame, a.settings, a.metrics, a.log) == (
        b.kind, b.frame, b.settings, b.metrics, b.log,
    )  # fmt: skip
    np.testing.assert_array_equal(a.sample.X, b.sample.X)
    np.testing.assert_array_equal(a.sample.rows, b.sample.rows)
    assert a.sample.values.keys() == b.sample.values.keys()
    for name, values in a.sample.values.items():
        np.testing.assert_array_equal(values, b.sample.values[name])


def test_what_is_written_is_read(run, tmp_path):
    written = write_run(run, tmp_path / "deep" / "run")
    again = read_run(written.path)
    assert again.path == tmp_path / "deep" / "run"
    assert_equal(again, run)
    assert os.listdir(tmp_path / "deep") == ["run"]
    predict = {"moe": "predict_proba", "regression": "predict"}.get(run.kind, "transform")
    np.testing.assert_array_equal(
        getattr(again.model, predict)(run.sample.X), getattr(run.model, predict)(run.sample.X)
    )


def test_the_sample_says_what_the_model_says(run):
    sample, values = run.sample, run.sample.values
    assert len(sample) == run.metrics["n_test"] == 12
    assert run.columns[0] == "age" and sample.X.shape == (12, len(run.columns))
    if run.kind == "moe":
        # Programs compiled in another way round in another way.
        np.testing.assert_allclose(values["proba"], run.model.predict_proba(sample.X), rtol=1e-5)
        assert values["activations"].shape == (12, 2) and run.frame.classes == ("no", "yes")
        truth = fitted_runs.people()["ill"].to_numpy()[sample.rows - 1]
        assert [run.frame.classes[i] for i in sample.y] == truth.tolist()
    elif run.kind == "regression":
        np.testing.assert_allclose(values["prediction"], run.model.predict(sample.X), rtol=1e-5)
        assert (values["low"] < values["high"]).all() and run.frame.classes == ()
        truth = fitted_runs.people()["income"].to_numpy()[sample.rows - 1]
        np.testing.assert_array_equal(sample.y, truth)
    else:
        np.testing.assert_array_equal(values["activations"], run.model.transform(sample.X))
        assert values["reconstruction"].shape == sample.X.shape
        assert np.isfinite(values["log_density"]).all()


@pytest.mark.parametrize("name", [*PARTS, "run.json"])
def test_a_file_that_is_gone_cut_or_changed_is_found(copy, name):
    file = copy / name
    content = file.read_bytes()
    file.write_bytes(content[:-9])
    assert str(copy) in refused(lambda: read_run(copy))
    file.write_bytes(content.replace(b"0", b"1", 1))
    if name != "run.json":
        assert "changed or damaged" in refused(lambda: read_run(copy))
    file.unlink()
    assert str(copy) in refused(lambda: read_run(copy))


def test_the_log_is_for_people_only(copy):
    (copy / "log.txt").unlink()
    assert read_run(copy).log == ""


def test_foreign_folders(tmp_path, copy):
    assert refused(lambda: read_run(tmp_path / "no")).endswith(
        "does not exist: name a folder that `wideangle train` wrote."
    )
    assert "is not a folder" in refused(lambda: read_run(copy / "run.json"))
    assert "is not a run" in refused(lambda: read_run(tmp_path))
    about = json.loads((copy / "run.json").read_text())
    (copy / "run.json").write_text(json.dumps(about | {"version": 99}))
    assert "another release" in refused(lambda: read_run(copy))
    (copy / "run.json").write_text(json.dumps(about | {"kind": "other"}))
    assert "is not a run" in refused(lambda: read_run(copy))


def test_a_model_of_other_columns_is_found(copy):
    forged(copy, "frame.json", lambda frame: frame.update(sources=frame["sources"][:1]))
    assert "do not belong together" in refused(lambda: read_run(copy))


def forged(copy, name, change):
    """Change the JSON of a run, checksum included."""
    content = json.loads((copy / name).read_text())
    change(content)
    (copy / name).write_text(json.dumps(content))
    about = json.loads((copy / "run.json").read_text())
    about["sha256"][name] = folder.checksum(copy / name)
    (copy / "run.json").write_text(json.dumps(about))


def test_classes_that_are_not_those_of_the_model_are_found(copy):
    forged(copy, "frame.json", lambda frame: frame.update(target=None))
    assert "do not belong together" in refused(lambda: read_run(copy))


FIELDS = [
    ("metrics.json", "rhat", [1.0]),
    ("metrics.json", "warnings", None),
    ("metrics.json", "seconds", {"fit": "long"}),
    ("metrics.json", "accuracy", "good"),
    ("metrics.json", "n_train", 1.5),
    ("settings.json", "versions", ["1.0"]),
    ("settings.json", "command", "train"),
    ("settings.json", "seed", True),
]


@pytest.mark.parametrize(("name", "field", "value"), FIELDS)
def test_json_of_another_shape_is_named_by_file_and_field(copy, name, field, value):
    forged(copy, name, lambda content: content.update({field: value}))
    assert refused(lambda: read_run(copy)).startswith(f"{copy / name}: {field!r} must be ")
    forged(copy, name, lambda content: content.pop(field))
    if field != "accuracy":  # scores are those of a family: there may be others
        assert f"{field!r} is missing" in refused(lambda: read_run(copy))


def test_a_score_that_is_not_known_is_named_when_the_page_is_made(copy):
    pytest.importorskip("jinja2")
    forged(copy, "metrics.json", lambda metrics: metrics.update(accuracy=None))
    run = read_run(copy)
    assert "metrics.json: 'accuracy' is null" in refused(lambda: page.render(run))


def test_a_place_that_is_taken(copy, tmp_path):
    run = read_run(copy)
    assert "add --force" in refused(lambda: write_run(run, copy))
    write_run(replace(run, log="new"), copy, force=True)
    assert read_run(copy).log == "new" and os.listdir(tmp_path) == ["run"]
    other = tmp_path / "letters"
    other.mkdir()
    (other / "dear.txt").write_text("dear")
    for force in (False, True):
        assert "is not a run" in refused(lambda f=force: write_run(run, other, force=f))
    assert (other / "dear.txt").read_text() == "dear"
    assert is_run(copy) and not is_run(other)
    check_free(tmp_path / "free", force=False)


def test_an_earlier_run_is_in_its_place_at_every_moment(copy, monkeypatch):
    """A process that is killed between two calls of the system must leave one of the runs."""
    run, calls = read_run(copy), []

    def watched(name, call):
        def wrapped(*arguments, **named):
            calls.append(name)
            assert is_run(copy)
            done = call(*arguments, **named)
            assert is_run(copy)
            return done

        return wrapped

    if not exchange(copy / "log.txt", copy / "run.json"):
        pytest.skip("this system cannot exchange folders")
    exchange(copy / "log.txt", copy / "run.json")
    for name in ("rename", "replace", "mkdir", "unlink"):
        monkeypatch.setattr(os, name, watched(name, getattr(os, name)))
    monkeypatch.setattr(folder, "exchange", watched("exchange", exchange))
    write_run(replace(run, log="new"), copy, force=True)
    assert read_run(copy).log == "new"
    assert calls.count("exchange") == 1
    assert "rename" not in calls


@pytest.mark.parametrize("failing", ["write", "rename", "save"])
def test_a_full_disk_leaves_nothing_half_written(copy, tmp_path, monkeypatch, failing):
    run, before = read_run(copy), (copy / "log.txt").read_bytes()

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if failing == "write":
        monkeypatch.setattr(folder, "write", full)
    elif failing == "save":
        monkeypatch.setattr(type(run.model), "save", full)
    else:
        rename, turns = os.rename, iter([False, True])

        def second_fails(*paths):  # the old run moves away, the new one does not come
            (full if next(turns, False) else rename)(*paths)

        monkeypatch.setattr(folder, "exchange", lambda *_: False)  # as on other systems
        monkeypatch.setattr(os, "rename", second_fails)
    assert "No space left on device" in refused(lambda: write_run(run, copy, force=True))
    assert os.listdir(tmp_path) == ["run"] and (copy / "log.txt").read_bytes() == before
    if failing != "rename":
        assert "No space left" in refused(lambda: write_run(run, tmp_path / "new"))
        assert os.listdir(tmp_path) == ["run"]
