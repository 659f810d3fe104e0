"""Tables of latent features: 7 to 13 of the paper, and their details."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from wideangle_lab.datasets import MANIFEST
from wideangle_lab.paper import printed
from wideangle_lab.paper.compare import Number, by_key, mean_of
from wideangle_lab.paper.feature_methods import FEATURE_ROWS
from wideangle_lab.paper.feature_metrics import word_overlap
from wideangle_lab.paper.grid import Grid
from wideangle_lab.paper.records import Record

WORRYING = 1.1
"""R-hat above which a number is marked; chains of features seldom reach 1.01."""
N_LISTS = 4
"""Lists of words shown for each row, as in the paper."""


def metric(name: str) -> Number:
    """A number of a record by its name."""
    return lambda record: record.metrics.get(name)


def diagnostic(name: str) -> Number:
    """A diagnostic of a record by its name."""
    return lambda record: record.diagnostics.get(name)


def data_grid(
    records: Sequence[Record],
    title: str,
    data: Sequence[str],
    number: Number,
    form: str,
    table: printed.Three,
) -> Grid:
    """Data sets by row; the printed number in square brackets."""
    rows = []
    for name in data:
        found = rows_of(records, name)
        line = [MANIFEST[name].title if name in MANIFEST else name]
        for method in FEATURE_ROWS:
            shown = average(found.get(method, []), number, form)
            beside = printed.of_three(table, name, method)
            line.append(shown if beside is None else f"{shown} [{beside}]".strip())
        rows.append(tuple(line))
    shown = [place for place, _ in enumerate(FEATURE_ROWS, 1) if any(row[place] for row in rows)]
    columns = [*FEATURE_ROWS]
    return Grid(
        title,
        ("data", *(columns[place - 1] for place in shown)),
        [(row[0], *(row[place] for place in shown)) for row in rows],
    )


def average(records: Sequence[Record], number: Number, form: str) -> str:
    """Mean over splits, its standard error, the number of splits, and a mark of bad mixing."""
    values = [value for record in records if (value := number(record)) is not None]
    if not values:
        return ""
    mean, error = mean_of(values)
    text = f"{mean:{form}}" + (f" ± {error:.2g} ({len(values)})" if math.isfinite(error) else "")
    rhats = [r.diagnostics["rhat"] for r in records if r.diagnostics.get("rhat") is not None]
    worst = max(rhats, default=0.0)
    return text + (f" (R-hat {worst:.1f})" if worst > WORRYING else "")


def precision_grid(records: Sequence[Record], data: str) -> Grid:
    """Table 12: precision at 100 by category, from frequent to rare."""
    found = rows_of(records, data)
    several = [r.metrics["precision"] for part in found.values() for r in part
               if "precision" in r.metrics]  # fmt: skip
    classes = sorted({int(one) for part in several for one in part})
    rows: list[tuple[str, ...]] = []
    if data == "reuters":
        rows.append(("documents", *map(str, printed.REUTERS_SIZES)))
        rows += [
            (f"{method} in the paper", *map(str, row)) for method, row in printed.PRECISION.items()
        ]
    for method, part in found.items():
        shown = [average(part, precision_of([one]), ".1f").partition(" (R-hat")[0]
                 for one in classes]  # fmt: skip
        rows.append((method, *shown))
    titles = [str(one + 1) for one in classes or range(len(printed.REUTERS_SIZES))]
    return Grid("Precision at 100 by category, %", ("row", *titles), rows)


def precision_of(classes: Iterable[int]) -> Number:
    """Precision at 100, mean over some categories."""
    wanted = [str(one) for one in classes]

    def number(record: Record) -> float | None:
        known = record.metrics.get("precision")
        found = [known[one]["precision"] for one in wanted if one in known] if known else []
        return float(np.mean(found)) if found else None

    return number


def word_grid(records: Sequence[Record], data: str) -> Grid:
    """Table 13: the first lists of words of two rows, and the overlap of lists."""
    found = rows_of(records, data)
    columns, lists, overlaps = [], [], []
    for method in ("IBP-LFM", "IMA-LFM"):
        printed_words = [part.split() for part in printed.WORDS[method]] if data == "news20" else []
        if printed_words:
            overlaps.append(f"{method} in the paper {word_overlap(printed_words):.1f} %")
        if method not in found:
            continue
        record = found[method][0]
        columns += [f"{method} {place + 1}" for place in range(N_LISTS)]
        empty: list[list[str]] = [[]] * N_LISTS
        lists += [*record.metrics.get("words", []), *empty][:N_LISTS]
        shown = average(found[method], metric("word_overlap"), ".1f").partition(" (R-hat")[0]
        overlaps.append(f"{method} {shown} % over {record.diagnostics['n_components']} features")
    n_words = max((len(part) for part in lists), default=0)
    rows = [
        (str(place + 1), *(part[place] if place < len(part) else "" for part in lists))
        for place in range(n_words)
    ]
    note = f"Share of words that two features have in common, on average: {'; '.join(overlaps)}."
    return Grid("Words of the first features", ("rank", *columns), rows, (note,))


def overview_grid(records: Sequence[Record], data: Sequence[str]) -> Grid:
    """All rows on all data sets: what matters most."""
    columns: dict[str, tuple[Number, str]] = {
        "log-likelihood per row": (metric("log_likelihood"), ".1f"),
        "L2 error": (metric("l2_error"), ".4g"),
        "features": (diagnostic("n_raw"), ".0f"),
        "NMI, %": (metric("nmi"), ".1f"),
    }
    rows = []
    for name in data:
        title = MANIFEST[name].title if name in MANIFEST else name
        for method, part in rows_of(records, name).items():
            shown = [average(part, *column).partition(" (")[0] for column in columns.values()]
            rows.append((title, method, str(len(part)), *shown, _rhat(part).partition(";")[0]))
            title = ""
        plain = average([r for r in records if r.cell.data == name], metric("nmi_of_rows"), ".1f")
        if plain:
            rows.append(("", "rows themselves", "", "", "", "", plain.partition(" (")[0], ""))
    return Grid("", ("data", "method", "splits", *columns, "worst R-hat"), rows)


def detail_grids(records: Iterable[Record], data: str) -> list[Grid]:
    """All metrics on held-out rows, and convergence of the chains."""
    found = rows_of(records, data)
    classes = any("nmi" in one.metrics for part in found.values() for one in part)
    columns: dict[str, tuple[Number, str]] = {
        "log-likelihood per row": (metric("log_likelihood"), ".2f"),
        "L2 error": (metric("l2_error"), ".4g"),
        "hidden entries: log density": (metric("hidden_log_density"), ".4f"),
        "hidden entries: error": (metric("hidden_rms"), ".4g"),
    }
    if classes:
        columns["clustering accuracy, %"] = (metric("clustering_accuracy"), ".1f")
        columns["NMI, %"] = (metric("nmi"), ".1f")
    of_chains: dict[str, tuple[Number, str]] = {
        "components": (diagnostic("n_components"), ".1f"),
        "features per draw": (diagnostic("n_raw"), ".1f"),
        "mean angle": (diagnostic("mean_angle"), ".3f"),
        "kappa": (diagnostic("concentration"), ".4g"),
        "disputed": (diagnostic("n_disputed"), ".1f"),
        "seconds of the fit": (lambda record: record.data["seconds"]["fit"], ".0f"),
    }
    return [
        _detail(found, f"{data}: held-out rows", columns),
        _detail(found, f"{data}: features and chains", of_chains),
    ]


def rows_of(records: Iterable[Record], data: str) -> dict[str, list[Record]]:
    """Records of a data set by row of the table, in the order of the table."""
    cells = by_key(records)
    return {method: cells[data, method, 0] for method in FEATURE_ROWS if (data, method, 0) in cells}


def _detail(
    found: dict[str, list[Record]], title: str, columns: dict[str, tuple[Number, str]]
) -> Grid:
    rows = [
        (
            method,
            str(len(part)),
            *(average(part, *column).partition(" (")[0] for column in columns.values()),
            _rhat(part),
        )
        for method, part in found.items()
    ]
    return Grid(title, ("method", "splits", *columns, "worst R-hat"), rows)


def _rhat(records: Sequence[Record]) -> str:
    values = [r.diagnostics["rhat"] for r in records if r.diagnostics.get("rhat") is not None]
    constant = sorted({name for r in records for name in r.diagnostics.get("constant", {})})
    words = [f"{max(values):.2f}"] if values else []
    return "; ".join([*words, *(f"{name} constant in each chain" for name in constant)])
