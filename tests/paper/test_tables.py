import numpy as np
import pytest

from wideangle.paper import verdicts
from wideangle.paper.compare import (
    Difference,
    by_key,
    mean_metric,
    over_seeds,
    paired,
    pooled_group,
)
from wideangle.paper.page import main, render
from wideangle.paper.printed import printed
from wideangle.paper.records import read_all
from wideangle.paper.tables import diagnostic_grid, metric_grid, nine_grid, small_data_grid


def losses(shift=0.0, n=400, seed=0):
    return np.random.default_rng(seed).exponential(0.3, n) + shift


def grouped(accuracy, n=10, log_loss=0.5):
    return {name: {"n_test": n, "accuracy": accuracy, "log_loss": log_loss} for name in ("C16",)}


def test_paired_differences_and_their_errors_are_those_of_the_rows(store):
    base, noise = losses(), np.random.default_rng(1).normal(0.01, 0.05, 400)
    first = [store("adult9", "BMEM-MABN-I", base + noise, 5)]
    second = [store("adult9", "BMEM-V", base, 5)]
    gap = paired(first, second)
    rounded = base.astype(np.float16).astype(float)
    expected = (base + noise).astype(np.float16).astype(float) - rounded
    assert gap.mean == pytest.approx(expected.mean())
    assert gap.error == pytest.approx(expected.std(ddof=1) / 20)
    assert gap.verdict == "worse"
    assert paired(second, first).verdict == "better"
    assert paired(first, first).verdict == "no clear difference"


def test_seeds_do_not_pass_for_more_test_rows_but_samples_do(store):
    def pair(data, seed):
        noise = np.random.default_rng(seed + len(data)).normal(0, 0.05, 400)
        other = store(data, "BMEM-V", losses(), 5, seed)
        return store(data, "BMEM-G", losses() + noise, 5, seed), other

    one = [pair("adult9", 0)]
    seeds = [*one, pair("adult9", 1)]
    samples = [pair("rcv1_subsets.s1", 0), pair("rcv1_subsets.s22", 0)]
    errors = [paired(*zip(*pairs, strict=True)).error for pairs in (one, seeds, samples)]
    assert errors[1] == pytest.approx(errors[0], rel=0.1)
    assert errors[2] == pytest.approx(errors[0] / np.sqrt(2), rel=0.1)


def test_rows_are_compared_within_a_seed(store):
    first = [store("adult9", "a", losses(0.5, seed=s), 5, s) for s in (0, 1)]
    second = [store("adult9", "b", losses(seed=s), 5, s) for s in (1, 0)]
    gap = paired(first, second)
    assert gap.mean == pytest.approx(0.5, abs=1e-3)
    assert gap.error < 1e-4  # across seeds the rows differ, and the error would be large


def test_differences_over_seeds_are_paired_by_seed(store):
    first = [store("adult9", "a", [1.0 + s, 1.1 + s], 5, s, 200) for s in range(3)]
    second = [store("adult9", "b", [1.2 + s, 1.2 + s], 5, s, 200) for s in (2, 1, 0)]
    gap = over_seeds(first, second)
    assert gap.mean == pytest.approx(-0.15)
    assert gap.error == pytest.approx(0.0, abs=1e-12)
    assert over_seeds(first[:1], second) is None
    assert gap.clear == pytest.approx(4.53, abs=0.01)  # Student's law, two degrees of freedom


def test_a_cell_shows_what_is_wrong_with_it(store):
    store("adult9", "LR", losses(), accuracy=84.95)
    store("adult9", "BMEM-G", losses(), 5, rhat_predictions=1.2, ess_predictions=80.0, n_chains=4)
    store("adult9", "BMEM-V", losses(), 5, rhat_predictions=1.0, ess_predictions=900.0, n_chains=4)
    grid = metric_grid(read_all(store.folder, "classifiers"), "adult9", "accuracy", paper=True)
    rows = dict(zip([row[0] for row in grid.rows], grid.rows, strict=True))
    assert grid.columns == ("method", "K=5")
    assert rows["LR"][1] == "84.95"
    assert rows["BMEM-G"][1] == "80.00 (R-hat 1.20) (ESS 20) [83.4]"
    assert rows["BMEM-V"][1] == "80.00"
    assert "| LR | 84.95 |" in grid.markdown()


def test_replicates_are_averaged_with_their_spread(store):
    for seed, accuracy in enumerate((80.0, 82.0)):
        store("adult9", "BMEM-G", losses(), 5, seed, accuracy=accuracy)
    (found,) = by_key(read_all(store.folder, "classifiers")).values()
    assert mean_metric(found, "accuracy") == (81.0, 1.0)
    grid = metric_grid(read_all(store.folder, "classifiers"), "adult9", "accuracy")
    assert grid.rows == [("BMEM-G", "81.00 ± 1.00")]


def test_diagnostics_show_the_worst(store):
    store("adult9", "BMEM-G", losses(), 5, 0, n_used=2.0, rhat=1.5, ess_bulk=50.0)
    store("adult9", "BMEM-G", losses(), 5, 1, n_used=4.0, rhat=1.1, ess_bulk=20.0)
    (row,) = diagnostic_grid(read_all(store.folder, "classifiers"), "adult9").rows
    assert row[:6] == ("BMEM-G", "5", "2", "3.0", "1.50", "20")
    assert row[-1] == "scale 0.3"


def test_subcategories_are_pooled_over_samples(store):
    store("rcv1_subsets.s1", "BMEM-G", losses(), 5, groups=grouped(50.0, 10))
    store("rcv1_subsets.s2", "BMEM-G", losses(), 5, groups=grouped(80.0, 20))
    records = list(read_all(store.folder, "classifiers"))
    assert pooled_group(records, ["C16"]) == (70.0, 30)
    assert nine_grid(records).rows == [("test documents", "", "30"), ("BMEM-G", "5", "70.0")]
    (line,) = verdicts.rare_categories(records)
    assert "BMEM-G 70.0 ± 8.4 % of 30" in line


def test_verdicts_follow_the_numbers(store):
    rng = np.random.default_rng(0)
    base = losses()
    store("adult9", "LR", base + 0.02 + rng.normal(0, 0.01, 400), accuracy=84.9)
    store("adult9", "BMEM-V", base, 5, accuracy=85.1)
    store("adult9", "BMEM-MABN-I", base + 0.01 + rng.normal(0, 0.01, 400), 5, accuracy=85.0)
    store("adult9", "BMEM-G", base + rng.normal(0, 0.3, 400), 30, accuracy=85.0)
    records = list(read_all(store.folder, "classifiers"))
    best, against = verdicts.best_and_baselines(records, "adult9")
    assert "BMEM-V, K=5" in best or "BMEM-G, K=30" in best
    assert "logistic regression" in against
    assert against.endswith("better.") or "no clear" in against
    (alone,) = verdicts.diversity_alone(records, "adult9")
    assert alone.startswith("BMEM-MABN-I less BMEM-V")
    assert "(worse)" in alone
    (few,) = verdicts.few_against_many(records, "adult9")
    assert few.startswith("BMEM-MABN-I, K=5 less BMEM-G, K=30")
    (paper,) = verdicts.against_the_paper(records, "adult9")
    assert "88.9 %, is not reached" in paper
    assert "85.10 %" in paper


def test_the_study_of_little_data_says_which_arm_is_better(store):
    for seed in range(4):
        shift = 0.001 * seed  # small beside the differences of 0.05 and 0.02
        common = {"n_train": 200, "suite": "small-data"}
        store("adult9", "vmf", losses(seed=seed), 5, seed, **common)
        store("adult9", "gaussian-1", losses(0.05 + shift, seed=seed), 5, seed, **common)
        store("adult9", "mutual-angular-0.2", losses(-0.02 - shift, seed=seed), 5, seed, **common)
    records = list(read_all(store.folder, "small-data"))
    (row,) = small_data_grid(records, "adult9", None).rows
    assert row[0] == "N=200, K=5"
    assert row[1] == "4"
    assert "(worse)" in row[6]
    assert "(better)" in row[7]
    lines = verdicts.small_data(records, "adult9")
    assert "gaussian-1 against vmf: worse at N=200, K=5." in lines
    assert "mutual-angular-0.2 against vmf: better at N=200, K=5." in lines


def test_the_page_is_made_of_records_alone(store, tmp_path):
    store("adult9", "LR", losses())
    store("adult9", "BMEM-G", losses(), 5)
    store("building", "BMEM-G", losses(), 5)
    store("adult9", "vmf", losses(), 5, 0, 200, "small-data")
    page = tmp_path / "page.md"
    main([str(store.folder), str(page)])
    text = page.read_text()
    assert text == render(store.folder)
    assert "Stand-in for SUN-Building" in text
    assert "Ours are other images" in text
    assert "2 cores of a processor" in text
    assert "## Where diversity helps" in text


def test_printed_numbers_stand_beside_the_right_cells():
    assert printed("adult9", "BMEM-MABN-I", 5) == 87.1
    assert printed("adult9", "BMEM-MABN-I", 7) is None
    assert printed("rcv1_subsets", "BMEM-G", 5) is None


def test_a_difference_needs_two_standard_errors():
    assert Difference(-0.019, 0.01).verdict == "no clear difference"
    assert Difference(-0.021, 0.01).verdict == "better"
    assert Difference(0.021, 0.01).verdict == "worse"
    assert Difference(0.0, float("nan")).verdict == "no clear difference"
