import dataclasses
import json

import numpy as np
import pytest

from wideangle import datasets
from wideangle.paper import records, suites, task, tuning
from wideangle.paper.cells import FULL, QUICK, Cell, from_json
from wideangle.paper.methods import GRIDS, ROWS, UNREPULSED, estimator
from wideangle.paper.suites import Choice, cells_of


def test_a_cell_survives_json_and_has_a_path_of_its_own():
    cells = cells_of(["classifiers", "small-data"], Choice())
    assert len({cell.path for cell in cells}) == len(cells)
    for cell in cells:
        again = from_json(json.loads(json.dumps(records.plain(cell.as_json()))))
        assert again == cell


def test_the_suite_has_every_row_baseline_and_k_on_every_data_set():
    cells = cells_of(["classifiers"], Choice())
    assert {cell.n_experts for cell in cells} == {0, 5, 10, 20, 30}
    assert {cell.data for cell in cells} == {
        "adult9", "building", *(f"rcv1_subsets.{s}" for s in ("s1", "s2", "s3", "s5"))
    }  # fmt: skip
    assert len(cells) == 6 * (4 + 4 * len(ROWS))
    order = [ROWS[c.method]["inference"] for c in cells if c.method in ROWS]
    assert order == sorted(order, key=["map", "vi", "mcmc"].index)  # cheap ones first


def test_numbers_of_the_paper_are_parts_of_the_suite():
    def methods(name):
        return {cell.method for cell in cells_of([name], Choice())}

    assert {cell.data for cell in cells_of(["1"], Choice())} == {"adult9"}
    assert {cell.n_experts for cell in cells_of(["4"], Choice())} == {0, 30}
    assert methods("3") == {"BMEM-G", "BMEM-MABN-I", "BMEM-V"}
    assert len(cells_of(["4", "5"], Choice())) == len(cells_of(["4"], Choice()))
    one = cells_of(["1"], Choice(experts=(7,), seeds=(3,), methods=("BMEM-G",), effort=QUICK))
    assert one == [Cell("classifiers", "adult9", "BMEM-G", 7, 3, effort=QUICK)]
    with pytest.raises(ValueError, match="table='9'"):
        cells_of(["9"], Choice())


def test_the_study_pairs_its_arms():
    cells = cells_of(["small-data"], Choice(sizes=(200,), experts=(5,), seeds=(0, 1)))
    assert {cell.method for cell in cells} == set(suites.PRIORS)
    assert len(cells) == 2 * len(suites.PRIORS)
    assert all(cell.settings["inference"] == "mcmc" for cell in cells)
    with pytest.raises(ValueError, match="method='BMEM-G'"):
        cells_of(["small-data"], Choice(methods=("BMEM-G",)))


def test_rows_and_their_controls_differ_by_the_diversity_alone():
    assert set(GRIDS) == set(ROWS)
    for diverse, plain in UNREPULSED.items():
        assert ROWS[diverse]["inference"] == ROWS[plain]["inference"]
    assert estimator("BMEM-V", 3).prior == "vmf"
    assert estimator("BMEM-MABN-I", 3, cosine=0.4).cosine == 0.4
    given = estimator("vmf", 3, **suites.PRIORS["vmf"], inference="mcmc")
    assert (given.prior, given.inference) == ("vmf", "mcmc")


def test_all_methods_of_a_seed_get_the_same_rows():
    one = task.task_of(Cell("small-data", "experts", "vmf", 5, 1, 100))
    two = task.task_of(Cell("small-data", "experts", "gaussian-1", 20, 1, 100))
    other = task.task_of(Cell("small-data", "experts", "vmf", 5, 2, 100))
    assert one.X_train.shape == (100, 8)
    assert one.X_test.shape == (600, 8)
    assert np.array_equal(one.X_train, two.X_train)
    assert not np.array_equal(one.X_train, other.X_train)
    few = task.task_of(Cell("classifiers", "experts", "LR", effort=QUICK))
    assert few.X_train.shape == few.X_test.shape == (300, 8)


def test_a_fixed_split_still_gives_every_seed_its_own_subsample(monkeypatch):
    made = datasets.mixture_data(0)
    fixed = dataclasses.replace(made, fixed_split=made.split(0))
    monkeypatch.setattr(task, "load", lambda name: fixed)
    one, two = (task.task_of(Cell("small-data", "x", "vmf", 5, seed, 100)) for seed in (0, 1))
    assert not np.array_equal(one.X_train, two.X_train)
    assert np.array_equal(one.X_test, two.X_test)


def test_no_training_row_is_tested():
    one = task.task_of(Cell("small-data", "experts", "vmf", 5, 1))
    train = {row.tobytes() for row in one.X_train}
    assert len(train) == 1400
    assert not any(row.tobytes() in train for row in one.X_test)


def test_rare_rows_are_those_with_a_column_few_rows_have():
    from wideangle.datasets import MANIFEST, Dataset

    X = np.zeros((300, 3), np.float32)
    X[:, 0] = 1
    X[[5, 250], 1] = 1  # one of 200 training rows
    X[:4, 2] = 1  # two in a hundred
    data = Dataset("x", X, None, MANIFEST["adult9"])
    assert np.flatnonzero(task.rare_rows(data, np.arange(200))).tolist() == [5, 250]


def test_data_without_classes_are_refused():
    with pytest.raises(ValueError, match="block_images has no classes"):
        task.task_of(Cell("classifiers", "block_images", "LR"))


def test_settings_are_searched_one_after_the_other():
    def loss(settings):
        return (settings["scale"] - 0.3) ** 2 + (settings.get("strength", 1.0) - 10) ** 2

    best, met = tuning.search({"scale": [0.1, 0.3, 1.0], "strength": [1.0, 10.0]}, loss)
    assert best == {"scale": 0.3, "strength": 10.0}
    assert set(met) == {"scale=0.1", "scale=0.3", "scale=1", "strength=1", "strength=10"}


def test_choosing_never_sees_a_test_row_and_is_done_once(tmp_path, monkeypatch):
    cell = Cell("classifiers", "experts", "BMEM-G-VI", 5, 1)
    rows = task.task_of(cell)
    seen, fits = [], []

    class Fake:
        def __init__(self, scale):
            self.scale = scale
            fits.append(scale)

        def fit(self, X, y):
            seen.append(X)
            return self

        def predict_proba(self, X):
            seen.append(X)
            return 0.5 + np.outer(np.ones(len(X)), [-0.1 / self.scale, 0.1 / self.scale])

    monkeypatch.setattr(tuning, "estimator", lambda row, k, scale, **_: Fake(scale))
    monkeypatch.setitem(tuning.GRIDS, "BMEM-G-VI", {"scale": [0.3, 1.0]})
    first = tuning.tuned(cell, rows, tmp_path)
    again = tuning.tuned(cell, rows, tmp_path)
    assert first["settings"] == again["settings"]
    assert fits == [0.3, 1.0]
    test = {row.tobytes() for row in rows.X_test}
    assert not any(row.tobytes() in test for X in seen for row in X)
    assert len(seen[0]) + len(seen[1]) == len(rows.X_train)
    longer = Cell("classifiers", "experts", "BMEM-G-VI", 5, 1, effort=FULL._replace(n_passes=3))
    tuning.tuned(longer, rows, tmp_path)
    assert len(fits) == 4  # other effort, chosen again


def test_nothing_is_chosen_where_nothing_is_to_choose(tmp_path):
    rows = task.task_of(Cell("classifiers", "experts", "BMEM-V", effort=QUICK))
    quick = Cell("classifiers", "experts", "BMEM-G", 5, effort=QUICK)
    arm = Cell("small-data", "experts", "vmf", 5)
    for cell in (quick, arm):
        assert tuning.tuned(cell, rows, tmp_path)["settings"] == {}


def test_a_diverse_row_takes_the_scale_of_its_control_and_searches_its_strength(
    tmp_path, monkeypatch
):
    asked = []

    def scorer(cell, rows, seed):
        def loss(settings):
            asked.append((cell.method, dict(settings)))
            return abs(settings["scale"] - 0.3) + abs(settings.get("cosine", 0.2) - 0.2)

        return loss

    monkeypatch.setattr(tuning, "scorer", scorer)
    rows = task.task_of(Cell("classifiers", "experts", "LR", effort=QUICK))
    found = tuning.tuned(Cell("classifiers", "experts", "BMEM-MABN-I", 5), rows, tmp_path)
    assert found["settings"] == {"scale": 0.3, "cosine": 0.2}
    assert [method for method, _ in asked] == ["BMEM-V"] * 4 + ["BMEM-MABN-I"] * 3
    assert all(settings["scale"] == 0.3 for method, settings in asked[4:])
    tuning.tuned(Cell("classifiers", "experts", "BMEM-V", 30), rows, tmp_path)
    assert len(asked) == 7  # the control was chosen on the way
