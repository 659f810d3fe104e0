"""Verdicts on claims follow the numbers of the records."""

import numpy as np
import pytest

from wideangle_lab.paper.claims import FAILS, HOLDS, OPEN, Claim, Comparison, summary
from wideangle_lab.paper.classifier_claims import ablations, classifier_claims
from wideangle_lab.paper.compare import Effect
from wideangle_lab.paper.efforts import QUICK
from wideangle_lab.paper.feature_claims import feature_ablations, feature_claims
from wideangle_lab.paper.feature_methods import PROTOCOL, feature_cells
from wideangle_lab.paper.records import Outcome, keep, read_all

GAIN, LOSS = Effect(1.0, 0.5, 1.5, 2), Effect(-1.0, -1.5, -0.5, 2)
UNCLEAR, SINGLE = Effect(0.1, -0.5, 0.7, 2), Effect(1.0, np.nan, np.nan, 1)


def claim(*effects, **more):
    return Claim("title", "Table 0", tuple(Comparison("x", one, **more) for one in effects))


@pytest.mark.parametrize(
    ("effects", "verdict"),
    [
        ((GAIN, GAIN), HOLDS),
        ((GAIN, UNCLEAR), OPEN),
        ((GAIN, LOSS), OPEN),
        ((LOSS, UNCLEAR), FAILS),
        ((LOSS, UNCLEAR, UNCLEAR), OPEN),
        ((LOSS, LOSS, GAIN), FAILS),
        ((SINGLE,), OPEN),
        ((), OPEN),
        ((GAIN, GAIN, GAIN, None), HOLDS),
        ((GAIN, GAIN, None), OPEN),  # less than three quarters were run
        ((LOSS, None), FAILS),
        ((LOSS, None, None), OPEN),
        ((GAIN, None, None), OPEN),  # less than half was run
    ],
)
def test_a_claim_needs_all_and_falls_with_half(effects, verdict):
    assert claim(*effects).verdict == verdict


def test_a_gain_far_below_the_printed_one_speaks_against_it():
    assert Comparison("x", UNCLEAR, printed=2.0).side == "against"
    assert Comparison("x", UNCLEAR, printed=1.0).side == "open"
    assert Comparison("x", GAIN, printed=100.0).side == "for"
    assert Comparison("x", UNCLEAR, margin=-0.6).side == "for"
    assert Comparison("x", SINGLE, exact=True).side == "for"
    assert Comparison("x", UNCLEAR, control=True).side == "control"
    assert claim(LOSS, GAIN)._replace(
        comparisons=(Comparison("x", GAIN), Comparison("x", LOSS, control=True))
    ).verdict == HOLDS  # fmt: skip


def test_reasons_are_counted():
    why = claim(GAIN, LOSS, SINGLE, None).why
    assert why.startswith("comparisons: 1 for, 1 against, 1 open")
    assert "of one fit, without an interval: 1" in why
    assert why.endswith("not run: 1")
    (row,) = summary([claim(GAIN, LOSS, unit=" points")])
    assert row[:3] == ("1. title", OPEN, "-1.00 points to +1.00 points")


def losses(n_wrong, n=1000):
    return np.where(np.arange(n) < n_wrong, 1.0, 0.1)


def of(claims, start):
    (found,) = (one for one in claims if one.title.startswith(start))
    return found


def test_claims_about_classifiers_read_the_right_rows(store):
    for k in (5, 30):
        store("adult9", "MEM-L2", losses(200), k)
        store("adult9", "MEM-MAR", losses(150), k)
        store("adult9", "BMEM-G", losses(150), k)
        store("adult9", "BMEM-MABN-I", losses(100), k, fit=100.0)
        store("adult9", "BMEM-V", losses(100), k)
        store("adult9", "BMEM-PR", losses(180), k, fit=20.0)
    store("adult9", "RF", losses(50))
    records = list(read_all(store.folder / "cells", "classifiers"))
    claims = classifier_claims(records)
    lines = {c.what: c for one in claims for c in one.comparisons if c.effect}
    gain = lines["adult9: BMEM-MABN-I minus BMEM-G, K = 5, 30"]
    assert gain.effect.mean == pytest.approx(5.0)
    assert (gain.side, round(gain.printed, 2)) == ("for", 3.85)
    assert lines["adult9: BMEM-PR minus MEM-MAR, K = 5, 30"].side == "against"
    assert lines["adult9: K = 30 minus random forest"].effect.mean == pytest.approx(-5.0)
    assert lines["adult9: K = 30 minus random forest"].side == "against"
    faster = lines["adult9: BMEM-MABN-I over BMEM-PR, K = 30"]
    assert (faster.effect.mean, faster.side) == (4.0, "for")
    few = lines["adult9: BMEM-MABN-I, K = 5, minus BMEM-G, K = 30 (paper +2.2)"]
    assert few.effect.mean == pytest.approx(5.0)
    angles = {c.what: c for one in ablations(records) for c in one.comparisons if c.effect}
    assert angles["adult9: BMEM-MABN-I minus BMEM-V, K = 5, 30"].effect.mean == 0.0


def test_rare_categories_are_weighed_against_frequent_ones(store):
    def groups(rare, frequent):
        one = {"log_loss": 0.5, "n_test": 10}
        return {"C16": one | {"accuracy": rare}, "C18": one | {"accuracy": frequent}}

    for sample, more in zip(("s1", "s2", "s3"), (9.0, 10.0, 11.0), strict=True):
        data = f"rcv1_subsets.{sample}"
        store(data, "BMEM-G", losses(9), 10, groups=groups(50.0, 90.0))
        store(data, "BMEM-MABN-I", losses(9), 10, groups=groups(50.0 + more, 89.0))
    records = list(read_all(store.folder / "cells", "classifiers"))
    rare = of(classifier_claims(records), "Rare categories")
    assert rare.comparisons[0].effect.mean == pytest.approx(11.0)
    assert rare.verdict == HOLDS


@pytest.fixture
def add(tmp_path, where):
    """Write a record of latent features with a known loss of every held-out row."""

    def write(method, shift, data="eeg", seed=0, n_raw=20.0, **metrics):
        numbers = {"l2_error": 2.0 + shift, "log_likelihood": -shift, "n_train": 7, "n_test": 4,
                   "hidden_rms": 0.5, "hidden_log_density": -1.0}  # fmt: skip
        found = {"n_components": 10, "n_raw": n_raw, "rhat": 1.5, "n_disputed": 1}
        rows = shift + np.random.default_rng(0).normal(size=50)
        outcome = Outcome(numbers | metrics, rows, {"fit": 2.0}, diagnostics=found)
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
        for method, share, overlap in (("IMA-LFM", 40.0, 5.0), ("IBP-LFM", 10.0, 9.0)):
            found = {str(c): {"precision": share + seed * 0.1 * (c + 1)} for c in range(9)}
            add(method, 0.0, "reuters", seed, precision=found, nmi=share, word_overlap=overlap,
                clustering_accuracy=share + jitter * (method == "IMA-LFM"))  # fmt: skip
    records = list(read_all(add.folder, "features"))
    claims = feature_claims(records)
    error = of(claims, "IMA-LFM reconstructs").comparisons
    known = {c.what: c for c in error if c.effect}
    assert known["eeg: minus IBP-LFM"].effect.mean == pytest.approx(24.5)  # per cent of 2
    assert known["eeg: minus IBP-LFM"].side == "for"
    likelihood = {c.what: c for c in of(claims, "IMA-LFM gives held-out").comparisons if c.effect}
    assert likelihood["eeg: minus IBP-LFM"].effect.mean == pytest.approx(0.49, abs=1e-3)
    fewer = {c.what: c for c in of(claims, "IMA-LFM needs").comparisons if c.effect}
    assert fewer["eeg: minus IBP-LFM"].effect.mean == pytest.approx(4.99)
    assert fewer["eeg: minus IBP-LFM"].printed == 2
    retrieval = of(claims, "Rare categories").comparisons[0]
    assert retrieval.effect.mean == pytest.approx(30.0)
    words = {c.what: c for c in of(claims, "The words").comparisons if c.effect}
    assert words["reuters: less than IBP-LFM"].effect.mean == pytest.approx(4.0)
    clusters = {c.what: c for c in of(claims, "IMA-LFM gives better").comparisons if c.effect}
    assert clusters["reuters: accuracy minus IBP-LFM"].effect.mean == pytest.approx(30.01)
    angles = feature_ablations(records)
    alone = of(angles, "The angles alone: IMA-LFM against kappa = 0, held-out").comparisons[0]
    assert alone.what == "eeg"
    assert alone.effect.mean == pytest.approx(-0.01, abs=1e-3)
