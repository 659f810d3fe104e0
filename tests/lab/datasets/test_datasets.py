import dataclasses
import json

import numpy as np
import pytest
import scipy.sparse as sp

from wideangle_lab import datasets
from wideangle_lab.datasets import listing
from wideangle_lab.datasets.manifest import ENTRIES

FILES = [entry.name for entry in ENTRIES if entry.sha256]
PAPER = {
    "Adult-9": "adult9", "SUN-Building": "building", "RCV1": "rcv1_subsets", "Yale": "yale",
    "Block-Images": "block_images", "AR": "ar", "EEG": "eeg", "Piano": "piano",
    "Reuters": "reuters", "TDT": "tdt", "20-News": "news20", "15-Scenes": "scenes15",
    "Caltech-101": "caltech101",
}  # fmt: skip


@pytest.mark.parametrize("name", datasets.NAMES)
def test_every_data_set_keeps_the_contract(small, name):
    data = datasets.load(name, **({} if name in ("block_images", "experts") else {"verify": False}))
    n, p = data.shape
    assert data.X.dtype == np.float32
    assert isinstance(data.X, sp.csr_array | np.ndarray)
    assert data.name.partition(".")[0] == data.entry.name == name
    train, test = data.split(3)
    assert sorted([*train, *test]) == list(range(n))
    assert all(np.array_equal(a, b) for a, b in zip(data.split(3), (train, test), strict=True))
    if data.y is not None:
        assert data.y.shape == (n,)
        assert data.y.dtype == np.int64
        assert 0 <= data.y.min() <= data.y.max() < len(data.class_names)
    assert len(data.feature_names) in (0, p)
    assert all(mask.shape == (n,) and mask.dtype == bool for mask in data.groups.values())
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.name = "other"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_entry_says_where_it_comes_from_and_how_it_differs(entry):
    assert entry.name in datasets.NAMES
    assert all([entry.title, entry.note, entry.source, entry.licence, entry.citation, entry.paper])
    assert entry.status in ("faithful", "near faithful", "stand-in", "generated")
    assert entry.note.startswith("Stand-in") == (entry.status == "stand-in")
    assert bool(entry.file) == (entry.status != "generated")
    # rcv1 is made on each machine from a download, so there are no canonical bytes.
    assert bool(entry.sha256) == bool(entry.size) == (bool(entry.file) and entry.name != "rcv1")


@pytest.mark.parametrize("name", FILES)
def test_the_canonical_files_have_the_shapes_of_the_manifest(real, name):
    entry = datasets.MANIFEST[name]
    assert datasets.locate(entry).stat().st_size == entry.size
    data = datasets.load(name)
    if name == "rcv1_subsets":
        rest = [datasets.load(f"{name}.{sample}") for sample in ("s2", "s3", "s5")]
        assert data.shape[0] + sum(one.shape[0] for one in rest) == entry.shape[0]
        assert sum(int(one.y.sum()) for one in [data, *rest]) == 2094
        assert {code: int(mask.sum()) for code, mask in data.groups.items()} == {
            "C18": 396, "C17": 276, "C12": 101, "C14": 63, "C22": 39, "C34": 35, "C23": 13,
            "C32": 21, "C16": 14,
        }  # fmt: skip
    else:
        assert data.shape == entry.shape
        assert (0 if data.y is None else len(np.unique(data.y))) == entry.n_classes


def test_all_thirteen_data_sets_of_the_paper_have_a_loader():
    assert set(PAPER.values()) <= set(datasets.NAMES)
    assert set(PAPER.values()) | {"rcv1"} == set(datasets.MANIFEST)


def test_a_data_set_carries_source_licence_citation_and_protocol(small):
    data = datasets.load("adult9", verify=False)
    entry = data.entry
    assert (data.source, data.licence, data.citation) == (
        entry.source,
        entry.licence,
        entry.citation,
    )
    assert data.protocol == "one fixed split, 4 rows for training and 3 for testing"
    assert len(data.splits()) == 1
    text = datasets.load("reuters", verify=False)
    assert text.protocol == "5 random splits, 70% of the rows for training"
    assert len(text.splits()) == 5
    assert len({tuple(split.train) for split in text.splits()}) == 5


def test_a_stand_in_is_named_as_one_where_it_is_shown(small):
    assert repr(datasets.load("eeg", verify=False)) == "<Dataset eeg: EEG (stand-in), 3 x 2>"
    assert repr(datasets.load("tdt", verify=False)) == "<Dataset tdt: TDT, 12 x 9>"
    (small / "eeg.npz").unlink()
    with pytest.raises(datasets.DataNotFoundError, match=r"EEG \(stand-in\)"):
        datasets.load("eeg")


def test_rcv1_keeps_the_terms_of_most_documents(small):
    data = datasets.load("rcv1", verify=False)
    assert data.shape == (6, 5)
    assert data.y.tolist() == [0, 1, 1, 0, 1, 0]
    assert data.groups["C17"].tolist() == [False, False, True, False, False, False]
    most = datasets.load("rcv1", verify=False, n_terms=2)
    assert np.array_equal(most.X.toarray(), data.X.toarray()[:, [0, 3]])
    with pytest.raises(ValueError, match="n_terms=0"):
        datasets.load("rcv1", verify=False, n_terms=0)


def test_fixed_splits_are_those_of_the_files(small):
    adult = datasets.load("adult9", verify=False)
    assert adult.split(0) is adult.split(1)
    assert adult.split().train.tolist() == [0, 1, 2, 3]
    assert adult.y[adult.split().test].tolist() == [1, 0, 1]
    building = datasets.load("building", verify=False)
    assert building.split().train.tolist() == [0, 2, 3]
    assert building.groups["a"].tolist() == [True, False, True, False]


def test_random_splits_depend_on_the_seed_and_hold_70_percent():
    first, second = datasets.random_split(100, 0), datasets.random_split(100, 1)
    assert len(first.train) == len(second.train) == 70
    assert set(first.train) != set(second.train)


def test_images_of_all_sizes_sum_to_100(small):
    data = datasets.load("building", verify=False)
    sums = np.asarray(data.X.sum(axis=1)).ravel()
    assert np.allclose(sums[sums > 0], 100.0)
    plain = datasets.load("building", verify=False, percent=False)
    assert np.all(plain.X.data == np.round(plain.X.data))


def test_rcv1_leaves_out_what_is_in_ccat_but_in_none_of_the_nine(small):
    data = datasets.load("rcv1_subsets.s2", verify=False)
    assert data.name == "rcv1_subsets.s2"
    assert data.y.tolist() == [1, 1, 1, 0, 0, 0, 0]
    assert data.groups["C17"].tolist() == [False, True, True, False, False, False, False]
    assert data.groups["C16"].tolist() == [True, False, True, False, False, False, False]
    with pytest.raises(ValueError, match="sample='s4'"):
        datasets.load("rcv1_subsets.s4", verify=False)


def test_options_of_single_loaders(small):
    assert datasets.load("yale", verify=False).shape == (3, 4)
    assert datasets.load("yale", verify=False, rows="all").shape == (6, 4)
    assert datasets.load("caltech101", verify=False, background=False).class_names == ("b", "c")
    assert datasets.load("caltech101", verify=False, background=False).y.min() == 0
    text = datasets.load("reuters", verify=False)
    twice = datasets.load("reuters", verify=False, weights="counts")
    assert np.allclose(2 * text.X.toarray(), twice.X.toarray())
    assert set(text.extras) == {"modapte_train"}


def test_a_missing_file_says_where_it_was_looked_for(small):
    (small / "tdt.npz").unlink()
    with pytest.raises(datasets.DataNotFoundError) as error:
        datasets.load("tdt")
    assert all(str(folder) in str(error.value) for folder in datasets.folders())
    assert len(datasets.folders()) == 2
    assert "WIDEANGLE_DATA" in str(error.value)
    assert datasets.MANIFEST["tdt"].sha256 in str(error.value)
    assert "wideangle datasets fetch tdt" in str(error.value)


def test_the_cache_folder_comes_second(small, monkeypatch):
    cache = datasets.folders()[1]
    cache.mkdir(parents=True)
    (small / "eeg.npz").rename(cache / "eeg.npz")
    assert datasets.locate(datasets.MANIFEST["eeg"]) == cache / "eeg.npz"
    monkeypatch.delenv("WIDEANGLE_DATA")
    assert datasets.folders() == [cache]


def test_other_bytes_are_refused_and_a_change_of_the_file_is_seen(small, monkeypatch):
    with pytest.raises(datasets.DamagedFileError, match="sha256"):
        datasets.load("piano")
    import hashlib

    path = small / "piano.npz"
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    entry = dataclasses.replace(datasets.MANIFEST["piano"], sha256=right)
    monkeypatch.setitem(datasets.MANIFEST, "piano", entry)
    assert datasets.load("piano").shape == (5, 3)
    np.savez_compressed(path, X=np.zeros((2, 3), np.float32))
    with pytest.raises(datasets.DamagedFileError):
        datasets.load("piano")


def test_pickled_arrays_are_never_loaded(small):
    np.savez(small / "piano.npz", X=np.array([{"a": 1}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        datasets.load("piano", verify=False)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="name='mnist'"):
        datasets.load("mnist")


def test_the_list_tells_present_missing_and_damaged_apart(small, capsys):
    (small / "tdt.npz").unlink()
    listing.run(as_json=True)
    listed = json.loads(capsys.readouterr().out)
    states = {one["name"]: one["file"] for one in listed["datasets"]}
    assert states["tdt"] == "missing"
    assert states["adult9"] == "other bytes"
    assert states["block_images"] == "generated"
    listing.run(as_json=False)
    shown = capsys.readouterr().out
    assert "stand-in" in shown
    assert "tdt: wideangle datasets fetch tdt" in shown
    assert "block_images:" not in shown
    assert all(name in shown for name in states)


def test_the_list_of_the_real_files(real, capsys):
    listing.run(as_json=True)
    listed = json.loads(capsys.readouterr().out)["datasets"]
    assert {one["file"] for one in listed} <= {"present", "missing", "generated"}


def test_the_command_lists_them(small, command):
    _, shown, _ = command("datasets", "--json")
    assert len(json.loads(shown)["datasets"]) == len(ENTRIES)
