"""``fetch`` from a server on this machine: originals in small, converted, recorded, found again."""

import dataclasses
import errno
import hashlib
import io
import json
import os
import tarfile
import threading

import numpy as np
import pytest
import scipy.io

from wideangle_lab import datasets
from wideangle_lab.datasets.files import file_state
from wideangle_lab.originals import fetching, sources
from wideangle_lab.originals.converters import ConversionError, libsvm, newsgroups
from wideangle_lab.originals.download import DownloadError, Patience
from wideangle_lab.originals.fetching import fetch
from wideangle_lab.originals.sources import Original, Place, Recipe
from wideangle_lab.originals.unpack import UnsafeArchiveError

TRAIN, TEST = b"-1 3:1 11:1 \n+1 1:1 \n-1 7:1 \n", b"+1 5:1 123:0 \n-1 2:1 \n"
QUICK = Patience(timeout=1.0, tries=2, pause=0.001)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty folder that is searched, and no other."""
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))
    place = tmp_path / "data"
    place.mkdir()
    monkeypatch.setenv("WIDEANGLE_DATA", str(place))
    return place


@pytest.fixture
def adult(home, server, monkeypatch):
    """Adult-9 of five rows, at a server that publishes no checksum."""
    server.serve(TRAIN, "/a9a")
    server.serve(TEST, "/a9a.t")
    originals = tuple(
        Original(file, (Place(server.address(f"/{file}")),), 1000) for file in ("a9a", "a9a.t")
    )
    content = sources.digest(_arrays_of(home.parent / "expected"))
    monkeypatch.setitem(sources.RECIPES, "adult9", Recipe(libsvm.convert, originals, content))
    entry = dataclasses.replace(datasets.MANIFEST["adult9"], shape=(5, 123))
    monkeypatch.setitem(datasets.MANIFEST, "adult9", entry)
    return server


def _arrays_of(folder):
    folder.mkdir()
    (folder / "a9a").write_bytes(TRAIN)
    (folder / "a9a.t").write_bytes(TEST)
    return libsvm.convert(folder)


def get(notes=None, **options):
    note = notes.append if notes is not None else lambda _: None
    return fetch("adult9", patience=QUICK, note=note, **options)


def record(home):
    return json.loads((home / "adult9.record.json").read_text())


def test_a_data_set_is_fetched_converted_recorded_and_loaded(adult, home):
    notes = []
    path = get(notes)
    assert path == home / "adult9.npz"
    data = datasets.load("adult9")  # verified: the record has its checksum
    assert data.shape == (5, 123)
    assert data.y.tolist() == [0, 1, 0, 1, 0]
    assert file_state(datasets.MANIFEST["adult9"]) == ("converted", path)
    assert record(home)["content"] == "all arrays equal those of the canonical file"
    assert sorted(os.listdir(home)) == [".adult9.lock", "adult9.npz", "adult9.record.json"]
    # Trust on first use is said, with the checksum that will be compared from now on.
    known = record(home)["originals"][adult.address("/a9a")]
    assert known["checksum"] == "first download"
    assert any("trusted and remembered" in n and known["sha256"] in n for n in notes)


def test_a_file_that_is_here_is_not_fetched_again(adult):
    get()
    n_requests, notes = len(adult.seen), []
    get(notes)
    assert len(adult.seen) == n_requests
    assert "is here already (converted)" in notes[0]
    get(force=True)
    assert len(adult.seen) == n_requests + 2


def test_an_original_that_changed_is_refused_until_it_is_accepted(adult, home):
    get()
    adult.serve(TRAIN.replace(b"11:1", b"12:1"), "/a9a", tag='"v2"')
    with pytest.raises(DownloadError, match=r"It was other on \d{4}-.*--accept-new"):
        get(force=True)
    assert datasets.load("adult9").X.toarray()[0, 10] == 1  # the old file stands
    get(force=True, accept_new=True)
    assert datasets.load("adult9").X.toarray()[0, 11] == 1
    assert "DIFFER" in record(home)["content"]


def test_a_published_checksum_is_compared_and_another_place_tried(adult, home, monkeypatch):
    adult.serve(b"<html>moved</html>", "/bad")
    adult.routes["/gone"] = lambda handler: handler.answer(404)
    right = hashlib.sha256(TRAIN).hexdigest()
    places = (
        Place(adult.address("/gone")),
        Place(adult.address("/bad"), right),
        Place(adult.address("/a9a"), right),
    )
    recipe = sources.RECIPES["adult9"]
    first = dataclasses.replace(recipe.originals[0], places=places)
    changed = dataclasses.replace(recipe, originals=(first, recipe.originals[1]))
    monkeypatch.setitem(sources.RECIPES, "adult9", changed)
    get()
    known = record(home)["originals"][adult.address("/a9a")]
    assert (known["sha256"], known["checksum"]) == (right, "published")
    assert adult.address("/bad") not in record(home)["originals"]


def test_when_no_place_has_it_every_reason_is_given(adult, home):
    adult.routes["/a9a"] = lambda handler: handler.answer(404)
    with pytest.raises(DownloadError) as error:
        get()
    assert "a9a could not be fetched" in str(error.value)
    assert "404" in str(error.value)
    assert "--from" in str(error.value)
    assert not (home / "adult9.npz").exists()


def test_a_conversion_that_fails_keeps_the_originals_for_the_next_try(adult, home, monkeypatch):
    def fails(_):
        raise ConversionError("broken")

    recipe = sources.RECIPES["adult9"]
    with monkeypatch.context() as patch:
        patch.setitem(sources.RECIPES, "adult9", dataclasses.replace(recipe, convert=fails))
        with pytest.raises(ConversionError):
            get()
    n_requests = len(adult.seen)
    get()
    assert len(adult.seen) == n_requests
    assert not (home / "originals").exists()


def test_originals_are_kept_when_asked_for(adult, home):
    get(keep=True)
    assert (home / "originals/adult9/a9a").read_bytes() == TRAIN


def test_other_rows_than_the_manifest_says_are_refused(adult, home):
    adult.serve(TRAIN + b"+1 4:1 \n", "/a9a")
    with pytest.raises(ConversionError, match=r"6 rows, 123 columns and 2 classes, not 5, 123"):
        get()
    assert not (home / "adult9.npz").exists()


def test_other_classes_than_the_manifest_says_are_refused(adult, monkeypatch):
    entry = dataclasses.replace(datasets.MANIFEST["adult9"], n_classes=3)
    monkeypatch.setitem(datasets.MANIFEST, "adult9", entry)
    with pytest.raises(ConversionError, match=r"and 2 classes, not 5, 123 and 3"):
        get()


def test_originals_at_hand_need_no_network(adult, home, tmp_path):
    path = get(given=tmp_path / "expected")
    assert adult.seen == []
    assert datasets.load("adult9").shape == (5, 123)
    assert record(home)["given"] == str(tmp_path / "expected")
    assert (tmp_path / "expected/a9a").exists()  # what belongs to the user stays
    with pytest.raises(ValueError, match=r"holds a9a, a9a\.t"):
        get(given=path, force=True)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        get(given=tmp_path / "absent", force=True)


def test_one_archive_at_hand_may_have_any_name(home, tmp_path, monkeypatch):
    with tarfile.open(tmp_path / "mine.tgz", "w:gz") as tar:
        for name in ("20news-bydate-train/a/1", "20news-bydate-test/a/2"):
            info = tarfile.TarInfo(name)
            info.size = 20
            tar.addfile(info, io.BytesIO(b"Subject: x\n\nengines"[:20].ljust(20)))
    entry = dataclasses.replace(datasets.MANIFEST["news20"], shape=(2, 1), n_classes=1)
    monkeypatch.setitem(datasets.MANIFEST, "news20", entry)
    fetch("news20", given=tmp_path / "mine.tgz")
    assert datasets.load("news20").feature_names == ("engines",)
    assert sorted(os.listdir(home)) == [".news20.lock", "news20.npz", "news20.record.json"]
    assert newsgroups.ARCHIVE == sources.RECIPES["news20"].originals[0].file


def test_a_hostile_archive_at_hand_leaves_nothing(home, tmp_path):
    with tarfile.open(tmp_path / "evil.tgz", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../../evil"))
    with pytest.raises(UnsafeArchiveError, match="leads out"):
        fetch("news20", given=tmp_path / "evil.tgz")
    assert os.listdir(home) == [".news20.lock"]


def test_two_at_once_download_once(adult, home):
    paths = []
    both = [threading.Thread(target=lambda: paths.append(get())) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert paths == [home / "adult9.npz"] * 2
    assert len(adult.seen) == 2


def test_a_full_disk_is_one_sentence(adult, home, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(fetching.np, "savez_compressed", full)
    with pytest.raises(DownloadError, match=r"no room left; free some and fetch again"):
        get()
    assert not (home / "adult9.npz").exists()
    assert (home / "originals/adult9/a9a").exists()


def test_a_folder_that_cannot_be_written_falls_back_to_the_cache(adult, home, monkeypatch):
    monkeypatch.setattr(fetching.os, "access", lambda *_: False)
    path = get()
    assert path.parent == datasets.folders()[-1] != home
    assert datasets.load("adult9").shape == (5, 123)


def test_another_folder_and_a_hidden_file_are_pointed_out(adult, home, tmp_path):
    notes = []
    get(notes, folder=tmp_path / "elsewhere")
    assert notes[-1] == f"set WIDEANGLE_DATA to {tmp_path / 'elsewhere'} for it to be found"
    get(notes)
    assert (home / "adult9.npz").is_file()  # that it is elsewhere too does not count
    n_requests = len(adult.seen)
    get(folder=tmp_path / "elsewhere")
    assert len(adult.seen) == n_requests
    (home / "adult9.npz").write_bytes(b"damaged")
    get(notes, folder=datasets.folders()[-1])
    assert f"{home / 'adult9.npz'} comes first" in notes[-1]


def test_a_changed_file_is_no_longer_the_converted_one(adult, home):
    path = get()
    path.write_bytes(path.read_bytes() + b"x")
    assert file_state(datasets.MANIFEST["adult9"])[0] == "other bytes"
    with pytest.raises(datasets.DamagedFileError):
        datasets.load("adult9")
    (home / "adult9.record.json").write_text("[]")
    assert file_state(datasets.MANIFEST["adult9"])[0] == "other bytes"
    get()
    assert file_state(datasets.MANIFEST["adult9"])[0] == "converted"


def test_what_cannot_be_downloaded_says_how_to_get_it(home):
    for name, hint in {
        "building": "Kaggle",
        "rcv1_subsets": "rcv1_subsets.npz",
        "mnist": "name='mnist'",
    }.items():
        with pytest.raises(ValueError, match=hint):
            fetch(name)


def test_matlab_originals_are_fetched_too(home, server, monkeypatch):
    made = io.BytesIO()
    scipy.io.savemat(made, {"fea": np.array([[1.0, 0, 1, 110], [0, 2, 2, 112]])})
    server.serve(made.getvalue(), "/TDT2.mat")
    place = Place(server.address("/TDT2.mat"))
    recipe = dataclasses.replace(
        sources.RECIPES["tdt"], originals=(Original("TDT2.mat", (place,)),), content=""
    )
    monkeypatch.setitem(sources.RECIPES, "tdt", recipe)
    entry = dataclasses.replace(datasets.MANIFEST["tdt"], shape=(2, 2), n_classes=2)
    monkeypatch.setitem(datasets.MANIFEST, "tdt", entry)
    fetch("tdt", patience=QUICK)
    assert datasets.load("tdt", weights="counts").X.toarray().tolist() == [[1, 0], [0, 2]]
