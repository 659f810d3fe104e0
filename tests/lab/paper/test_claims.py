"""Verdicts on claims follow the numbers of the records, by the rules of docs/reproduction.md."""

import numpy as np
import pytest

from wideangle_lab.paper.claims import FAILS, HOLDS, OPEN, Claim, Comparison, TimeClaim, summary
from wideangle_lab.paper.classifier_claims import ablations, classifier_claims
from wideangle_lab.paper.compare import Gains, converged, seconds_of
from wideangle_lab.paper.efforts import QUICK
from wideangle_lab.paper.feature_claims import feature_ablations, feature_claims
from wideangle_lab.paper.feature_methods import PROTOCOL, feature_cells
from wideangle_lab.paper.records import Outcome, Record, keep, read_all

NOISE = np.array([-0.1, 0.05, 0.0, 0.1, -0.05])


def made(mean, spread=1.0, n=5, good=None, shared=0.4):
    """Gains of ``n`` splits, of which ``good`` converged."""
    by_split = {split: mean + spread * NOISE[split] for split in range(n)}
    return Gains(by_split, frozenset(range(n if good is None else good)), shared)


def claim(*parts, matters=0.5, margin=0.0, printed=None):
    comparisons = [
        Comparison(f"data{place}", "a and b", part, printed) for place, part in enumerate(parts)
    ]
    return Claim("title", "Table 0", tuple(comparisons), matters, margin=margin)


NONE = Gains({})


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        ((made(2.0), made(1.5)), HOLDS),
        ((made(0.0), made(0.1)), FAILS),
        ((made(-1.0), made(-2.0)), FAILS),
        ((made(2.0, 30.0), made(0.0, 30.0)), OPEN),  # too noisy
        ((made(0.45), made(0.45)), OPEN),  # about the smallest effect that matters
        ((made(2.0), NONE), HOLDS),  # half of the comparisons count
        ((made(2.0), NONE, NONE), OPEN),
        ((made(0.0), NONE, NONE), OPEN),
        ((made(2.0, good=2), made(2.0, good=2)), OPEN),  # two converged splits are too few
        ((made(2.0, good=3), made(2.0, good=3)), HOLDS),
        ((made(2.0, n=1), made(2.0, n=1)), OPEN),
        ((), OPEN),
    ],
)
def test_a_verdict_follows_the_rules(parts, verdict):
    assert claim(*parts).verdict.startswith(verdict)


def test_what_is_undecided_says_how_many_splits_and_what_is_excluded():
    noisy = claim(made(2.0, 30.0), made(0.0, 30.0))
    bound = noisy.effect.interval[1]
    assert noisy.verdict == f"{OPEN} with 5 splits; an effect above {bound:+.2f} points is excluded"
    single = claim(made(2.0, n=1))
    assert single.verdict == f"{OPEN} with 1 split; no effect is excluded"
    assert single.effect is None
    stuck = claim(made(2.0, n=3, good=0))
    assert "3 splits, whose chains did not converge; an effect of these fits above" in stuck.verdict
    few = claim(made(2.0, n=2))
    assert "with 2 splits; an effect of these fits above" in few.verdict
    assert claim(NONE).verdict == f"{OPEN} with 0 splits; no effect is excluded"


def test_doing_as_well_is_judged_by_the_loss_that_is_allowed():
    allowed = {"matters": -0.5, "margin": -0.5}
    assert claim(made(0.0), **allowed).verdict == HOLDS
    assert claim(made(-1.0), **allowed).verdict == FAILS
    assert claim(made(-0.5), **allowed).verdict.startswith(OPEN)


def test_many_comparisons_need_more_each():
    weak = made(0.3)  # one-sided p-value of about 0.004
    assert set(claim(weak, matters=0.1).sides.values()) == {"for"}
    many = claim(weak, *[made(0.0, 20.0)] * 9, matters=0.1)
    assert set(many.sides.values()) == {"open"}


def test_a_clear_gain_that_is_too_small_is_against():
    assert set(claim(made(0.2, 0.1)).sides.values()) == {"against"}
    assert claim(made(0.2, 0.1)).verdict == FAILS


def test_the_effect_is_the_mean_over_data_sets_of_the_mean_within_them():
    parts = [("one", 1.0), ("one", 3.0), ("two", 8.0)]
    comparisons = tuple(Comparison(data, f"{x}", made(x), 2 * x) for data, x in parts)
    found = Claim("title", "Table 0", comparisons, 0.5)
    assert found.effect.mean == pytest.approx(5.0)
    assert found.printed == pytest.approx(10.0)
    (row,) = summary([found])
    assert row[:2] == ("1. title", HOLDS)
    assert row[2].startswith("+5.00 [")
    assert row[3] == "+10.00 points"


def test_only_splits_that_converged_count():
    wild = Gains({0: 2.0, 1: 2.1, 2: 1.9, 3: -50.0}, frozenset({0, 1, 2}), 0.4)
    found = claim(wild)
    assert found.effect.mean == pytest.approx(2.0)
    ((_, gain, _, splits, _, side),) = found.lines()
    assert gain.startswith("+2.00 [")
    assert (splits, side) == ("3 of 4", "for")


def test_times_need_no_interval():
    def times(*factors):
        return TimeClaim("t", "Table 5", tuple(("x", one, 2.0) for one in factors))

    assert times(10.0, 3.0).verdict == HOLDS
    assert times(1.2, 1.1).verdict == FAILS
    assert times(10.0, None, None).verdict.startswith(OPEN)
    assert times(10.0, 2.5).line(7)[2:] == ("5.0 times, no interval", "2.0 times")


def of(claims, start):
    (found,) = (one for one in claims if one.title.startswith(start))
    return found


def test_claims_about_classifiers_read_the_right_rows(store):
    for seed, more in enumerate((0.0, 0.1, -0.1)):
        for method, accuracy in {
            "MEM-L2": 80.0, "MEM-MAR": 85.0 + more, "BMEM-G-VI": 85.0, "BMEM-MABN-II": 90.0 + more,
            "BMEM-PR": 82.0 + more,
        }.items():  # fmt: skip
            store("adult9", method, k=10, seed=seed, accuracy=accuracy, fit=20.0)
            store("adult9", method, k=5, seed=seed, accuracy=accuracy - 1)
        store("adult9", "MEM-L2", k=30, seed=seed, accuracy=84.2 + more)
        store("adult9", "RF", seed=seed, accuracy=95.0)
    store("adult9", "BMEM-G", k=10, accuracy=85.0, fit=100.0, rhat_predictions=1.0)
    records = list(read_all(store.folder / "cells", "classifiers"))
    claims = classifier_claims(records)
    lines = {line[0]: line for one in claims for line in one.lines()}
    gain = of(claims, "Diversified").comparisons[2]
    assert gain.what == "BMEM-MABN-II and BMEM-G-VI"
    assert gain.gains.by_split == pytest.approx({0: 5.0, 1: 5.1, 2: 4.9})
    assert gain.printed == pytest.approx(87.8 - 84.2)
    assert gain.gains.shared == pytest.approx(3 / 7)
    assert of(claims, "Diversified").sides["Adult-9: BMEM-PR and BMEM-G-VI"] == "against"
    assert lines["Adult-9: BMEM-MABN-II and random forest"][1].startswith("-5.00")
    assert lines["Adult-9: BMEM-G over BMEM-PR"][1] == "5.0"
    assert lines["Adult-9: BMEM-G and MEM-L2"][3:] == ("1", "", "not counted")
    few = of(claims, "Few diverse").comparisons[0]
    assert few.gains.by_split == pytest.approx({0: -0.2, 1: -0.2, 2: -0.2})
    assert few.printed == pytest.approx(85.3 - 84.7)
    angles = of(ablations(records), "Angles of mixtures").comparisons[0]
    assert angles.gains.by_split == {0: 0.0, 1: 0.0, 2: 0.0}


def test_rare_categories_are_weighed_against_frequent_ones_in_all_samples(store):
    def groups(rare, frequent):
        one = {"log_loss": 0.5, "n_test": 10}
        return {"C16": one | {"accuracy": rare}, "C18": one | {"accuracy": frequent}}

    for seed in range(3):
        for sample in ("s1", "s2", "s3", "s5")[: 4 if seed < 2 else 3]:
            data = f"rcv1_subsets.{sample}"
            store(data, "BMEM-V-VI", k=10, seed=seed, groups=groups(50.0, 90.0))
            more = 10.0 + seed if sample == "s1" else 10.0
            store(data, "BMEM-MABN-II", k=10, seed=seed, groups=groups(50.0 + more, 89.0))
    records = list(read_all(store.folder / "cells", "classifiers"))
    rare = of(classifier_claims(records), "Rare categories").comparisons[1]
    assert rare.gains.by_split == pytest.approx({0: 11.0, 1: 11.25})


def test_a_fit_on_a_processor_has_the_seconds_of_its_cores(store):
    first = store("adult9", "BMEM-PR", k=10, fit=90.0)
    later = store("adult9", "BMEM-PR", k=10, seed=1, fit=50.0)
    assert seconds_of([first, later]) == 50.0
    shared = Record(later.cell, {**later.data, "cpu_seconds": 20.0}, later.path)
    assert seconds_of([first, shared]) == 20.0
    on_gpu = Record(later.cell, {**shared.data, "device": "a GPU"}, later.path)
    assert seconds_of([on_gpu]) == 50.0


def test_chains_count_by_what_is_compared(store):
    assert converged(store("adult9", "LR"))
    assert converged(store("adult9", "BMEM-G", k=10, rhat_predictions=1.05, rhat=1.4))
    assert not converged(store("adult9", "BMEM-G", k=10, rhat_predictions=1.06, rhat=1.4))
    for apart, counts in ((0.25, True), (0.26, False)):
        halves = [85.0, 85.0 + apart]
        kept = store("adult9", "BMEM-G", k=10, rhat_predictions=1.3, accuracy_of_halves=halves)
        assert converged(kept) is counts


@pytest.fixture
def add(tmp_path, where):
    """Write a record of latent features with known numbers."""

    def write(method, shift, data="eeg", seed=0, n_raw=20.0, rhat=1.01, **metrics):
        numbers = {"l2_error": 2.0 + shift, "log_likelihood": -shift, "n_train": 7, "n_test": 4,
                   "hidden_rms": 0.5, "hidden_log_density": -1.0}  # fmt: skip
        found = {"n_components": 10, "n_raw": n_raw, "rhat": rhat, "n_disputed": 1}
        outcome = Outcome(numbers | metrics, {"fit": 2.0}, diagnostics=found)
        (cell,) = feature_cells((data,), (method,), (seed,), QUICK)
        assert cell.settings["process__alpha"] == PROTOCOL["process__alpha"]
        return keep(tmp_path / "cells", cell, outcome, {**where, "device": "cpu"})

    write.folder = tmp_path / "cells"
    return write


def test_claims_about_features_read_the_right_numbers(add):
    for seed in range(3):
        jitter = 0.01 * seed
        add("IMA-LFM", -0.5 + jitter, seed=seed, n_raw=15.0 + jitter)
        add("IBP-LFM", 0.0, seed=seed)
        add("polar", -0.5, seed=seed)
        add("PYP-LFM", 0.0, seed=seed, rhat=1.2)
        for method, share, overlap in (("IMA-LFM", 40.0, 5.0), ("IBP-LFM", 10.0, 9.0)):
            found = {str(c): {"precision": share + seed * 0.1 * (c + 1)} for c in range(9)}
            add(method, 0.0, "reuters", seed, precision=found, nmi=share, word_overlap=overlap,
                clustering_accuracy=share + jitter * (method == "IMA-LFM"))  # fmt: skip
    records = list(read_all(add.folder, "features"))
    claims = feature_claims(records)

    def known(start):
        found = of(claims, start).comparisons
        return {f"{c.data}: {c.what}": c for c in found if c.gains.by_split}

    def mean(comparison):
        return comparison.effect(counted=False).mean

    error = known("IMA-LFM reconstructs")
    assert mean(error["EEG: IMA-LFM and IBP-LFM"]) == pytest.approx(24.5)  # per cent of 2
    assert error["EEG: IMA-LFM and IBP-LFM"].counts
    assert not error["EEG: IMA-LFM and PYP-LFM"].counts
    likelihood = known("IMA-LFM gives held-out")
    assert mean(likelihood["EEG: IMA-LFM and IBP-LFM"]) == pytest.approx(490 / 32)  # columns
    fewer = known("IMA-LFM needs")["EEG: IMA-LFM and IBP-LFM"]
    assert mean(fewer) == pytest.approx(4.99 * 5)
    assert fewer.printed == pytest.approx(100 * 2 / 14)
    assert mean(known("Rare categories")["Reuters: IMA-LFM and IBP-LFM"]) == pytest.approx(30.0)
    assert mean(known("The words")["Reuters: IMA-LFM and IBP-LFM"]) == pytest.approx(4.0)
    clusters = known("IMA-LFM gives better")
    assert mean(clusters["Reuters: accuracy IMA-LFM and IBP-LFM"]) == pytest.approx(30.01)
    angles = of(feature_ablations(records), "Angles of latent").comparisons[0]
    assert (angles.data, angles.what) == ("EEG", "IMA-LFM and polar")
    assert mean(angles) == pytest.approx(-10 / 32)
