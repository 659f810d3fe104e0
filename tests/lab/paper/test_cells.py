import dataclasses
import json

import numpy as np
import pytest

from wideangle.storage.files import as_finite
from wideangle_lab.paper import made, task, tuning
from wideangle_lab.paper.baselines import BASELINES
from wideangle_lab.paper.cells import Cell, Effort, from_json
from wideangle_lab.paper.efforts import FULL, QUICK, USUAL, USUAL_TEXT, effort_of, identity
from wideangle_lab.paper.feature_methods import FEATURE_ROWS, LABELLED, UNLABELLED
from wideangle_lab.paper.methods import GRIDS, ROWS, UNREPULSED, estimator
from wideangle_lab.paper.suites import TABLES, Choice, cells_of, numbers_of


def test_a_cell_survives_json_and_has_a_path_of_its_own():
    cells = cells_of(["all"], Choice())
    assert len({cell.path for cell in cells}) == len(cells)
    for cell in cells:
        again = from_json(json.loads(json.dumps(as_finite(cell.as_json()))))
        assert again == cell


def test_records_of_an_older_effort_can_be_read():
    cell = Cell("classifiers", "adult9", "LR").as_json()
    del cell["effort"]["mixture_folds"]
    assert from_json(cell).effort.mixture_folds == 1


def test_the_suite_has_every_row_baseline_and_k_on_every_data_set():
    cells = cells_of(["classifiers"], Choice(seeds=(0,)))
    assert {cell.n_experts for cell in cells} == {0, 5, 10, 20, 30}
    assert {cell.data for cell in cells} == {
        "adult9", "building", *(f"rcv1_subsets.{s}" for s in ("s1", "s2", "s3", "s5"))
    }  # fmt: skip
    assert len(cells) == 6 * (len(BASELINES) + 4 * len(ROWS))
    order = [ROWS[c.method]["inference"] for c in cells if c.method in ROWS]
    assert order == sorted(order, key=["map", "vi", "mcmc"].index)  # cheap ones first


def test_every_number_of_the_paper_has_its_cells():
    def of(number, **choice):
        return cells_of([str(number)], Choice(**choice))

    assert list(TABLES) == list(range(1, 14))
    assert {cell.data for cell in of(1)} == {"adult9"}
    assert {cell.n_experts for cell in of(4)} == {0, 30}
    assert {"KSVM", "RF", "MLP", "ISVM", "GB", "BMEM-DPP"} < {cell.method for cell in of(4)}
    assert {cell.method for cell in of(3)} == {
        "BMEM-G", "BMEM-MABN-I", "BMEM-V", "BMEM-V-VI", "BMEM-MABN-II"
    }  # fmt: skip
    assert {cell.seed for cell in of(1)} == set(range(5))
    assert of(6) == []
    assert {cell.data for cell in of(7)} == set(UNLABELLED)
    assert {cell.data for cell in of(9)} == set(LABELLED)
    assert {cell.data for cell in of(11)} == {*UNLABELLED, *LABELLED}
    assert {cell.method for cell in of(12)} == set(FEATURE_ROWS)
    assert [{cell.data for cell in of(n)} for n in (12, 13)] == [{"reuters"}, {"news20"}]


def test_cells_that_tables_share_are_there_once():
    assert len(cells_of(["4", "5"], Choice())) == len(cells_of(["4"], Choice()))
    assert cells_of(["7", "8"], Choice()) == cells_of(["7"], Choice())
    assert numbers_of(["13", "2", "2"]) == [2, 13]
    assert numbers_of(["all"]) == list(TABLES)
    with pytest.raises(ValueError, match="table='14'"):
        cells_of(["14"], Choice())


def test_a_choice_goes_before_the_defaults_of_a_table():
    (one,) = cells_of(
        ["1"], Choice(experts=(7,), seeds=(3,), methods=("BMEM-G",), level="quick",
                      data=("adult9",))
    )  # fmt: skip
    assert one == Cell("classifiers", "adult9", "BMEM-G", 7, 3, effort=QUICK)
    assert cells_of(["1"], Choice(data=("building",))) == []
    only = cells_of(["1", "7"], Choice(methods=("IMA-LFM",)))
    assert {cell.suite for cell in only} == {"features"}
    with pytest.raises(ValueError, match="method='nothing'"):
        cells_of(["1"], Choice(methods=("nothing",)))


def test_quick_tables_need_no_files_and_full_ones_are_the_papers_protocol():
    quick = cells_of(["all"], Choice(level="quick"))
    assert {cell.data for cell in quick} == {"experts", "block_images", made.MADE_TEXT}
    full = cells_of(["all"], Choice(level="full"))
    assert {cell.seed for cell in full} == {0, 1, 2, 3, 4}
    mixtures = [cell.effort for cell in full if cell.suite == "classifiers"]
    assert {(effort.n_folds, effort.mixture_folds) for effort in mixtures} == {(5, 5)}
    assert {cell.n_experts for cell in full if cell.method == "BMEM-G"} == {5, 10, 20, 30}


def test_only_what_a_method_feels_is_part_of_its_identity():
    def same(one, other):
        return identity(one) == identity(other)

    def cell(method, **effort):
        return Cell("classifiers", "adult9", method, 5, effort=Effort(**effort))

    assert same(cell("LR"), cell("LR", n_draws=7, n_passes=3, tune=False))
    assert not same(cell("LR"), cell("LR", n_folds=2))
    assert same(cell("MEM-L2"), cell("MEM-L2", n_draws=7, n_folds=2))
    for method in ("MEM-L2", "BMEM-PR"):
        assert not same(cell(method), cell(method, n_passes=7))
        assert not same(cell(method), cell(method, mixture_folds=5))
    assert not same(cell("BMEM-G"), cell("BMEM-G", n_draws=7))
    assert effort_of("features", "usual", {"n_draws": 3}) == USUAL["features"]._replace(n_draws=3)
    assert effort_of("features", "full") == FULL["features"]
    assert effort_of("features", "usual", data="reuters") == USUAL_TEXT
    assert effort_of("features", "full", data="reuters") == FULL["features"]


def test_rows_and_their_controls_differ_by_the_diversity_alone():
    assert set(GRIDS) == set(ROWS)
    for diverse, plain in UNREPULSED.items():
        assert ROWS[diverse]["inference"] == ROWS[plain]["inference"]
    assert estimator("BMEM-V", 3).get_params()["prior__common"] is False
    assert estimator("BMEM-MABN-I", 3, prior__cosine=0.4).prior.cosine == 0.4


def test_all_methods_of_a_seed_get_the_same_rows():
    one, two, other = (
        task.task_of(Cell("classifiers", "experts", *more))
        for more in (("MEM-L2", 5, 1), ("BMEM-PR", 20, 1), ("MEM-L2", 5, 2))
    )
    assert one.X_train.shape == (1400, 8)
    assert one.X_test.shape == (600, 8)
    assert np.array_equal(one.X_train, two.X_train)
    assert not np.array_equal(one.X_train, other.X_train)
    few = task.task_of(Cell("classifiers", "experts", "LR", effort=QUICK))
    assert few.X_train.shape == few.X_test.shape == (300, 8)


def test_no_training_row_is_tested():
    one = task.task_of(Cell("classifiers", "experts", "MEM-L2", 5, 1))
    train = {row.tobytes() for row in one.X_train}
    assert len(train) == 1400
    assert not any(row.tobytes() in train for row in one.X_test)


def test_data_without_classes_are_refused():
    with pytest.raises(ValueError, match="block_images has no classes"):
        task.task_of(Cell("classifiers", "block_images", "LR"))


def test_made_text_has_words_classes_and_rows_of_unit_length():
    data = made.made_text()
    assert data.shape == (sum(made.SIZES), made.N_WORDS)
    np.testing.assert_allclose(np.linalg.norm(data.X.toarray(), axis=1), 1.0, rtol=1e-5)
    assert len(data.feature_names) == made.N_WORDS
    own = data.X.toarray()[data.y == 0][:, : made.WORDS_OF_CLASS]
    assert np.sum(own**2) > 0.6 * np.sum(data.y == 0)


def test_settings_are_searched_one_after_the_other():
    def losses(tried):
        return [(s["scale"] - 0.3) ** 2 + (s.get("strength", 1.0) - 10) ** 2 for s in tried]

    best, met = tuning.search({"scale": [0.1, 0.3, 1.0], "strength": [1.0, 10.0]}, losses)
    assert best == {"scale": 0.3, "strength": 10.0}
    assert set(met) == {"scale=0.1", "scale=0.3", "scale=1", "strength=1", "strength=10"}


def fake_estimator(monkeypatch):
    """Its loss falls with the scale; returns the rows it saw and the scales it was made with."""
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
    return seen, fits


def test_choosing_never_sees_a_test_row_and_is_done_once(monkeypatch):
    cell = Cell("classifiers", "experts", "BMEM-G-VI", 5)
    rows = task.task_of(cell)
    seen, fits = fake_estimator(monkeypatch)
    first, made_now = tuning.tuned(cell, rows, {})
    assert list(made_now) == ["experts/BMEM-G-VI.seed0"]
    again, nothing = tuning.tuned(cell, rows, made_now)
    assert (first["settings"], nothing) == (again["settings"], {})
    assert fits == [0.3, 1.0]
    test = {row.tobytes() for row in rows.X_test}
    assert not any(row.tobytes() in test for X in seen for row in X)
    assert len(seen[0]) + len(seen[1]) == len(rows.X_train)
    longer = Cell("classifiers", "experts", "BMEM-G-VI", 5, effort=Effort(n_passes=3))
    tuning.tuned(longer, rows, made_now)
    assert len(fits) == 4  # other effort, chosen again


def test_every_split_has_the_settings_of_split_0(monkeypatch):
    later = Cell("classifiers", "experts", "BMEM-G-VI", 5, 3)
    rows = task.task_of(later)
    seen, fits = fake_estimator(monkeypatch)
    _, made_now = tuning.tuned(later, rows, {})
    first = task.task_of(dataclasses.replace(later, seed=0))
    known = {row.tobytes() for row in first.X_train}
    assert all(row.tobytes() in known for X in seen for row in X)
    tuning.tuned(dataclasses.replace(later, seed=1, n_experts=30), rows, made_now)
    assert fits == [0.3, 1.0]


def test_split_0_is_the_data_set_s_own_and_others_have_its_size():
    from wideangle_lab.datasets import MANIFEST, Dataset, Split

    own = Split(np.arange(30), np.arange(30, 40))
    data = Dataset("x", np.zeros((40, 2)), np.zeros(40), MANIFEST["adult9"], fixed_split=own)
    assert task.split_of(data, 0) is own
    others = [task.split_of(data, seed) for seed in (1, 2)]
    assert all((len(one.train), len(one.test)) == (30, 10) for one in others)
    assert not np.array_equal(others[0].test, others[1].test)
    assert all(len({*one.train, *one.test}) == 40 for one in others)


def test_cross_validation_scores_every_training_row_once(monkeypatch):
    cell = Cell("classifiers", "experts", "BMEM-G-VI", 5, effort=Effort(mixture_folds=5))
    rows = task.task_of(cell)
    seen, fits = fake_estimator(monkeypatch)
    _, before = tuning.tuned(dataclasses.replace(cell, effort=Effort()), rows, {})
    seen.clear()
    fits.clear()
    tuning.tuned(cell, rows, before)  # a choice by one part is not one by five
    assert len(fits) == 10
    scored = np.concatenate(seen[1:10:2])
    assert len(np.unique(scored, axis=0)) == len(rows.X_train) == len(scored)


def test_nothing_is_chosen_where_nothing_is_to_choose():
    rows = task.task_of(Cell("classifiers", "experts", "BMEM-V", effort=QUICK))
    quick = Cell("classifiers", "experts", "BMEM-G", 5, effort=QUICK)
    assert tuning.tuned(quick, rows, {}) == (tuning.NOTHING, {})


def test_a_diverse_row_takes_what_was_chosen_for_its_control_and_searches_its_strength(monkeypatch):
    asked = []

    def scorer(cell, rows):
        def losses(tried):
            found = []
            for settings in tried:
                asked.append((cell.method, dict(settings)))
                strength = settings.get("inference__diversity", 10.0)
                found.append(abs(settings["prior__scale"] - 0.3) + abs(strength - 10.0))
            return found

        return losses

    monkeypatch.setattr(tuning, "scorer", scorer)
    rows = task.task_of(Cell("classifiers", "experts", "LR", effort=QUICK))
    found, now = tuning.tuned(Cell("classifiers", "experts", "MEM-MAR", 5), rows, {})
    assert found["settings"] == {"prior__scale": 0.3, "inference__diversity": 10.0}
    assert set(found["losses"]) == {f"diversity={value}" for value in (1, 10, 100, 1000)}
    assert [method for method, _ in asked] == ["MEM-L2"] * 4 + ["MEM-MAR"] * 4
    assert all(settings["prior__scale"] == 0.3 for method, settings in asked[4:])
    tuning.tuned(Cell("classifiers", "experts", "MEM-L2", 30), rows, now)
    assert len(asked) == 8  # the control was chosen on the way


@pytest.mark.parametrize("row", ROWS)
def test_every_setting_of_a_grid_is_one_of_the_row_s_estimator(row):
    cell = Cell("classifiers", "experts", row, 5)
    given = tuning._options(cell)
    given |= {name: values[0] for name, values in GRIDS[row].items()}
    assert given.items() <= estimator(row, 5, **given).get_params().items()
