"""Claims about the mixture of experts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from wideangle_lab.paper import printed
from wideangle_lab.paper.baselines import BASELINES
from wideangle_lab.paper.baselines import NAMES as BASELINE_NAMES
from wideangle_lab.paper.claims import Claim, Comparison
from wideangle_lab.paper.compare import (
    Effect,
    Key,
    by_key,
    gain_of_fits,
    gain_of_rows,
    largest,
    pairs,
    pooled_group,
)
from wideangle_lab.paper.records import Record
from wideangle_lab.paper.suites import TWO

POINTS = 100.0
NO_WORSE = -0.5
"""Points of accuracy that count as comparable."""
RARE, FREQUENT = ("C23", "C32", "C16"), ("C18", "C17")
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
    ("BMEM-MABN-I", "MEM-MAR"),
    ("BMEM-MABN-II", "MEM-MAR"),
    ("BMEM-PR", "MEM-MAR"),
)
SAMPLED: tuple[Pair, ...] = (
    ("BMEM-MABN-I", "BMEM-MABN-II"),
    ("BMEM-MABN-I", "BMEM-PR"),
    ("BMEM-G", "BMEM-G-VI"),
)
PRINTED_AS = {"BMEM-G-VI": "BMEM-G", "BMEM-V": "BMEM-G", "BMEM-V-VI": "BMEM-G"}
"""The paper has one plain Bayesian row; ours has one for each inference."""


def classifier_claims(records: Sequence[Record]) -> list[Claim]:
    """All claims about classifiers."""
    cells = by_key(records)
    return [
        Claim(
            "Diversified mixtures predict better than plain ones",
            "Tables 1 and 2",
            tuple(_over_k(cells, DIVERSE)),
            "Each diverse row against the plain one with the same inference, mean over K.",
        ),
        Claim(
            "Bayesian learning predicts better than point estimates",
            "Tables 1 and 2",
            tuple(_over_k(cells, BAYES)),
        ),
        Claim(
            "Sampling predicts better than variational inference",
            "Tables 1 and 2",
            tuple(_over_k(cells, SAMPLED)),
        ),
        Claim(
            "Few diverse experts do as well as many plain ones",
            "Tables 1 and 2",
            tuple(_few(cells)),
            f"Five diverse experts against thirty plain ones; comparable means at most "
            f"{-NO_WORSE} points worse. Five plain experts are shown as a control: if they do as "
            "well, diversity is not the reason.",
        ),
        Claim(
            "Rare categories gain most",
            "Table 3",
            tuple(_rare(cells)),
            f"Gain of BMEM-MABN-I over BMEM-G in accuracy on {', '.join(RARE)}, minus that on "
            f"{', '.join(FREQUENT)}; the interval is over the four samples of RCV1.",
        ),
        Claim(
            "Better than other classifiers",
            "Table 4",
            tuple(_against(cells)),
            "BMEM-MABN-I, the paper's best row. Gradient boosting is not in the paper.",
        ),
        Claim(
            "Variational inference is faster than sampling, including sampling with a DPP",
            "Table 5",
            tuple(_faster(cells)),
            "Ratio of seconds of one fit, minus one. Table 5 gives the device of each fit. Most "
            "fits shared their device with others, so small ratios are not reliable.",
        ),
    ]


def ablations(records: Sequence[Record]) -> list[Claim]:
    """Gains in accuracy and log-loss if only the angles differ."""
    cells = by_key(records)
    return [
        Claim(
            "The angles alone: accuracy against the same prior with kappa = 0",
            "ablation",
            tuple(_over_k(cells, ANGLES)),
        ),
        Claim(
            "The angles alone: log-loss against the same prior with kappa = 0",
            "ablation",
            tuple(_over_k(cells, ANGLES, in_nats=True)),
        ),
        Claim(
            "Gamma lengths alone: log-loss of kappa = 0 against the Gaussian prior",
            "ablation",
            tuple(_over_k(cells, LENGTHS, in_nats=True)),
        ),
    ]


def _over_k(
    cells: dict[Key, list[Record]],
    wanted: Iterable[Pair],
    data: Sequence[str] = TWO,
    *,
    in_nats: bool = False,
) -> Iterable[Comparison]:
    for name in data:
        for first, second in wanted:
            sizes = sorted(
                k for at, method, k in cells
                if (at, method) == (name, first) and (name, second, k) in cells
            )  # fmt: skip
            matched = [pairs(cells[name, first, k], cells[name, second, k]) for k in sizes]
            label = f"{name}: {first} minus {second}"
            label += f", K = {', '.join(map(str, sizes))}" if sizes else ""
            if in_nats:
                effect = gain_of_rows(matched, Record.losses)
                yield Comparison(label, effect, "+.4f", " nats")
            else:
                effect = gain_of_rows(matched, Record.errors, POINTS)
                beside = _printed(name, first, second, sizes)
                yield Comparison(label, effect, unit=" points", printed=beside)


def _printed(data: str, first: str, second: str, sizes: Sequence[int]) -> float | None:
    """The gain in the paper, averaged over the same K."""
    rows = printed.ACCURACY[data]
    one, other = rows.get(first), rows.get(PRINTED_AS.get(second, second))
    places = [printed.EXPERTS.index(k) for k in sizes if k in printed.EXPERTS]
    if one is None or other is None or first in PRINTED_AS or not places:
        return None
    return float(np.mean(np.subtract(one, other)[places]))


def _few(cells: dict[Key, list[Record]]) -> Iterable[Comparison]:
    for name in TWO:
        for first, second in (*DIVERSE[1:], ("BMEM-G", "BMEM-G"), ("BMEM-G-VI", "BMEM-G-VI")):
            many = largest(cells, name, second)
            both = [cells.get((name, first, 5), []), cells.get((name, second, many), [])]
            if many <= 5:  # noqa: PLR2004
                both = [[], []]
            effect = gain_of_rows([pairs(*both)], Record.errors, POINTS)
            row = printed.ACCURACY[name]
            known = first in row and second in (*row, *PRINTED_AS)
            beside = row[first][0] - row[PRINTED_AS.get(second, second)][3] if known else None
            label = f"{name}: {first}, K = 5, minus {second}, K = {many or 30}"
            # No printed gain to reach here: doing as well is enough.
            one = Comparison(
                label, effect, unit=" points", margin=NO_WORSE, control=first == second
            )
            yield one if beside is None else one._replace(what=f"{label} (paper {beside:+.1f})")


def _rare(cells: dict[Key, list[Record]]) -> Iterable[Comparison]:
    def gap(record: Record) -> float | None:
        rare, frequent = (pooled_group([record], part)[0] for part in (RARE, FREQUENT))
        return None if np.isnan(rare) or np.isnan(frequent) else rare - frequent

    rows = printed.NINE_ACCURACY
    gains = np.subtract(rows["BMEM-MABN-I"], rows["BMEM-G"])
    beside = float(np.mean(gains[-3:]) - np.mean(gains[:2]))
    for k in sorted({k for name, _, k in cells if name == "rcv1_subsets" and k}) or [10]:
        for other in ("BMEM-G", "BMEM-V"):
            both = [cells.get(("rcv1_subsets", m, k), []) for m in ("BMEM-MABN-I", other)]
            if not all(both):
                continue
            effect = gain_of_fits(pairs(*both), gap)
            number = beside if other == "BMEM-G" else None
            label = f"rcv1_subsets: BMEM-MABN-I minus {other}, K = {k}"
            yield Comparison(label, effect, "+.1f", " points", number)


def _against(cells: dict[Key, list[Record]]) -> Iterable[Comparison]:
    for place, name in enumerate(TWO):
        k = largest(cells, name, "BMEM-MABN-I")
        ours = cells.get((name, "BMEM-MABN-I", k), [])
        for method in (*(one for one in BASELINES if one != "LR"), "BMEM-DPP"):
            theirs = cells.get((name, method, 0 if method in BASELINES else k), [])
            effect = gain_of_rows([pairs(ours, theirs)], Record.errors, POINTS)
            known = printed.AGAINST.get(method)
            beside = printed.AGAINST["BMEM-MABN-I"][place] - known[place] if known else None
            label = f"{name}: K = {k or 30} minus {BASELINE_NAMES.get(method, method)}"
            yield Comparison(label, effect, unit=" points", printed=beside)


def _faster(cells: dict[Key, list[Record]]) -> Iterable[Comparison]:
    for place, name in enumerate(TWO):
        for fast in ("BMEM-MABN-II", "BMEM-PR"):
            for slow in ("BMEM-MABN-I", "BMEM-DPP"):
                effect, k = None, largest(cells, name, slow)
                found = [cells.get((name, method, k), []) for method in (slow, fast)]
                if found[0] and found[1]:
                    long, short = (
                        np.mean([r.data["seconds"]["fit"] for r in part]) for part in found
                    )
                    effect = Effect(float(long / short - 1), np.nan, np.nan, 1)
                beside = printed.HOURS[slow][place] / printed.HOURS[fast][place] - 1
                label = f"{name}: {slow} over {fast}, K = {k or 30}"
                yield Comparison(label, effect, "+.1f", " times", beside, exact=True)
