"""From records to tables, on the terminal and in Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rich.table import Table

from wideangle.diagnostics import ESS_PER_CHAIN, RHAT_LIMIT
from wideangle.paper.baselines import BASELINES
from wideangle.paper.compare import Key, by_key, mean_metric, over_seeds, pooled_group
from wideangle.paper.methods import ROWS
from wideangle.paper.metrics import BINS
from wideangle.paper.printed import printed
from wideangle.paper.records import Record
from wideangle.paper.suites import PRIORS, REFERENCE

METRICS = {"accuracy": ".2f", "log_loss": ".4f", "calibration_error": ".4f", "brier": ".4f"}
NINE = ("C18", "C17", "C12", "C14", "C22", "C34", "C23", "C32", "C16")
"""Subcategories of RCV1 in the order of the paper, from many documents to few."""
TITLES = {
    "accuracy": "accuracy, %",
    "log_loss": "log-loss, nats",
    "calibration_error": f"expected calibration error, {BINS} bins",
    "brier": "Brier score",
}


class Grid(NamedTuple):
    """A table as text: the first column names the rows."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def rich(self) -> Table:
        """For the terminal."""
        table = Table(title=self.title)
        for place, column in enumerate(self.columns):
            table.add_column(column, justify="left" if place == 0 else "right")
        for row in self.rows:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        """For a page."""
        rule = "|---|" + "---:|" * (len(self.columns) - 1)
        lines = ["| " + " | ".join(self.columns) + " |", rule]
        return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in self.rows)])


def metric_grid(records: Iterable[Record], data: str, metric: str, *, paper: bool = False) -> Grid:
    """Methods by K; replicates as mean ± standard error; bad convergence beside the number."""
    cells = by_key(records)
    sizes = sorted({k for name, _, k in cells if name == data and k})
    rows = []
    for method in _methods(cells, data):
        known = {k: cells[data, method, k] for k in (0, *sizes) if (data, method, k) in cells}
        if 0 in known:
            rows.append((method, entry(known[0], metric), *[""] * (len(sizes) - 1)))
            continue
        shown = [entry(known[k], metric) if k in known else "" for k in sizes]
        if paper and metric == "accuracy":
            beside = [printed(data, method, k) for k in sizes]
            pairs = zip(shown, beside, strict=True)
            shown = [one if number is None else f"{one} [{number}]" for one, number in pairs]
        rows.append((method, *shown))
    columns = ("method", *(f"K={k}" for k in sizes or [0]))
    return Grid(f"{data}: {TITLES[metric]}", columns, rows)


def entry(records: Sequence[Record], metric: str) -> str:
    """One number with what is wrong with it."""
    mean, error = mean_metric(records, metric)
    form = METRICS[metric]
    text = f"{mean:{form}}" + (f" ± {error:{form}}" if math.isfinite(error) else "")
    return " ".join([text, *trouble(records)])


def trouble(records: Sequence[Record]) -> list[str]:
    """Marks of bad convergence of the predictions: R-hat, effective sample size per chain."""
    marks = []
    rhats = [r.diagnostics.get("rhat_predictions") for r in records]
    worst = max((value for value in rhats if value is not None), default=0.0)
    if worst > RHAT_LIMIT:
        marks.append(f"(R-hat {worst:.2f})")
    sizes = [
        r.diagnostics["ess_predictions"] / r.diagnostics["n_chains"]
        for r in records
        if r.diagnostics.get("ess_predictions") is not None
    ]
    if sizes and min(sizes) < ESS_PER_CHAIN:
        marks.append(f"(ESS {min(sizes):.0f})")
    if any(r.diagnostics.get("interrupted") for r in records):
        marks.append("(stopped early)")
    return marks


def diagnostic_grid(records: Iterable[Record], data: str) -> Grid:
    """Experts in use, convergence, settings and seconds of every cell."""
    rows = []
    for (name, method, k), found in sorted(by_key(records).items(), key=_in_order):
        if name != data:
            continue
        first = found[0]
        settings = first.data["chosen"].items()
        chosen = [f"{key} {value}" for key, value in settings if not key.startswith("validation")]
        values = [
            _mean(found, "n_used", ".1f"),
            _worst(found, "rhat", max, ".2f"),
            _worst(found, "ess_bulk", min, ".0f"),
            _worst(found, "rhat_predictions", max, ".2f"),
            _worst(found, "ess_predictions", min, ".0f"),
            f"{sum(sum(r.data['seconds'].values()) for r in found) / len(found):.0f}",
        ]
        rows.append((method, str(k or ""), str(len(found)), *values, ", ".join(chosen)))
    columns = (
        "method", "K", "cells", "experts used", "worst R-hat", "least ESS",
        "R-hat of predictions", "ESS of predictions", "seconds", "chosen on the training part",
    )  # fmt: skip
    return Grid(f"{data}: diagnostics", columns, rows)


def nine_grid(records: Iterable[Record]) -> Grid:
    """RCV1: accuracy on each of the nine subcategories, pooled over the samples."""
    cells = {
        (method, k): found
        for (name, method, k), found in sorted(by_key(records).items(), key=_in_order)
        if name == "rcv1_subsets"
    }
    groups = [record.metrics["groups"] for found in cells.values() for record in found]
    codes = [code for code in NINE if any(code in one for one in groups)]
    rows = [
        (method, str(k or ""), *(f"{pooled_group(found, [code])[0]:.1f}" for code in codes))
        for (method, k), found in cells.items()
    ]
    some = next(iter(cells.values()), [])
    rows.insert(0, ("test documents", "", *(str(pooled_group(some, [c])[1]) for c in codes)))
    return Grid("Accuracy on the nine subcategories, %", ("method", "K", *codes), rows)


def small_data_grid(records: Iterable[Record], data: str, group: str | None) -> Grid:
    """Log-loss of every arm less that of the reference, paired by seed."""
    found: dict[tuple[int, int, str], list[Record]] = {}
    for record in records:
        cell = record.cell
        if cell.data == data:
            found.setdefault((cell.n_train, cell.n_experts, cell.method), []).append(record)
    arms = [arm for arm in PRIORS if arm != REFERENCE]
    rows = []
    for size, k in sorted({(size, k) for size, k, _ in found}):
        base = found.get((size, k, REFERENCE), [])
        gaps = [over_seeds(found.get((size, k, arm), []), base, group) for arm in arms]
        shown = [f"{gap} {_star(gap.verdict)}".strip() if gap else "" for gap in gaps]
        every = [r for (n, m, _), part in found.items() if (n, m) == (size, k) for r in part]
        worst = _worst(every, "rhat_predictions", max, ".2f")
        rows.append((f"N={size}, K={k}", str(len(base)), worst, _base(base, group), *shown))
    columns = ("rows and experts", "seeds", "worst R-hat", REFERENCE, *arms)
    where = f"rows with a {group}" if group else "all test rows"
    return Grid(f"{data}: log-loss less that of {REFERENCE}, {where}", columns, rows)


def data_sets(records: Iterable[Record]) -> list[str]:
    """Data sets that occur, in order."""
    return sorted({record.cell.data.partition(".")[0] for record in records})


def _base(records: Sequence[Record], group: str | None) -> str:
    if not records:
        return ""
    if group is None:
        return f"{mean_metric(records, 'log_loss')[0]:.4f}"
    values = [record.metrics["groups"][group]["log_loss"] for record in records]
    return f"{sum(values) / len(values):.4f}"


def _star(verdict: str) -> str:
    return {"better": "(better)", "worse": "(worse)"}.get(verdict, "")


def _methods(cells: dict[Key, list[Record]], data: str) -> list[str]:
    there = {method for name, method, _ in cells if name == data}
    known = [*BASELINES, *ROWS]
    return [method for method in known if method in there] + sorted(there - set(known))


def _in_order(item: tuple[Key, list[Record]]) -> tuple[int, str, int]:
    known = [*BASELINES, *ROWS]
    _, method, k = item[0]
    return (known.index(method) if method in known else len(known), method, k)


def _mean(records: Sequence[Record], name: str, form: str) -> str:
    values = [r.diagnostics[name] for r in records if r.diagnostics.get(name) is not None]
    return f"{sum(values) / len(values):{form}}" if values else ""


def _worst(
    records: Sequence[Record], name: str, pick: Callable[[list[float]], float], form: str
) -> str:
    values = [r.diagnostics[name] for r in records if r.diagnostics.get(name) is not None]
    return f"{pick(values):{form}}" if values else ""
