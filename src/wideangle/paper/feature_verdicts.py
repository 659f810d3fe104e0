"""Sentences about latent features, computed from records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.stats import norm as normal
from scipy.stats import t as student

from wideangle.paper.compare import CLEAR, Difference, paired
from wideangle.paper.feature_methods import REPULSED, UNREPULSED
from wideangle.paper.feature_tables import rows_of
from wideangle.paper.records import Record
from wideangle.paper.tables import data_sets

PAPER_MODEL, BASELINES = "IMA-LFM", ("IBP-LFM", "PYP-LFM")


def gap(first: Sequence[Record], second: Sequence[Record]) -> Difference | None:
    """Difference of minus log-likelihood per held-out row; negative: the first is better.

    Over seeds where both have several, else over the held-out rows of the one seed.
    """
    others = {record.cell.seed: record for record in second}
    values = [
        other.metrics["log_likelihood"] - record.metrics["log_likelihood"]
        for record in first
        if (other := others.get(record.cell.seed))
    ]
    if len(values) < 2:  # noqa: PLR2004
        return paired(first, second)
    error = float(np.std(values, ddof=1) / np.sqrt(len(values)))
    clear = float(student.ppf(normal.cdf(CLEAR), len(values) - 1))
    return Difference(float(np.mean(values)), error, clear)


def word(one: Difference, first: Sequence[Record]) -> str:
    """The verdict, with what a single fit leaves open."""
    return one.verdict if len(first) > 1 else f"{one.verdict}, one fit each"


def angles(records: Sequence[Record], data: str) -> list[str]:
    """Each repulsed row against the one with the same lengths and free angles."""
    found = rows_of(records, data)
    if UNREPULSED not in found:
        return []
    gaps = {
        method: one
        for method in REPULSED
        if method in found and (one := gap(found[method], found[UNREPULSED]))
    }
    shown = "; ".join(
        f"{method} {one} ({word(one, found[method])})" for method, one in gaps.items()
    )
    if not gaps:
        return []
    return [f"Loss less that of {UNREPULSED}, the same without repulsion: {shown}."]


def against_baselines(records: Sequence[Record], data: str) -> list[str]:
    """The paper's claim: higher likelihood, fewer features."""
    found = rows_of(records, data)
    lines = []
    for baseline in BASELINES:
        if PAPER_MODEL not in found or baseline not in found:
            continue
        one = gap(found[PAPER_MODEL], found[baseline])
        ours, theirs = (_components(found[name]) for name in (PAPER_MODEL, baseline))
        if one:
            lines.append(
                f"{PAPER_MODEL} against {baseline}: loss {one} "
                f"({word(one, found[PAPER_MODEL])}), {ours:.1f} components against {theirs:.1f}."
            )
    return lines


def lengths(records: Sequence[Record], data: str) -> list[str]:
    """What Gamma lengths do without any repulsion."""
    found = rows_of(records, data)
    if UNREPULSED not in found or "IBP-LFM" not in found:
        return []
    one = gap(found[UNREPULSED], found["IBP-LFM"])
    if one is None:
        return []
    said = word(one, found[UNREPULSED])
    return [f"{UNREPULSED} against IBP-LFM, lengths alone: loss {one} ({said})."]


def overall(records: Sequence[Record]) -> list[str]:
    """How often, over the data sets that have both rows."""
    lines = []
    pairs = [(PAPER_MODEL, other) for other in BASELINES]
    pairs += [(method, UNREPULSED) for method in REPULSED] + [(UNREPULSED, "IBP-LFM")]
    for first, second in pairs:
        verdicts: dict[str, list[str]] = {}
        for data in data_sets(records):
            found = rows_of(records, data)
            if first in found and second in found and (one := gap(found[first], found[second])):
                verdicts.setdefault(word(one, found[first]), []).append(data)
        if verdicts:
            told = "; ".join(f"{word}: {', '.join(where)}" for word, where in verdicts.items())
            lines.append(f"{first} against {second}, held-out likelihood: {told}.")
    return lines


def _components(records: Sequence[Record]) -> float:
    return float(np.mean([record.diagnostics["n_components"] for record in records]))
