"""Tables of latent features: one for each data set, rows of the paper and controls below."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from wideangle.paper.compare import by_key, mean_metric
from wideangle.paper.feature_methods import FEATURE_ROWS
from wideangle.paper.records import Record
from wideangle.paper.tables import Grid


def feature_grids(records: Iterable[Record], data: str) -> list[Grid]:
    """What held-out rows say, and how the chains did."""
    found = rows_of(records, data)
    classes = any("nmi" in one.metrics for part in found.values() for one in part)
    columns: dict[str, Callable[[Sequence[Record]], str]] = {
        "log-likelihood per row": _metric("log_likelihood", ".2f"),
        "L2 error": _metric("l2_error", ".4g"),
        "hidden entries: log density": _metric("hidden_log_density", ".4f"),
        "hidden entries: error": _metric("hidden_rms", ".4g"),
    }
    if classes:
        columns["clustering accuracy, %"] = _metric("clustering_accuracy", ".1f")
        columns["NMI, %"] = _metric("nmi", ".1f")
    how: dict[str, Callable[[Sequence[Record]], str]] = {
        "components": _diagnostic("n_components", np.mean, ".1f"),
        "features per draw": _diagnostic("n_raw", np.mean, ".1f"),
        "mean angle": _diagnostic("mean_angle", np.mean, ".3f"),
        "kappa": _diagnostic("concentration", np.mean, ".4g"),
        "worst R-hat": _diagnostic("rhat", np.max, ".2f"),
        "disputed": _diagnostic("n_disputed", np.mean, ".1f"),
        "seconds": lambda part: f"{np.mean([_seconds(one) for one in part]):.0f}",
        "CPU seconds of the fit": _diagnostic("cpu_fit", np.mean, ".0f"),
    }
    return [
        _grid(found, f"{data}: held-out rows", columns),
        _grid(found, f"{data}: features and chains", how),
    ]


def rows_of(records: Iterable[Record], data: str) -> dict[str, list[Record]]:
    """Records of a data set by row of the table, in the order of the table."""
    cells = by_key(records)
    return {method: cells[data, method, 0] for method in FEATURE_ROWS if (data, method, 0) in cells}


def _grid(
    found: dict[str, list[Record]],
    title: str,
    columns: dict[str, Callable[[Sequence[Record]], str]],
) -> Grid:
    rows = [
        (method, str(len(part)), *(show(part) for show in columns.values()))
        for method, part in found.items()
    ]
    return Grid(title, ("method", "seeds", *columns), rows)


def _metric(name: str, form: str) -> Callable[[Sequence[Record]], str]:
    """Mean over seeds and its standard error; empty where it was not measured."""

    def show(records: Sequence[Record]) -> str:
        if any(record.metrics.get(name) is None for record in records):
            return ""
        mean, error = mean_metric(records, name)
        return f"{mean:{form}}" + (f" ± {error:.2g}" if math.isfinite(error) else "")

    return show


def _diagnostic(
    name: str, pick: Callable[[list[float]], float], form: str
) -> Callable[[Sequence[Record]], str]:
    def show(records: Sequence[Record]) -> str:
        values = [r.diagnostics[name] for r in records if r.diagnostics.get(name) is not None]
        return f"{pick(values):{form}}" if values else ""

    return show


def _seconds(record: Record) -> float:
    return sum(record.data["seconds"].values())
