import json
import shutil
from pathlib import Path

import numpy as np

from wideangle_lab.marks import fill
from wideangle_lab.paper import printed
from wideangle_lab.paper.classifier_tables import (
    against_grid,
    diagnostic_grid,
    metric_grid,
    nine_grid,
    time_grid,
)
from wideangle_lab.paper.compare import (
    by_key,
    mean_metric,
    pooled_group,
)
from wideangle_lab.paper.detail_pages import classifier_blocks
from wideangle_lab.paper.page import main
from wideangle_lab.paper.records import read_all
from wideangle_lab.paper.tables import statistics_grid, write_table

ROOT = Path(__file__).parents[3]


def losses(shift=0.0, n=400, seed=0):
    return np.random.default_rng(seed).exponential(0.3, n) + shift


def grouped(accuracy, n=10, log_loss=0.5):
    return {name: {"n_test": n, "accuracy": accuracy, "log_loss": log_loss} for name in ("C16",)}


def classifiers(store):
    return list(read_all(store.folder / "cells", "classifiers"))


def test_a_cell_shows_what_is_wrong_with_it(store):
    store("adult9", "LR", losses(), accuracy=84.95)
    store("adult9", "BMEM-G", losses(), 5, rhat_predictions=1.2, ess_predictions=80.0, n_chains=4)
    store("adult9", "BMEM-V", losses(), 5, rhat_predictions=1.0, ess_predictions=900.0, n_chains=4)
    grid = metric_grid(classifiers(store), "adult9", "accuracy")
    rows = dict(zip([row[0] for row in grid.rows], grid.rows, strict=True))
    assert grid.columns == ("method", "K=5")
    assert rows["LR"][1] == "84.95"
    assert rows["BMEM-G"][1] == "80.00 (R-hat 1.20) (ESS 20) [83.4]"
    assert rows["BMEM-V"][1] == "80.00"
    assert "| LR | 84.95 |" in grid.markdown()


def test_replicates_are_averaged_with_their_spread(store):
    for seed, accuracy in enumerate((80.0, 82.0)):
        store("adult9", "BMEM-G", losses(), 5, seed, accuracy=accuracy)
    (found,) = by_key(classifiers(store)).values()
    assert mean_metric(found, "accuracy") == (81.0, 1.0)
    grid = metric_grid(classifiers(store), "adult9", "log_loss")
    assert grid.rows[0][0] == "BMEM-G"
    assert " ± 0.0000" in grid.rows[0][1]


def test_diagnostics_show_the_worst(store):
    store("adult9", "BMEM-G", losses(), 5, 0, n_used=2.0, rhat=1.5, ess_bulk=50.0)
    store("adult9", "BMEM-G", losses(), 5, 1, n_used=4.0, rhat=1.1, ess_bulk=20.0)
    (row,) = diagnostic_grid(classifiers(store), "adult9").rows
    assert row[:6] == ("BMEM-G", "5", "2", "3.0", "1.50", "20")
    assert row[-1] == "scale 0.3"


def test_subcategories_are_pooled_over_samples(store):
    store("rcv1_subsets.s1", "BMEM-G", losses(), 5, groups=grouped(50.0, 10))
    store("rcv1_subsets.s2", "BMEM-G", losses(), 5, groups=grouped(80.0, 20))
    assert pooled_group(classifiers(store), ["C16"]) == (70.0, 30)
    rows = {row[0]: row for row in nine_grid(classifiers(store)).rows}
    assert rows["BMEM-G"][-1] == "70.0"
    assert rows["test documents here"][-1] == "30"
    assert rows["BMEM-G in the paper"][-1] == "51.3"


def test_tables_of_baselines_and_of_time_have_the_printed_numbers_beside(store):
    store("adult9", "KSVM", losses(), accuracy=84.0)
    store("adult9", "BMEM-PR", losses(), 30, fit=12.0)
    store("adult9", "BMEM-PR", losses(), 10, fit=99.0)
    rows = {row[0]: row for row in against_grid(classifiers(store)).rows}
    assert rows["KSVM, kernel SVM"][1] == "84.00 [85.2]"
    assert rows["GB, gradient boosting"][1] == ""
    times = {row[0]: row[1] for row in time_grid(classifiers(store)).rows}
    assert times["BMEM-PR"] == "12 s (cpu) [3.3 h]"


def test_the_pages_are_made_of_records_alone(store, tmp_path):
    store("adult9", "LR", losses())
    store("adult9", "BMEM-G", losses(), 5)
    store("building", "BMEM-G", losses(), 5)
    pages = tmp_path / "docs"
    pages.mkdir()
    for name in ("reproduction.md", "results.md", "feature-results.md"):
        shutil.copy(ROOT / "docs" / name, pages)
    main([str(store.folder), str(pages)])
    text = (pages / "results.md").read_text(encoding="utf-8")
    assert text == fill(text, classifier_blocks(store.folder / "cells"))
    assert "Stand-in for SUN-Building" in text
    page = (pages / "reproduction.md").read_text(encoding="utf-8")
    assert "2 cores of a processor" in page
    for number in range(1, 14):
        assert f"| {number}. " in page
    again = (store.folder / "table-01" / "table.json").read_text(encoding="utf-8")
    assert json.loads(again)["records"] == ["cells/classifiers/adult9/BMEM-G.K5.seed0.json"]


def test_a_table_refers_to_the_records_it_shows(store):
    store("adult9", "RF", losses())
    store("adult9", "BMEM-PR", losses(), 30)
    store("adult9", "BMEM-PR", losses(), 5)  # table 4 has K = 30 alone
    store("building", "BMEM-PR", losses(), 20)  # but where K = 30 was not run
    write_table(4, store.folder)
    table = json.loads((store.folder / "table-04" / "table.json").read_text(encoding="utf-8"))
    assert table["records"] == [
        "cells/classifiers/adult9/BMEM-PR.K30.seed0.json",
        "cells/classifiers/adult9/RF.seed0.json",
        "cells/classifiers/building/BMEM-PR.K20.seed0.json",
    ]
    assert "80.00 (K=20) [84.9]" in json.dumps(table)
    assert table["title"] == "Against other classifiers"
    assert (store.folder / "table-04" / "table.md").is_file()


def test_statistics_are_there_without_any_file(monkeypatch, tmp_path):
    monkeypatch.setenv("WIDEANGLE_DATA", str(tmp_path / "nothing"))
    for name in ("XDG_CACHE_HOME", "HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(name, str(tmp_path))
    rows = {row[0]: row[1:] for row in statistics_grid().rows}
    assert len(rows) == 10
    assert rows["Reuters"][0] == "7195 x 5000, 9 classes"
    assert rows["Reuters"][-1] == "no"
    assert rows["Block-Images"][-1] == "yes"


def test_printed_numbers_stand_beside_the_right_cells():
    assert printed.accuracy("adult9", "BMEM-MABN-I", 5) == 87.1
    assert printed.accuracy("adult9", "BMEM-MABN-I", 7) is None
    assert printed.accuracy("rcv1_subsets", "BMEM-G", 5) is None
    assert str(printed.of_three(printed.NMI, "tdt", "PYP-LFM")) == "46.7 ± 0.3"
    assert printed.of_three(printed.NMI, "tdt", "polar") is None


def test_printed_tables_say_what_the_page_says_of_them():
    """The improvements of Table 3 are shares of the new accuracy, not of the old one."""
    old, new = (np.array(printed.NINE_ACCURACY[m]) for m in ("BMEM-G", "BMEM-MABN-I"))
    of_new = 100 * (new - old) / new
    np.testing.assert_allclose(of_new, printed.NINE_IMPROVEMENT, atol=0.11)
    of_old = 100 * (new - old) / old
    np.testing.assert_allclose(of_old[-3:], [23.3, 22.1, 27.7], atol=0.06)
    gains = 100 * (np.divide(*(printed.PRECISION[m] for m in ("IMA-LFM", "IBP-LFM"))) - 1)
    np.testing.assert_allclose(gains[:2], [11, 74], atol=0.5)


def test_the_pages_are_those_of_the_records(tmp_path):
    shutil.copytree(ROOT / "results", tmp_path / "results")  # tables are written beside the records
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    main([str(tmp_path / "results"), str(tmp_path / "docs")])

    def lines(path):
        # Which files are at hand is another matter on another machine.
        text = path.read_text(encoding="utf-8")
        return [line.removesuffix(" yes |").removesuffix(" no |") for line in text.splitlines()]

    for name in ("reproduction.md", "results.md", "feature-results.md"):
        assert lines(tmp_path / "docs" / name) == lines(ROOT / "docs" / name)
