"""Claims about the infinite latent feature model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from wideangle_lab.datasets import MANIFEST
from wideangle_lab.paper import printed
from wideangle_lab.paper.claims import Claim, Comparison
from wideangle_lab.paper.compare import Number, gains
from wideangle_lab.paper.feature_methods import LABELLED, REPULSED, UNLABELLED, UNREPULSED
from wideangle_lab.paper.feature_tables import diagnostic, metric, precision_of, rows_of
from wideangle_lab.paper.records import Record

OURS, BASELINES = "IMA-LFM", ("IBP-LFM", "PYP-LFM")
RARE = range(2, 9)
"""Categories of Reuters that are rare in the paper."""
PER_ENTRY = " nats per 1,000 entries"
Found = dict[str, dict[str, list[Record]]]
"""Records by data set and row."""


def feature_claims(records: Sequence[Record]) -> list[Claim]:
    """All claims about latent features."""
    found = {name: rows_of(records, name) for name in (*UNLABELLED, *LABELLED)}
    everywhere = (*UNLABELLED, *LABELLED)
    features = _by_data(
        found, everywhere, diagnostic("n_raw"), printed.N_FEATURES, -1.0, relative=True
    )
    error = _by_data(found, UNLABELLED, metric("l2_error"), printed.L2_ERROR, -1.0, relative=True)
    clusters = (
        *_by_data(
            found, LABELLED, metric("clustering_accuracy"), printed.CLUSTERING, name="accuracy"
        ),
        *_by_data(found, LABELLED, metric("nmi"), printed.NMI, name="NMI"),
    )
    words = _by_data(found, ("news20", "reuters"), metric("word_overlap"), {}, -1.0)
    return [
        Claim(
            "IMA-LFM reconstructs held-out rows with less error than IBP-LFM and PYP-LFM",
            "Table 7", tuple(error), 1.0, "+.1f", " %",
            remark="In per cent of the error of the other row. This error rewards fitting noise.",
        ),
        Claim(
            "IMA-LFM gives held-out rows a higher likelihood",
            "Table 8", tuple(_by_data(found, UNLABELLED, _likelihood, {})), 1.0, "+.1f", PER_ENTRY,
            remark="Assignments summed out. The paper does not say what its likelihood is, so it "
            "has no number here.",
        ),
        Claim("IMA-LFM gives better clusters", "Tables 9 and 10", clusters, 1.0, "+.1f"),
        Claim(
            "IMA-LFM needs fewer features", "Table 11", tuple(features), 5.0, "+.1f", " %",
            remark="In per cent of the features of the other row. All rows of a split start from "
            "the same search, and chains of this length change the number little.",
        ),
        Claim(
            "Rare categories of Reuters are retrieved better",
            "Table 12", tuple(_retrieval(found["reuters"])), 1.0, "+.1f",
        ),
        Claim("The words of features are less redundant", "Table 13", tuple(words), 1.0),
    ]  # fmt: skip


def feature_ablations(records: Sequence[Record]) -> list[Claim]:
    """Rows with repulsion against kappa = 0, and kappa = 0 against the Gaussian prior."""
    found = {name: rows_of(records, name) for name in (*UNLABELLED, *LABELLED)}
    known = [name for name in found if UNREPULSED in found[name]]
    angles = [_one(found, name, row, UNREPULSED) for name in known for row in REPULSED]
    lengths = [_one(found, name, UNREPULSED, "IBP-LFM") for name in known]
    return [
        Claim(title, "held-out likelihood", tuple(parts), 0.0, "+.2f", PER_ENTRY)
        for title, parts in (
            ("Angles of latent features: repulsion and kappa = 0", angles),
            (
                "Lengths of latent features: kappa = 0 and a Gaussian prior",
                lengths,
            ),
        )
    ]


def _likelihood(record: Record) -> float:
    return 1000.0 * record.metrics["log_likelihood"] / MANIFEST[record.cell.data].shape[1]


def _one(found: Found, data: str, first: str, second: str) -> Comparison:
    both = (found[data].get(first, []), found[data].get(second, []))
    return Comparison(MANIFEST[data].title, f"{first} and {second}", gains(*both, _likelihood))


def _by_data(
    found: Found,
    data: Sequence[str],
    number: Number,
    table: printed.Three,
    sign: float = 1.0,
    *,
    name: str = "",
    relative: bool = False,
) -> Iterable[Comparison]:
    for one in data:
        for other in BASELINES:
            both = (found[one].get(OURS, []), found[one].get(other, []))
            ours, theirs = (printed.of_three(table, one, row) for row in (OURS, other))
            beside = None
            if ours and theirs:
                beside = sign * (ours.mean - theirs.mean) * (100 / theirs.mean if relative else 1)
            what = " ".join(filter(None, (name, f"{OURS} and {other}")))
            yield Comparison(
                MANIFEST[one].title, what, gains(*both, number, sign, relative=relative), beside
            )


def _retrieval(found: dict[str, list[Record]]) -> Iterable[Comparison]:
    rows = printed.PRECISION
    for other in BASELINES:
        beside = None
        if other in rows:
            beside = float(np.mean(np.subtract(rows[OURS], rows[other])[2:]))
        both = (found.get(OURS, []), found.get(other, []))
        yield Comparison(
            MANIFEST["reuters"].title,
            f"{OURS} and {other}",
            gains(*both, precision_of(RARE)),
            beside,
        )
