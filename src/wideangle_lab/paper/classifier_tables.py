"""Tables of classifiers: 1 to 5 of the paper, and their details."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from wideangle_lab.paper import printed
from wideangle_lab.paper.baselines import BASELINES
from wideangle_lab.paper.baselines import NAMES as BASELINE_NAMES
from wideangle_lab.paper.compare import (
    RHAT,
    Key,
    by_key,
    largest,
    mean_metric,
    pooled_group,
    seconds_of,
)
from wideangle_lab.paper.grid import Grid
from wideangle_lab.paper.methods import ROWS
from wideangle_lab.paper.metrics import BINS
from wideangle_lab.paper.printed import NINE
from wideangle_lab.paper.records import Record
from wideangle_lab.paper.suites import BAYESIAN_30, EXPERTS, TWO

ESS_PER_CHAIN = 100
"""Effective draws of a chain below which a number is marked."""
K = 10
"""K of the overview, at which settings are chosen."""
FORMS = {"accuracy": ".2f", "log_loss": ".4f", "calibration_error": ".4f"}
TITLES = {
    "accuracy": "accuracy, %",
    "log_loss": "log-loss, nats",
    "calibration_error": f"expected calibration error, {BINS} bins",
}


def accuracy_grid(records: Sequence[Record], data: str) -> Grid:
    """Tables 1 and 2: methods by K, the printed number in square brackets."""
    return metric_grid(records, data, "accuracy", baselines=False)


def all_grids(records: Sequence[Record], data: str) -> list[Grid]:
    """Tables 1 and 2, with log-loss, calibration and the diagnostics of every cell."""
    others = [
        metric_grid(records, data, one, baselines=False) for one in FORMS if one != "accuracy"
    ]
    return [accuracy_grid(records, data), *others, diagnostic_grid(records, data)]


def metric_grid(
    records: Iterable[Record], data: str, metric: str, *, baselines: bool = True
) -> Grid:
    """Methods by K; replicates as mean ± standard error (count), with a mark of bad convergence."""
    cells = by_key(records)
    sizes = sorted({k for name, _, k in cells if name == data and k})
    rows = []
    for method in _methods(cells, data):
        if method in BASELINES:
            if baselines:
                shown = entry(cells[data, method, 0], metric)
                rows.append((method, shown, *[""] * max(len(sizes) - 1, 0)))
            continue
        line = []
        for k in sizes:
            shown = entry(cells[data, method, k], metric) if (data, method, k) in cells else ""
            beside = printed.accuracy(data, method, k) if metric == "accuracy" else None
            line.append(shown if beside is None else f"{shown} [{beside}]".strip())
        rows.append((method, *line))
    return Grid(f"{data}: {TITLES[metric]}", ("method", *(f"K={k}" for k in sizes or [0])), rows)


def entry(records: Sequence[Record], metric: str) -> str:
    """One number with its marks."""
    return " ".join([_with_error(records, metric), *trouble(records)])


def _with_error(records: Sequence[Record], metric: str) -> str:
    mean, error = mean_metric(records, metric)
    form = FORMS[metric]
    several = f" ± {error:{form}} ({len(records)})" if math.isfinite(error) else ""
    return f"{mean:{form}}{several}"


def trouble(records: Sequence[Record]) -> list[str]:
    """Marks of bad convergence of the predictions: R-hat, effective sample size per chain."""
    marks = []
    rhats = [r.diagnostics.get("rhat_predictions") for r in records]
    worst = max((value for value in rhats if value is not None), default=0.0)
    if worst > RHAT:
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


def nine_grid(records: Iterable[Record]) -> Grid:
    """Table 3: accuracy on each of the nine subcategories, pooled over the samples."""
    cells = {
        (method, k): found
        for (name, method, k), found in sorted(by_key(records).items(), key=_in_order)
        if name == "rcv1_subsets"
    }
    rows: list[tuple[str, ...]] = [
        ("documents in the paper", "", "", *map(str, printed.NINE_SIZES)),
        *(
            (f"{method} in the paper", "", "", *map(str, row))
            for method, row in printed.NINE_ACCURACY.items()
        ),
    ]
    if cells:
        some = max(cells.values(), key=len)
        counts = [str(pooled_group(some, [code])[1]) for code in NINE]
        rows.append(("test documents here", "", str(len(some)), *counts))
    for (method, k), found in cells.items():
        shown = [f"{pooled_group(found, [code])[0]:.1f}" for code in NINE]
        label = " ".join([method, *trouble(found)])
        rows.append((label, str(k or ""), str(len(found)), *shown))
    columns = ("method", "K", "samples", *NINE)
    return Grid("Accuracy on the nine subcategories, %", columns, rows)


def against_grid(records: Sequence[Record], data: Sequence[str] = TWO) -> Grid:
    """Table 4: accuracy, log-loss and calibration of baselines, and of the mixtures at K = 30."""
    cells = by_key(records)
    rows = []
    for method in (*BASELINES, *BAYESIAN_30):
        line = [f"{method}, {BASELINE_NAMES[method]}" if method in BASELINES else f"{method}, K=30"]
        for place, name in enumerate(data):
            found = _of(cells, name, method)
            beside = printed.AGAINST.get(method, ())
            number = f" [{beside[place]}]" if beside and name in TWO else ""
            line.append((entry(found, "accuracy") if found else "") + _size(found) + number)
            for metric in ("log_loss", "calibration_error"):
                line.append(f"{mean_metric(found, metric)[0]:.4f}" if found else "")
        rows.append(tuple(line))
    columns = [f"{name}: {what}" for name in data for what in ("accuracy, %", "log-loss", "ECE")]
    return Grid("Against other classifiers", ("method", *columns), rows)


def time_grid(records: Sequence[Record], data: Sequence[str] = TWO) -> Grid:
    """Table 5: seconds of one fit and of choosing settings, and the paper's hours."""
    cells = by_key(records)
    rows = []
    for method in BAYESIAN_30:
        line = [method]
        for place, name in enumerate(data):
            found = _of(cells, name, method)
            number = f" [{printed.HOURS[method][place]} h]" if name in TWO else ""
            shown = ""
            if found:
                fit = seconds_of(found)
                devices = ", ".join(sorted({str(r.data["device"]) for r in found}))
                shown = f"{fit:.0f} s ({devices}){_size(found)}"
            line.append(shown + number)
        rows.append(tuple(line))
    note = (
        "Time of one fit at K = 30 unless stated otherwise, including compilation but not the "
        "choice of settings: wall-clock time of an accelerator that other fits used too, or "
        "seconds of all cores of a processor. Sampling: 4 chains of 500 + 1500 draws."
    )
    return Grid("Training time", ("method", *data), rows, (note,))


def diagnostic_grid(records: Iterable[Record], data: str) -> Grid:
    """Experts in use, convergence, settings and seconds of every cell."""
    rows = []
    for (name, method, k), found in sorted(by_key(records).items(), key=_in_order):
        if name != data:
            continue
        chosen = [
            f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
            for key, value in found[0].data["chosen"].items()
            if not key.startswith("validation")
        ]
        values = [
            _pick(found, "n_used", _mean, ".1f"),
            _pick(found, "rhat", max, ".2f"),
            _pick(found, "ess_bulk", min, ".0f"),
            _pick(found, "rhat_predictions", max, ".2f"),
            _pick(found, "ess_predictions", min, ".0f"),
            f"{sum(sum(r.data['seconds'].values()) for r in found) / len(found):.0f}",
        ]
        rows.append((method, str(k or ""), str(len(found)), *values, ", ".join(chosen)))
    columns = (
        "method", "K", "cells", "experts used", "worst R-hat", "least ESS",
        "R-hat of predictions", "ESS of predictions", "seconds", "chosen on the training part",
    )  # fmt: skip
    return Grid(f"{data}: diagnostics", columns, rows)


def overview_grid(records: Iterable[Record], data: str) -> Grid:
    """Accuracy, log-loss and calibration of every row on a data set, at one K."""
    cells = by_key(records)
    rows = []
    for method in _methods(cells, data):
        k = 0 if method in BASELINES else K
        found = cells.get((data, method, k), [])
        if not found:
            continue
        shown = [_with_error(found, metric).partition(" (")[0] for metric in FORMS]
        worst, used = (
            _pick(found, "rhat_predictions", max, ".2f"),
            _pick(found, "n_used", _mean, ".1f"),
        )
        rows.append((method, str(len({r.cell.seed for r in found})), *shown, used, worst))
    columns = (
        "method",
        "splits",
        "accuracy, %",
        "log-loss",
        "calibration error",
        "experts",
        "R-hat",
    )
    return Grid(data, columns, rows)


def _of(cells: dict[Key, list[Record]], data: str, method: str) -> list[Record]:
    """A baseline, or a mixture at its largest K."""
    return cells.get((data, method, largest(cells, data, method)), [])


def _size(found: Sequence[Record]) -> str:
    """K, if it is not that of the paper's table."""
    k = found[0].cell.n_experts if found else 0
    return f" (K={k})" if k not in (0, EXPERTS[-1]) else ""


def _methods(cells: dict[Key, list[Record]], data: str) -> list[str]:
    present = {method for name, method, _ in cells if name == data}
    known = [*BASELINES, *ROWS]
    return [method for method in known if method in present] + sorted(present - set(known))


def _in_order(item: tuple[Key, Any]) -> tuple[int, str, int]:
    known = [*BASELINES, *ROWS]
    _, method, k = item[0]
    return (known.index(method) if method in known else len(known), method, k)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _pick(
    records: Sequence[Record], name: str, pick: Callable[[list[float]], float], form: str
) -> str:
    values = [r.diagnostics[name] for r in records if r.diagnostics.get(name) is not None]
    return f"{pick(values):{form}}" if values else ""
