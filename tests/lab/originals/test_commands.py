"""``wideangle datasets fetch`` and ``datasets images``."""

import dataclasses

import numpy as np
import pytest
import scipy.io
from typer.testing import CliRunner

from wideangle_lab import datasets
from wideangle_lab.commands import datasets as app
from wideangle_lab.originals import sources, terminal
from wideangle_lab.originals.download import DownloadError


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_list_and_the_help_name_the_sub_commands():
    shown = run("--help").stdout
    assert all(word in shown for word in ("fetch", "images", "--json"))
    assert "--accept-new" in run("fetch", "--help").stdout


@pytest.fixture
def eeg(tmp_path, monkeypatch):
    """A recording of 6 samples as an original at hand, and an empty folder for the data."""
    places = np.zeros(2, dtype=[("labels", object)])
    places["labels"] = ["Fz", "Cz"]
    settings = {"nbchan": 2.0, "pnts": 6.0, "srate": 128.0, "chanlocs": places}
    scipy.io.savemat(tmp_path / "eeglab_data.set", {"EEG": settings})
    np.arange(12, dtype="<f4").tofile(tmp_path / "eeglab_data.fdt")
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))
    monkeypatch.delenv("WIDEANGLE_DATA", raising=False)
    return tmp_path


def test_originals_of_the_wrong_size_are_one_sentence(eeg):
    done = run("fetch", "eeg", "--from", eeg)
    assert isinstance(done.exception, DownloadError)
    assert "4,400 rows, 2 columns and 0 classes, not 4,400, 32 and 0" in str(done.exception)


def test_a_path_is_all_that_goes_to_stdout(eeg, monkeypatch):
    entry = dataclasses.replace(datasets.MANIFEST["eeg"], shape=(4400, 2))
    monkeypatch.setitem(datasets.MANIFEST, "eeg", entry)
    done = run("fetch", "eeg", "--from", eeg, "--to", eeg / "out")
    assert done.exit_code == 0
    assert done.stdout == f"{eeg / 'out' / 'eeg.npz'}\n"
    assert "is written" in done.stderr
    assert "Stand-in: another public 32-channel recording" in done.stderr


def test_one_that_fails_does_not_keep_the_next_from_being_fetched(monkeypatch):
    asked = []

    def fetch(name, *_, **__):
        asked.append(name)
        raise DownloadError(f"{name} is away.")

    monkeypatch.setattr(terminal, "fetch", fetch)
    done = run("fetch", "adult9", "tdt", "adult9")
    assert asked == ["adult9", "tdt"]
    assert "adult9 is away" in str(done.exception)
    assert "tdt is away" in str(done.exception)


def test_without_a_name_all_that_can_be_downloaded_are_fetched(monkeypatch):
    asked = []
    monkeypatch.setattr(terminal, "fetch", lambda name, *_, **__: asked.append(name))
    run("fetch")
    assert set(asked) == {name for name, recipe in sources.RECIPES.items() if recipe.originals}
    assert "building" not in asked


def test_wrong_names_and_options_are_refused(eeg):
    assert "name='mnist'" in str(run("fetch", "mnist").exception)
    assert "--from goes with one name" in str(run("fetch", "eeg", "tdt", "--from", eeg).exception)


def test_folders_of_images_become_a_file(tmp_path):
    cv2 = pytest.importorskip("cv2")
    generator = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / "in" / name).mkdir(parents=True)
        for i in range(4):
            image = generator.integers(0, 255, (40, 40)).astype(np.uint8)
            cv2.imwrite(str(tmp_path / "in" / name / f"{i}.png"), image)
    done = run("images", tmp_path / "in", "-o", tmp_path / "out.npz", "--words", 6)
    assert done.exit_code == 0
    assert "8 images, 2 classes" in done.stdout
    with np.load(tmp_path / "out.npz") as z:
        assert z["shape"].tolist() == [8, 6]
