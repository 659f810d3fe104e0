"""From the records to docs/scaling.md: ``python -m wideangle_lab.bench.scale.page``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wideangle_lab.bench.scale.model import Costs
from wideangle_lab.marks import fill_page

RECORD, CARD = Path("results/bench/scale.json"), Path("results/bench/h200.json")
PAGE = Path("docs/scaling.md")
BILLION = 1_000_000_000
NEAR = 0.3
"""Largest relative error allowed for a prediction."""
MINUTE, HOUR = 60.0, 3600.0
CLUSTER = 64
"""Cores of a small cluster."""
ADULT = {"rows": 32_561, "columns": 123, "experts": 30, "starts": 4, "passes": 20}
"""Size of the variational fit in the GPU record."""


def blocks(record: dict[str, Any], card: dict[str, Any]) -> dict[str, str]:
    """The generated parts of the page, by name."""
    costs = Costs(**record["vi"]["costs"])
    parts = {
        "summary": summary(record, card, costs),
        "ten million rows": million(record),
        "a hundred million rows": vast(record),
        "devices": devices(record["shares"]),
        "constants": constants(record, costs),
        "a billion rows": billion(record, card, costs),
    }
    return {name: "\n".join(lines) for name, lines in parts.items()}


def summary(record: dict[str, Any], card: dict[str, Any], costs: Costs) -> list[str]:
    """Row limits of a laptop, a GPU and a cluster."""
    vi = costs.vi(BILLION, 31, 8, 2, 1)
    sweep = BILLION * record["features"]["costs"]["row"]
    return [
        "| | rows, at most | how |",
        "|---|---|---|",
        "| one laptop, rows in memory | what fits in memory twice, as float32 | `fit` |",
        f"| one core, rows on disk | a billion: {duration(vi)} per pass (VI, 8 experts, 2 starts,"
        f" 31 columns), {duration(sweep)} per sweep (features, 64 columns) | `fit_stream` |",
        f"| one GPU | a billion: {duration(BILLION * card_row(card))} per pass (VI, 30 experts, 4 "
        "starts, 123 columns), if rows are read fast enough | `fit`, `fit_stream` |",
        "| many devices or machines | proportional to their number | `with rows_over():` |",
        "",
        "The first line is a rule of thumb; the others are computed from the measured runs below.",
    ]


def million(record: dict[str, Any]) -> list[str]:
    """The large runs, measured and predicted."""
    vi, features = record["vi"], record["features"]
    fit, first = features["fits"][-1], vi["fits"][0]
    size = first["rows"] * 4 * first["columns"] / 2**30
    wide = fit["rows"] * 4 * fit["columns"] / 2**30
    return [
        f"{first['rows']:,} rows of {first['columns']} columns ({size:.1f} GiB, classes from five "
        f"experts) and {fit['rows']:,} of {fit['columns']} ({wide:.1f} GiB, sums of eight features "
        "and noise), generated on disk in blocks; `python -m wideangle_lab.bench.scale`.",
        "",
        *large([*vi["fits"], fit]),
        "",
        where("Variational fits", vi["stamp"]) + " " + where("Features", features["stamp"]),
    ]


def vast(record: dict[str, Any]) -> list[str]:
    """The largest runs."""
    parts = {"vast-vi": "Variational fit", "vast-features": "Features"}
    found = {words: record[part] for part, words in parts.items() if part in record}
    absent = [part for part in parts if part not in record]
    lines = []
    if found:
        fits = [part["fits"][0] for part in found.values()]
        size = fits[0]["rows"] * 4 * fits[0]["columns"] / 2**30
        lines = [
            f"{fits[0]['rows']:,} rows of {fits[0]['columns']} columns ({size:.1f} GiB), made in "
            "the same way for each fit. Predictions are those of the constants below.",
            "",
            *large(fits),
            "",
            " ".join(where(words, part["stamp"]) for words, part in found.items()),
        ]
    commands = " ".join(f"--part {part}" for part in absent)
    missing = f"Not measured yet: `python -m wideangle_lab.bench.scale {commands}`."
    return lines + ([""] if lines and absent else []) + ([missing] if absent else [])


def large(fits: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each large run."""
    head = ("fit", "time", "core seconds", "predicted", "peak memory", "quality")
    return table(head, [_sweep(fit) if "sweep_seconds" in fit else _pass(fit) for fit in fits])


def _pass(fit: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"VI, {fit['n_experts']} experts, {fit['n_starts']} starts, {_count(fit['n_passes'])}",
        duration(fit["seconds"]),
        f"{fit['cpu_seconds']:.0f} s",
        f"{fit['predicted_cpu_seconds']:.0f} s",
        f"{fit['peak_mib']:,.0f} MiB",
        f"log-loss {fit['loss']:.4f}; truth {fit['loss_of_truth']:.4f}, logistic regression "
        f"{fit['loss_of_logistic_regression']:.4f}",
    )


def _sweep(fit: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"features, one sweep of {fit['n_warmup'] + fit['n_draws']}",
        duration(fit["sweep_seconds"]),
        f"{fit['sweep_cpu_seconds']:.0f} s",
        f"{fit['predicted_cpu_seconds']:.0f} s",
        f"{fit['peak_mib']:,.0f} MiB",
        f"{fit['n_features']} features found of {fit['true_features']}, each within "
        f"{100 * fit['largest_error']:.2g} % of the truth; noise {fit['noise']:.4f}, truth "
        f"{fit['true_noise']:g}",
    )


def devices(shares: dict[str, Any]) -> list[str]:
    """Parallel efficiency over devices and processes."""
    names = {"gradient": "gradient", "pass": "pass of VI", "stream": "streamed pass of VI"}

    def cells(plan: dict[str, Any]) -> Iterator[str]:
        fits = f", {plan['fits']} fits side by side" if plan["fits"] > 1 else ""
        yield f"{plan['processes']} x {plan['devices']}{fits}"
        for name in names:
            yield f"{plan[f'{name}_seconds']:.3g} s ({plan[f'{name}_cpu_seconds']:.3g} s)"
            yield f"{100 * plan[f'{name}_efficiency']:.0f} %"

    rows = [tuple(cells(plan)) for plan in shares["plans"]]
    head = ["processes x devices"]
    for name in names.values():
        head += [name, "efficiency"]
    return [
        f"{shares['rows']:,} rows of {shares['columns']} columns, {shares['n_experts']} experts, "
        "one core per device; VI with two starts and minibatches of 8192. In parentheses core "
        "seconds of all devices together. Fits side by side, which share nothing, show what the "
        "machine allows:",
        "",
        *table(head, rows),
        "",
        where("Measured", shares["stamp"]),
    ]


def constants(record: dict[str, Any], costs: Costs) -> list[str]:
    """The constants of the machine, and how well they predict."""
    numbers = [f"{name} {1e9 * value:.3g} ns" for name, value in costs._asdict().items()][1:]
    worst = max(abs(gap) for gap in gaps(record))
    return [
        f"On this machine: begin {costs.begin:.0f} s, {', '.join(numbers)}; a row of a feature "
        f"sweep {1e6 * record['features']['costs']['row']:.2g} µs. The large runs above were not "
        f"used to fit these constants; they are predicted within {100 * worst:.0f} %."
    ]


def billion(record: dict[str, Any], card: dict[str, Any], costs: Costs) -> list[str]:
    """Predicted times for a billion rows."""
    vi, wide = costs.vi(BILLION, 31, 8, 2, 1), costs.vi(BILLION, 123, 30, 4, 1)
    sweep = BILLION * record["features"]["costs"]["row"]
    rows = [
        ("VI, 8 experts, 2 starts, 31 columns, one pass", vi, 4 * 31),
        ("VI, 30 experts, 4 starts, 123 columns, one pass", wide, 4 * 123),
        ("features, 64 columns, 8 features, one sweep", sweep, 4 * 64),
    ]
    body = [
        (name, f"{BILLION * size / 1e9:,.0f} GB", duration(time), duration(time / CLUSTER))
        for name, time, size in rows
    ]
    return [
        *table(("fit", "rows", "one core", f"{CLUSTER} cores, at best"), body),
        "",
        "The last column divides by the number of cores; divide it by the efficiency where that is "
        "known. On one H200 the second line "
        f"takes {duration(BILLION * card_row(card))} at the speed [measured on Adult-9](gpu.md), "
        f"if rows arrive at {4 * 123 / card_row(card) / 1e9:.1f} GB/s. Feature assignments take "
        "one byte per row and feature, 8 GB here.",
    ]


def gaps(record: dict[str, Any]) -> list[float]:
    """Relative errors of the predictions of all large runs."""
    pairs = [(fit["predicted_cpu_seconds"], fit["cpu_seconds"]) for fit in record["vi"]["fits"]]
    sweeps = [record["features"]["fits"][-1]]
    if "vast-vi" in record:
        (fit,) = record["vast-vi"]["fits"]
        pairs.append((fit["predicted_cpu_seconds"], fit["cpu_seconds"]))
    if "vast-features" in record:
        sweeps += record["vast-features"]["fits"]
    pairs += [(one["predicted_cpu_seconds"], one["sweep_cpu_seconds"]) for one in sweeps]
    return [predicted / measured - 1.0 for predicted, measured in pairs]


def card_row(card: dict[str, Any]) -> float:
    """Seconds per row of a pass on the GPU."""
    seconds = card["parts"]["Adult-9 variational"]["result"]["again"]["seconds"]
    return seconds / (ADULT["rows"] * ADULT["passes"])


def duration(seconds: float) -> str:
    """Two digits, in a suitable unit."""
    for size, unit in ((24 * HOUR, "days"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"  # noqa: PLR2004


def where(what: str, stamp: dict[str, Any]) -> str:
    """Machine and commit of a measurement."""
    machine = stamp["machine"]
    return (
        f"{what}: {machine['processor']}, {stamp['started']}, load {machine['load_at_start'][0]:g} "
        f"at the start, commit {stamp['commit']}."
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table with right-aligned numbers."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def _count(passes: int) -> str:
    return "one pass" if passes == 1 else f"{passes} passes"


def main() -> None:
    """Write the page; fail if a prediction is too far off."""
    record, card = (json.loads(path.read_text(encoding="utf-8")) for path in (RECORD, CARD))
    fill_page(PAGE, blocks(record, card))
    if any(abs(gap) > NEAR for gap in gaps(record)):
        sys.exit(f"a prediction is off by more than {100 * NEAR:.0f} %: {gaps(record)}")


if __name__ == "__main__":
    main()
