"""Claims about the infinite latent feature model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from wideangle_lab.paper import printed
from wideangle_lab.paper.claims import Claim, Comparison
from wideangle_lab.paper.compare import Effect, gain_of_fits, gain_of_rows, pairs
from wideangle_lab.paper.feature_methods import LABELLED, REPULSED, UNLABELLED, UNREPULSED
from wideangle_lab.paper.feature_tables import Number, diagnostic, metric, precision_of, rows_of
from wideangle_lab.paper.records import Record

OURS, BASELINES = "IMA-LFM", ("IBP-LFM", "PYP-LFM")
RARE, FREQUENT = range(2, 9), range(2)
"""Categories of Reuters, grouped as in the paper."""
Found = dict[str, dict[str, list[Record]]]
"""Records by data set and row."""


def feature_claims(records: Sequence[Record]) -> list[Claim]:
    """All claims about latent features."""
    found = {name: rows_of(records, name) for name in (*UNLABELLED, *LABELLED)}
    return [
        Claim(
            "IMA-LFM reconstructs held-out rows with less error than IBP-LFM and PYP-LFM",
            "Table 7",
            tuple(_by_data(found, UNLABELLED, metric("l2_error"), printed.L2_ERROR, relative=True)),
            "In per cent of the error of the other row. This error rewards fitting noise.",
        ),
        Claim(
            "IMA-LFM gives held-out rows a higher likelihood",
            "Table 8",
            tuple(_likelihood(found)),
            "Nats per row with the assignments summed out. The paper does not give the units of "
            "its likelihood, so only the sign is compared. IMA-LFM differs from IBP-LFM in the "
            "angles and in the distribution of lengths; the ablations below separate the two.",
        ),
        Claim(
            "IMA-LFM gives better clusters",
            "Tables 9 and 10",
            (
                *_by_data(found, LABELLED, metric("clustering_accuracy"), printed.CLUSTERING,
                          what="accuracy", sign=1.0, unit=" points"),
                *_by_data(found, LABELLED, metric("nmi"), printed.NMI,
                          what="NMI", sign=1.0, unit=" points"),
            ),
        ),
        Claim(
            "IMA-LFM needs fewer features",
            "Table 11",
            tuple(_by_data(found, (*UNLABELLED, *LABELLED), diagnostic("n_raw"),
                           printed.N_FEATURES, unit=" features", form="+.1f")),
            "Features per draw of the other row minus those of IMA-LFM. All rows of a split start "
            "from the same search, and chains of this length change the number of features "
            "little.",
        ),
        Claim(
            "Rare categories of Reuters are retrieved better",
            "Table 12",
            tuple(_retrieval(found["reuters"])),
            "Mean precision at 100 over categories 3 to 9.",
        ),
        Claim(
            "The words of features are less redundant",
            "Table 13",
            tuple(_words(found)),
            "Share of words that two features have in common: other row minus IMA-LFM.",
        ),
    ]  # fmt: skip


def feature_ablations(records: Sequence[Record]) -> list[Claim]:
    """Each row with repulsion against kappa = 0, and kappa = 0 against the Gaussian prior."""
    found = {name: rows_of(records, name) for name in (*UNLABELLED, *LABELLED)}
    compared = [name for name in found if UNREPULSED in found[name]]
    claims = [
        Claim(
            f"The angles alone: {method} against kappa = 0, held-out likelihood",
            "ablation",
            tuple(_rows(found, name, method, UNREPULSED) for name in compared),
        )
        for method in REPULSED
    ]
    claims += [
        Claim(
            f"The angles alone: {method} against kappa = 0, NMI",
            "ablation",
            tuple(
                Comparison(
                    name,
                    gain_of_fits(_pairs(found, name, method, UNREPULSED), metric("nmi")),
                    unit=" points",
                )
                for name in compared
                if name in LABELLED
            ),
        )
        for method in REPULSED
    ]
    claims.append(
        Claim(
            "Gamma lengths alone: kappa = 0 against IBP-LFM, held-out likelihood",
            "ablation",
            tuple(_rows(found, name, UNREPULSED, "IBP-LFM") for name in compared),
        )
    )
    return claims


def _pairs(found: Found, data: str, first: str, second: str) -> list[tuple[Record, Record]]:
    return pairs(found[data].get(first, []), found[data].get(second, []))


def _rows(found: Found, data: str, first: str, second: str) -> Comparison:
    effect = gain_of_rows([_pairs(found, data, first, second)], Record.losses)
    return Comparison(data, effect, "+.3f", " nats")


def _likelihood(found: Found) -> Iterable[Comparison]:
    for name in UNLABELLED:
        for other in BASELINES:
            one = _rows(found, name, OURS, other)
            yield one._replace(what=f"{name}: minus {other}")


def _by_data(
    found: Found,
    data: Sequence[str],
    number: Number,
    table: printed.Three,
    *,
    what: str = "",
    sign: float = -1.0,
    unit: str = " %",
    form: str = "+.2f",
    relative: bool = False,
) -> Iterable[Comparison]:
    for name in data:
        for other in BASELINES:
            matched = _pairs(found, name, OURS, other)
            effect = gain_of_fits(matched, number, sign)
            ours, theirs = (printed.of_three(table, name, row) for row in (OURS, other))
            beside = sign * (ours.mean - theirs.mean) if ours and theirs else None
            if relative and effect and beside is not None and theirs:
                level = np.mean([number(record) or np.nan for _, record in matched]) / 100
                mean, low, high = (float(value / level) for value in effect[:3])
                effect = Effect(mean, low, high, effect.n_fits)
                beside = 100 * beside / theirs.mean
            label = f"{name}: {what} minus {other}".replace(":  ", ": ")
            yield Comparison(label, effect, form, unit, beside)


def _retrieval(found: dict[str, list[Record]]) -> Iterable[Comparison]:
    for other in (*BASELINES, UNREPULSED):
        matched = pairs(found.get(OURS, []), found.get(other, []))
        rows = printed.PRECISION
        beside = None
        if other in rows:
            beside = float(np.mean(np.subtract(rows[OURS], rows[other])[2:]))
        effect = gain_of_fits(matched, precision_of(RARE))
        yield Comparison(f"reuters: minus {other}", effect, "+.1f", " points", beside)


def _words(found: Found) -> Iterable[Comparison]:
    for name in ("news20", "reuters"):
        for other in ("IBP-LFM", UNREPULSED):
            matched = _pairs(found, name, OURS, other)
            effect = gain_of_fits(matched, metric("word_overlap"), -1.0)
            yield Comparison(f"{name}: less than {other}", effect, "+.2f", " points")
