"""Sentences about records: every number and every judgement is computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wideangle.datasets import MANIFEST
from wideangle.paper.baselines import BASELINES
from wideangle.paper.baselines import NAMES as BASELINE_NAMES
from wideangle.paper.compare import Key, by_key, mean_metric, over_seeds, paired, pooled_group
from wideangle.paper.methods import UNREPULSED
from wideangle.paper.printed import PRINTED
from wideangle.paper.records import Record
from wideangle.paper.suites import PRIORS, REFERENCE
from wideangle.paper.tables import NINE

RARE_CODES = NINE[4:]
"""The five subcategories of RCV1 with the fewest documents."""


def best_and_baselines(records: Sequence[Record], data: str) -> list[str]:
    """Which mixture predicts best, and how it stands to each baseline."""
    cells = by_key(record for record in records if record.cell.data.partition(".")[0] == data)
    loss = {key: mean_metric(found, "log_loss")[0] for key, found in cells.items()}
    mixtures = {key: value for key, value in loss.items() if key[2]}
    if not mixtures:
        return []
    best = min(mixtures, key=lambda key: mixtures[key])
    accuracy = mean_metric(cells[best], "accuracy")[0]
    lines = [
        f"The lowest log-loss of a mixture is {loss[best]:.4f} ({_name(best)}, accuracy "
        f"{accuracy:.2f} %)."
        + (" As the best of several on these rows it is a little lucky." * (len(mixtures) > 1))
    ]
    for name in BASELINES:
        if (key := (data, name, 0)) in cells:
            gap = paired(cells[best], cells[key])
            lines.append(
                f"Against {BASELINE_NAMES[name]} ({loss[key]:.4f}, "
                f"{mean_metric(cells[key], 'accuracy')[0]:.2f} %): {gap}, "
                f"{gap.verdict if gap else 'not compared'}."
            )
    return lines


def diversity_alone(records: Sequence[Record], data: str) -> list[str]:
    """Each diverse row against the row without the diversity, K by K."""
    cells = by_key(records)
    lines = []
    for diverse, plain in UNREPULSED.items():
        gaps = {
            k: gap
            for name, method, k in sorted(cells)
            if (name, method) == (data, diverse) and (data, plain, k) in cells
            if (gap := paired(cells[data, diverse, k], cells[data, plain, k]))
        }
        if gaps:
            shown = "; ".join(f"K={k} {gap} ({gap.verdict})" for k, gap in gaps.items())
            lines.append(f"{diverse} less {plain}, the same without the diversity: {shown}.")
    return lines


def few_against_many(records: Sequence[Record], data: str) -> list[str]:
    """The paper's claim that few diverse experts do the work of many independent ones."""
    cells = by_key(records)
    few = [k for name, method, k in cells if (name, method) == (data, "BMEM-MABN-I")]
    many = [k for name, method, k in cells if (name, method) == (data, "BMEM-G")]
    if not few or not many or min(few) >= max(many):
        return []
    one, other = (data, "BMEM-MABN-I", min(few)), (data, "BMEM-G", max(many))
    gap = paired(cells[one], cells[other])
    return [f"{_name(one)} less {_name(other)}: {gap}, {gap.verdict}."] if gap else []


def against_the_paper(records: Sequence[Record], data: str) -> list[str]:
    """Printed accuracies beside the best one reached."""
    if data not in PRINTED:
        return []
    cells = by_key(record for record in records if record.cell.data == data)
    if not cells:
        return []
    best = max(cells, key=lambda key: mean_metric(cells[key], "accuracy")[0])
    reached = mean_metric(cells[best], "accuracy")[0]
    top = max(max(row) for row in PRINTED[data].values())
    word = "is not reached by any row" if reached < top else "is reached"
    line = (
        f"The paper's highest accuracy, {top} %, {word}: the highest here is {reached:.2f} % "
        f"({_name(best)})."
    )
    if MANIFEST[data].status == "stand-in":
        line += " Ours are other images, so the two do not compare."
    return [line]


def rare_categories(records: Sequence[Record]) -> list[str]:
    """RCV1: accuracy on the rare subcategories, pooled over samples."""
    cells: Mapping[Key, list[Record]] = by_key(records)
    lines = []
    for k in sorted({k for name, _, k in cells if name == "rcv1_subsets" and k}):
        parts = []
        for method in ("BMEM-G", "BMEM-V", "BMEM-MABN-I"):
            if found := cells.get(("rcv1_subsets", method, k)):
                share, n = pooled_group(found, RARE_CODES)
                error = (share * (100 - share) / max(n, 1)) ** 0.5
                parts.append(f"{method} {share:.1f} ± {error:.1f} % of {n}")
        if parts:
            codes = ", ".join(RARE_CODES)
            lines.append(f"Documents of {codes} recognised at K={k}: {'; '.join(parts)}.")
    return lines


def small_data(records: Sequence[Record], data: str, group: str | None = None) -> list[str]:
    """How often each arm is clearly better or worse than the reference."""
    found: dict[tuple[int, int, str], list[Record]] = {}
    for record in records:
        cell = record.cell
        if cell.data == data:
            found.setdefault((cell.n_train, cell.n_experts, cell.method), []).append(record)
    lines = []
    for arm in PRIORS:
        gaps = {
            (size, k): over_seeds(found[size, k, arm], found[size, k, REFERENCE], group)
            for size, k, name in sorted(found)
            if name == arm != REFERENCE and (size, k, REFERENCE) in found
        }
        words: dict[str, list[str]] = {}
        for (size, k), gap in gaps.items():
            if gap:
                words.setdefault(gap.verdict, []).append(f"N={size}, K={k}")
        if words:
            listed = "; ".join(f"{word} at {' / '.join(at)}" for word, at in words.items())
            lines.append(f"{arm} against {REFERENCE}: {listed}.")
    return lines


def _name(key: Key) -> str:
    return f"{key[1]}, K={key[2]}" if key[2] else key[1]
