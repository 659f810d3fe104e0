"""Cells of latent features: what they measure, what they leave, what is said about them."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from wideangle import LatentFeatureModel
from wideangle.latent_features.score import EntryScores
from wideangle.settings import PitmanYor, VonMisesFisherPrior, as_plain
from wideangle_lab.datasets import load
from wideangle_lab.paper import feature_metrics, feature_pictures, printed
from wideangle_lab.paper.cells import Cell
from wideangle_lab.paper.detail_pages import copy_pictures, feature_blocks
from wideangle_lab.paper.efforts import QUICK, USUAL
from wideangle_lab.paper.feature_methods import (
    FEATURE_ROWS,
    LABELLED,
    MAX_FEATURES,
    REPULSED,
    UNLABELLED,
    UNREPULSED,
    feature_cells,
    feature_model,
)
from wideangle_lab.paper.feature_tables import (
    data_grid,
    detail_grids,
    metric,
    precision_grid,
    word_grid,
)
from wideangle_lab.paper.features import feature_task
from wideangle_lab.paper.records import Outcome, keep, read_all


def cell(method="IMA-LFM", data="block_images", seed=0, effort=QUICK):
    (one,) = feature_cells((data,), (method,), (seed,), effort)
    return one


def test_every_row_on_every_data_set():
    data = (*UNLABELLED, *LABELLED)
    cells = feature_cells(data, (), (0,), USUAL["features"])
    assert len(cells) == 10 * len(FEATURE_ROWS)
    assert len({one.path for one in cells}) == len(cells)
    assert all(one.settings["inference__max_features"] == MAX_FEATURES for one in cells)
    with pytest.raises(ValueError, match="method"):
        feature_cells(data, ("IMA",), (0,), QUICK)
    assert set(REPULSED) < set(FEATURE_ROWS)


def test_rows_differ_by_the_prior_alone():
    models = {name: feature_model(cell(name), 1) for name in FEATURE_ROWS}
    differing = {"prior", "process"}
    shared = [
        {k: as_plain(v) for k, v in one.get_params(deep=False).items() if k not in differing}
        for one in models.values()
    ]
    assert all(one == shared[0] for one in shared)
    assert (shared[0]["standardise"], shared[0]["noise_scale"]) == (True, "paper")
    priors = {name: one.choice("prior") for name, one in models.items()}
    assert priors["IMA-LFM"].concentration == 1.0
    assert priors["IMA-cosine-0.2"].concentration is None
    assert priors["IMA-cosine-0.2"].cosine == 0.2
    assert isinstance(priors[UNREPULSED], VonMisesFisherPrior)
    processes = {name: one.choice("process") for name, one in models.items()}
    assert {one.alpha for one in processes.values()} == {2.0}
    assert [n for n, one in processes.items() if isinstance(one, PitmanYor)] == ["PYP-LFM"]


def test_split_is_by_seed_alone_and_has_no_row_twice():
    full = QUICK._replace(max_rows=None)
    one, other = feature_task(cell(effort=full)), feature_task(cell("IBP-LFM", effort=full))
    np.testing.assert_array_equal(one.X_test, other.X_test)
    assert (len(one.X_train), len(one.X_test)) == (700, 300)
    both = np.concatenate([one.X_train, one.X_test])
    assert len(np.unique(both, axis=0)) == 1000
    assert not np.array_equal(one.X_test, feature_task(cell(seed=1, effort=full)).X_test)
    few = feature_task(cell())
    assert len(few.X_train) == QUICK.max_rows
    assert few.y_test is None


def test_accuracy_is_that_of_the_best_matching():
    classes = np.array([0, 0, 0, 1, 1, 2])
    assert feature_metrics.matched_accuracy(np.array([2, 2, 2, 0, 0, 1]), classes) == 1.0
    # Two clusters may not both stand for class 0.
    assert feature_metrics.matched_accuracy(np.array([0, 0, 1, 1, 1, 2]), classes) == 5 / 6
    assert feature_metrics.matched_accuracy(np.zeros(6, int), classes) == 0.5


def test_clustering_finds_separate_groups_and_says_when_there_is_nothing():
    classes = np.repeat([0, 1, 2], 20)
    points = np.eye(3)[classes] + 0.01 * np.random.default_rng(0).normal(size=(60, 3))
    found = feature_metrics.clustering(points, classes, 0)
    assert found == {"clustering_accuracy": 100.0, "nmi": pytest.approx(100.0)}
    nothing = feature_metrics.clustering(np.empty((60, 0)), classes, 0)
    assert nothing["nmi"] == 0.0
    assert nothing["clustering_accuracy"] == pytest.approx(100 / 3)


class Fake:
    """Reconstructs rows as their mean, and predicts hidden entries with a known error."""

    scaling_ = SimpleNamespace(shift=np.array([1.0, 0.0, 0.0, 0.0]))

    def reconstruct(self, X):
        return np.zeros(X.shape) + self.scaling_.shift

    def score_entries(self, X, mask):
        rows = X.toarray() if sp.issparse(X) else X
        self.asked = mask.shape
        return EntryScores(rows[mask] + 0.5, np.full(mask.sum(), -2.0))


def test_errors_are_those_of_held_out_rows():
    rows = np.array([[1.0, 3.0, 4.0, 0.0], [1.0, 0.0, 0.0, 1.0]] * 100)
    found = feature_metrics.reconstruction(Fake(), rows)
    assert found["l2_error"] == pytest.approx(3.0)
    assert found["l2_error_of_mean"] == pytest.approx(3.0)
    for X in (rows, sp.csr_array(rows)):
        hidden = feature_metrics.hidden_entries(Fake(), X, 0)
        assert hidden["hidden_rms"] == pytest.approx(0.5)
        assert hidden["hidden_log_density"] == -2.0
        assert 40 < hidden["n_hidden"] < 120
        assert feature_metrics.hidden_entries(Fake(), X, 0) == hidden


def test_wide_rows_have_no_more_hidden_entries_than_can_be_predicted():
    fake = Fake()
    n_columns = int(feature_metrics.MOST_HIDDEN / feature_metrics.HIDDEN / 3)
    feature_metrics.hidden_entries(fake, np.zeros((50, n_columns)), 0)
    assert fake.asked == (3, n_columns)


def test_precision_is_that_of_a_sort_of_all_distances(monkeypatch):
    monkeypatch.setattr(feature_metrics, "RETRIEVED", 7)
    rng = np.random.default_rng(0)
    rows, queries = rng.normal(size=(60, 3)), rng.normal(size=(30, 3))
    classes, asked = rng.integers(0, 3, 60), rng.integers(0, 3, 30)
    found = feature_metrics.precision(queries, asked, rows, classes)["precision"]
    shares = []
    for query, one in zip(queries, asked, strict=True):
        order = sorted(range(60), key=lambda n, query=query: np.sum((rows[n] - query) ** 2))
        shares.append(np.mean([classes[n] == one for n in order[:7]]))
    for one in range(3):
        mine = np.array(shares)[asked == one]
        assert found[str(one)]["precision"] == pytest.approx(100 * mine.mean())
        assert found[str(one)]["n"] == len(mine)


def test_overlap_of_words_is_a_share_of_a_list():
    lists = [["a", "b"], ["b", "c"], ["d", "e"]]
    assert feature_metrics.word_overlap(lists) == pytest.approx(100 * (0.5 + 0 + 0) / 3)
    assert feature_metrics.word_overlap([["a"], ["a"]]) == 100.0
    assert feature_metrics.word_overlap([["a"]]) is None


def test_top_words_are_those_with_the_largest_weights():
    names = ("a", "b", "c", "d")
    assert feature_pictures.top_words(np.array([0.1, -9.0, 3.0, 0.2]), names, 2) == ["c", "d"]


def test_pictures_are_of_images_alone():
    pytest.importorskip("matplotlib")
    data = load("block_images")

    class Fitted(LatentFeatureModel):
        def __sklearn_is_fitted__(self):
            return True

    model = Fitted()
    model.components_, model.prevalence_ = data.extras["features"], np.full(4, 0.5)
    model.n_components_, model.n_features_in_ = 4, 36
    assert feature_pictures.picture(model, data).startswith(b"\x89PNG")
    model.n_components_ = 0
    assert feature_pictures.picture(model, data) is None
    assert feature_pictures.picture(model, load("experts")) is None


@pytest.fixture
def add(tmp_path, where):
    """Write a record with a known loss of every held-out row."""

    def write(method, losses, data="eeg", seed=0, **metrics):
        losses = np.asarray(losses, float)
        numbers = {"l2_error": 1.0, "hidden_log_density": -1.0, "hidden_rms": 0.5, "n_train": 7,
                   "n_test": 3, "log_likelihood": -losses.mean()}  # fmt: skip
        found = {"n_components": 10 + len(method), "n_raw": 20.0, "rhat": 1.5, "n_disputed": 1}
        outcome = Outcome(numbers | metrics, {"fit": 2.0}, diagnostics=found)
        one = cell(method, data, seed)
        return keep(tmp_path, one, outcome, where)

    write.folder = tmp_path
    return write


LOSSES = np.array([1.0, 2.0, 3.0, 4.0])


def test_tables_by_data_set_have_errors_marks_and_printed_numbers(add):
    add("IBP-LFM", LOSSES)
    add("IBP-LFM", LOSSES + 2, seed=1)
    records = list(read_all(add.folder, "features"))
    grid = data_grid(
        records, "x", ("eeg",), metric("log_likelihood"), ".2f", printed.LIKELIHOOD
    )  # fmt: skip
    assert grid.columns == ("data", "IBP-LFM", "PYP-LFM", "IMA-LFM")
    assert grid.rows[0][:3] == (
        "EEG", "-3.50 ± 1 (2) (R-hat 1.5) [-14133 ± 54]", "[-12893 ± 73]"
    )  # fmt: skip


def test_tables_of_retrieval_and_of_words(add):
    found = {str(c): {"precision": 10.0 * c} for c in range(9)}
    lists = [["oil", "crude"], ["oil", "gold"]]
    add("IMA-LFM", LOSSES, data="reuters", precision=found)
    add("IMA-LFM", LOSSES, data="news20", words=lists, word_overlap=50.0)
    records = list(read_all(add.folder, "features"))
    rows = {row[0]: row[1:] for row in precision_grid(records, "reuters").rows}
    assert rows["IMA-LFM"][8] == "80.0"
    assert rows["IBP-LFM in the paper"][0] == "73.7"
    words = word_grid(records, "news20")
    assert words.rows[0][:3] == ("1", "oil", "oil")
    assert "IMA-LFM 50.0 % over 17 features" in words.notes[0]
    assert "IBP-LFM in the paper" in words.notes[0]


def test_details_have_classes_where_there_are_some(add):
    add("IBP-LFM", LOSSES)
    add("IMA-LFM", LOSSES, data="reuters", nmi=40.0, clustering_accuracy=50.0,
        nmi_of_rows=30.0, clustering_accuracy_of_rows=35.0)  # fmt: skip
    records = list(read_all(add.folder, "features"))
    held_out, chains = detail_grids(records, "eeg")
    assert held_out.rows[0][:3] == ("IBP-LFM", "1", "-2.50")
    assert "NMI, %" not in held_out.columns
    assert chains.rows[0][chains.columns.index("worst R-hat")] == "1.50"
    (text, _) = detail_grids(records, "reuters")
    assert text.rows[0][text.columns.index("NMI, %")] == "40.0"
    page = feature_blocks(add.folder)["data sets"]
    assert "|  | rows themselves |  |  |  |  | 30.0 |  |" in page
    assert "| EEG | IBP-LFM | 1 | -2.5 | 1 | 20 |  | 1.50 |" in page


def test_the_page_takes_the_picture_of_the_first_seed_along(add, tmp_path):
    for seed in (0, 1):
        record = add("IMA-LFM", LOSSES, data="yale", seed=seed)
        record.path.with_suffix(".png").write_bytes(b"seed %d" % seed)
    copy_pictures(add.folder, tmp_path / "images")
    assert "](images/yale-features.png)" in feature_blocks(add.folder)["data sets"]
    assert (tmp_path / "images" / "yale-features.png").read_bytes() == b"seed 0"


@pytest.mark.slow
def test_the_command_runs_in_processes_without_files_and_goes_on(tmp_path, command):
    short = ["--n-warmup", "3", "--n-draws", "4", "--max-rows", "100", "-o", str(tmp_path)]
    rows = ["--method", "IBP-LFM", "--method", "IMA-cosine-0.1"]
    data = ["--data", "block_images"]
    arguments = ["reproduce", "features", "--quick", *data, *rows, "--jobs", "2", *short]
    code, shown, _ = command(*arguments)
    assert code == 0 and "components of" in shown
    records = list(read_all(tmp_path / "cells", "features"))
    assert {record.cell.method for record in records} == {"IBP-LFM", "IMA-cosine-0.1"}
    for record in records:
        assert isinstance(record.cell, Cell)
        assert record.metrics["n_scored"] == 100
        assert record.metrics["l2_error"] < record.metrics["l2_error_of_mean"]
        assert record.path.with_suffix(".png").is_file()
    code, shown, _ = command(*arguments)
    assert code == 0 and "2 cells are there, 0 to run" in shown
