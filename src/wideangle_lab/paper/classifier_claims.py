"""Claims about the mixture of experts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from wideangle_lab.datasets import MANIFEST
from wideangle_lab.paper import printed
from wideangle_lab.paper.baselines import NAMES as BASELINE_NAMES
from wideangle_lab.paper.claims import AnyClaim, Claim, Comparison, TimeClaim
from wideangle_lab.paper.compare import (
    Gains,
    Key,
    Number,
    by_key,
    converged,
    gains,
    pooled_group,
    seconds_of,
)
from wideangle_lab.paper.records import Record
from wideangle_lab.paper.suites import TWO

K, FEW, MANY = 10, 5, 30
ACCURACY = 0.5
"""Points of accuracy that matter."""
RARE, FREQUENT = ("C23", "C32", "C16"), ("C18", "C17")
SAMPLES = 4
"""Samples of RCV1."""
Pair = tuple[str, str]

DIVERSE: tuple[Pair, ...] = (
    ("MEM-MAR", "MEM-L2"),
    ("BMEM-MABN-I", "BMEM-G"),
    ("BMEM-MABN-II", "BMEM-G-VI"),
    ("BMEM-PR", "BMEM-G-VI"),
)
ANGLES: tuple[Pair, ...] = (
    ("MEM-MAR", "MEM-L2"),
    ("BMEM-MABN-I", "BMEM-V"),
    ("BMEM-MABN-II", "BMEM-V-VI"),
    ("BMEM-PR", "BMEM-V-VI"),
)
LENGTHS: tuple[Pair, ...] = (("BMEM-V", "BMEM-G"), ("BMEM-V-VI", "BMEM-G-VI"))
BAYES: tuple[Pair, ...] = (
    ("BMEM-G", "MEM-L2"),
    ("BMEM-G-VI", "MEM-L2"),
    ("BMEM-MABN-I", "MEM-MAR"),
    ("BMEM-MABN-II", "MEM-MAR"),
    ("BMEM-PR", "MEM-MAR"),
)
SAMPLED: tuple[Pair, ...] = (
    ("BMEM-MABN-I", "BMEM-MABN-II"),
    ("BMEM-MABN-I", "BMEM-PR"),
    ("BMEM-G", "BMEM-G-VI"),
)
OTHERS = ("KSVM", "RF", "MLP", "ISVM", "BMEM-DPP")
FAST, SLOW = ("BMEM-MABN-II", "BMEM-PR"), ("BMEM-MABN-I", "BMEM-G", "BMEM-DPP")
PRINTED_AS = {"BMEM-G-VI": "BMEM-G", "BMEM-V": "BMEM-G", "BMEM-V-VI": "BMEM-G"}
"""The paper has one plain Bayesian row; ours has one for each inference."""


def classifier_claims(records: Sequence[Record]) -> list[AnyClaim]:
    """All claims about classifiers."""
    cells = by_key(records)
    return [
        Claim(
            "Diversified mixtures predict better than plain ones",
            "Tables 1 and 2",
            tuple(_accuracy(cells, DIVERSE)),
            ACCURACY,
        ),
        Claim(
            "Bayesian learning predicts better than point estimates",
            "Tables 1 and 2",
            tuple(_accuracy(cells, BAYES)),
            ACCURACY,
        ),
        Claim(
            "Sampling predicts better than variational inference",
            "Tables 1 and 2",
            tuple(_accuracy(cells, SAMPLED)),
            ACCURACY,
        ),
        Claim(
            "Few diverse experts do as well as many plain ones",
            "Tables 1 and 2",
            tuple(_accuracy(cells, DIVERSE, FEW, MANY)),
            -ACCURACY,
            margin=-ACCURACY,
            remark=f"{FEW} diverse experts against {MANY} plain ones.",
        ),
        Claim(
            "Rare categories gain most",
            "Table 3",
            tuple(_rare(cells)),
            5.0,
            "+.1f",
            remark=f"Gain in accuracy on {', '.join(RARE)} minus that on {', '.join(FREQUENT)}, "
            "pooled over the samples of RCV1.",
        ),
        Claim(
            "Better than other classifiers",
            "Table 4",
            tuple(_against(cells)),
            ACCURACY,
            remark="The numbers of the paper are at K = 30.",
        ),
        TimeClaim(
            "Variational inference is faster than sampling, including sampling with a DPP",
            "Table 5",
            tuple(_faster(cells)),
            "One fit at K = 10, compilation too: seconds of an accelerator for sampling, processor "
            "seconds for variational inference. In the paper at K = 30.",
        ),
    ]


def ablations(records: Sequence[Record]) -> list[Claim]:
    """What the angles and the lengths do by themselves, in log-loss."""
    cells = by_key(records)
    return [
        Claim(title, "log-loss", tuple(_pairs(cells, wanted, _loss, -1.0)), 0.0, "+.4f", " nats")
        for title, wanted in (
            ("Angles of mixtures: the prior or regulariser with them and without", ANGLES),
            ("Lengths of mixtures: learned lengths and a Gaussian prior", LENGTHS),
        )
    ]


def _loss(record: Record) -> float:
    return record.metrics["log_loss"]


def _correct(record: Record) -> float:
    return record.metrics["accuracy"]


def _pairs(
    cells: dict[Key, list[Record]],
    wanted: Iterable[Pair],
    number: Number,
    sign: float = 1.0,
    few: int = K,
    many: int = K,
) -> Iterable[Comparison]:
    for data in TWO:
        for first, second in wanted:
            both = (cells.get((data, first, few), []), cells.get((data, second, many), []))
            yield Comparison(
                MANIFEST[data].title, f"{first} and {second}", gains(*both, number, sign)
            )


def _accuracy(
    cells: dict[Key, list[Record]], wanted: Sequence[Pair], few: int = K, many: int = K
) -> Iterable[Comparison]:
    names_of = {MANIFEST[data].title: data for data in TWO}
    for one in _pairs(cells, wanted, _correct, 1.0, few, many):
        first, _, second = one.what.partition(" and ")
        names = [PRINTED_AS.get(name, name) for name in (first, second)]
        left, right = (
            printed.accuracy(names_of[one.data], name, size)
            for name, size in zip(names, (few, many), strict=True)
        )
        yield one._replace(printed=left - right if left and right else None)


def _rare(cells: dict[Key, list[Record]]) -> Iterable[Comparison]:
    rows = printed.NINE_ACCURACY
    gap = np.subtract(rows["BMEM-MABN-I"], rows["BMEM-G"])
    beside = float(np.mean(gap[-3:]) - np.mean(gap[:2]))
    for first, second in (("BMEM-MABN-I", "BMEM-G"), ("BMEM-MABN-II", "BMEM-V-VI")):
        both = [cells.get(("rcv1_subsets", method, K), []) for method in (first, second)]
        known = beside if second == "BMEM-G" else None
        yield Comparison("RCV1", f"{first} and {second}", _pooled(*both), known)


def _pooled(first: Sequence[Record], second: Sequence[Record]) -> Gains:
    """By split, over all samples of RCV1; a split without all samples is left out."""
    found, counted, shared = {}, set(), 0.0
    for split in sorted({record.cell.seed for record in first}):
        both = [[r for r in part if r.cell.seed == split] for part in (first, second)]
        if any(len(part) < SAMPLES for part in both):
            continue
        gaps = [pooled_group(part, RARE)[0] - pooled_group(part, FREQUENT)[0] for part in both]
        found[split] = gaps[0] - gaps[1]
        shared = first[0].metrics["n_test"] / first[0].metrics["n_train"]
        if all(converged(record) for part in both for record in part):
            counted.add(split)
    return Gains(found, frozenset(counted), shared)


def _against(cells: dict[Key, list[Record]]) -> Iterable[Comparison]:
    for place, data in enumerate(TWO):
        for method in FAST:
            ours = cells.get((data, method, K), [])
            for other in OTHERS:
                size = 0 if other in BASELINE_NAMES else K
                theirs = cells.get((data, other, size), [])
                beside = printed.AGAINST[method][place] - printed.AGAINST[other][place]
                label = f"{method} and {BASELINE_NAMES.get(other, other)}"
                yield Comparison(MANIFEST[data].title, label, gains(ours, theirs, _correct), beside)


def _faster(cells: dict[Key, list[Record]]) -> Iterable[tuple[str, float | None, float]]:
    for place, data in enumerate(TWO):
        for fast in FAST:
            for slow in SLOW:
                found = [cells.get((data, method, K), []) for method in (slow, fast)]
                factor = seconds_of(found[0]) / seconds_of(found[1]) if all(found) else None
                hours = printed.HOURS.get(slow, printed.HOURS["BMEM-MABN-I"])
                yield (
                    f"{MANIFEST[data].title}: {slow} over {fast}",
                    factor,
                    hours[place] / printed.HOURS[fast][place],
                )
