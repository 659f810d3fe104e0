"""Write docs/gpu.md: ``python -m wideangle_lab.bench.device_page RECORD PAGE``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wideangle_lab.bench.device import NOT_TUNED
from wideangle_lab.marks import fill_page


def render(record: Mapping[str, Any]) -> str:
    """The record as Markdown."""
    parts = {name: part["result"] for name, part in record["parts"].items() if "result" in part}
    lines: list[str] = []
    if ceilings := parts.get("ceilings"):
        lines += [
            f"GPU: {_device(record)}; measured peak {ceilings['matrix_tflops']:.0f} "
            f"TFLOP/s in float32 matrix products (highest precision) and "
            f"{ceilings['copy_gb_s']:,.0f} GB/s in copies.",
            "",
        ]
    for mark in ("", NOT_TUNED):
        name = f"Adult-9 gradient{mark}"
        lines += _gradient(name, parts.get(name), parts.get(f"ceilings{mark}"))
    lines += _many_rows(parts.get("a million rows"), ceilings)
    lines += _directions(parts.get("a million directions"))
    lines += _fits({name: parts[name] for name in parts if name.startswith("Adult-9 ")})
    lines += _many({name: parts[name] for name in parts if name.startswith("many ")})
    for name in ("bootstraps", f"bootstraps{NOT_TUNED}"):
        lines += _bootstraps(record["parts"].get(name))
    lines += _features(parts)
    lines += _stamps(record["parts"])
    return "\n".join(lines)


def _device(record: Mapping[str, Any]) -> str:
    return next(iter(record["parts"].values()))["device"]


def _gradient(
    name: str, result: Mapping[str, Any] | None, ceilings: Mapping[str, float] | None
) -> list[str]:
    if not result:
        return []
    lines = [
        f"## {name}",
        "",
        f"Mixture of experts, value and gradient, {result['rows']:,} rows, "
        f"{result['columns']} columns, {result['n_experts']} experts, all chains in one call.",
        "",
        "| chains | ms | its two matrix products, ms | ratio | share of peak TFLOP/s |",
        "|---:|---:|---:|---:|---:|",
    ]
    for chains, one in result.items():
        if not chains.endswith(" chains"):
            continue
        share = f"{100 * one['tflops'] / ceilings['matrix_tflops']:.0f} %" if ceilings else ""
        lines.append(
            f"| {chains.split()[0]} | {1e3 * one['seconds']:.3f} "
            f"| {1e3 * one['products_seconds']:.3f} "
            f"| {one['seconds'] / one['products_seconds']:.2f} | {share} |"
        )
    return [*lines, ""]


def _many_rows(result: Mapping[str, Any] | None, ceilings: Mapping[str, float] | None) -> list[str]:
    """Sampling with a million rows."""
    if not result:
        return []
    gradient = result["gradient"][f"{result['n_chains']} chains"]
    share = ""
    if ceilings:
        share = f", {100 * gradient['tflops'] / ceilings['matrix_tflops']:.0f} % of the peak"
    return [
        "## A million rows",
        "",
        f"The default classifier's {result['n_chains']} chains on {result['rows']:,} simulated "
        f"rows, {result['columns']} columns, {result['n_experts']} experts: "
        f"{result['seconds_a_draw']:.2f} s for one draw of all chains. A gradient of all chains "
        f"takes {1e3 * gradient['seconds']:.1f} ms ({gradient['tflops']:.0f} TFLOP/s{share}), "
        f"{gradient['seconds'] / gradient['products_seconds']:.2f} times its two products, so a "
        f"draw takes as long as {result['seconds_a_draw'] / gradient['seconds']:.0f} gradients. "
        f"Initialisation, compilation and the first {result['n_first']} steps took "
        f"{result['first_seconds']:.0f} s.",
        "",
    ]


def _directions(result: Mapping[str, Any] | None) -> list[str]:
    """Clusters of a million rows."""
    if not result:
        return []
    one, products, again = result["pass_seconds"], result["products_seconds"], result["again"]
    return [
        "## A million directions",
        "",
        f"`SphericalMixture` with {result['clusters']} clusters on {result['rows']:,} simulated "
        f"rows of {result['columns']:,} columns, kept on the card: a pass takes {one:.2f} s, "
        f"{one / products:.1f} times its two matrix products ({products:.2f} s). A whole fit takes "
        f"{result['first']['seconds']:.0f} s, the next one {again['seconds']:.0f} s, of "
        f"{again['passes']} passes over all rows.",
        "",
    ]


FIT_COLUMNS = (
    "| fit | s, first | s, again | log-loss | accuracy | experts in use | worst R-hat, both |",
    "|---|---:|---:|---:|---:|---:|---:|",
)


def _fit_line(name: str, fit: Mapping[str, Any]) -> str:
    again = fit["again"]
    both = (fit["first"], again)  # with different seeds
    rhat = ", ".join(f"{one['worst_rhat']:.4f}" for one in both) if "worst_rhat" in again else ""
    return (
        f"| {name} | {fit['first']['seconds']:.1f} | {again['seconds']:.1f} "
        f"| {again['log_loss']:.4f} | {100 * again['accuracy']:.2f} % | {again['n_used']:.1f} "
        f"| {rhat} |"
    )


def _fits(fits: Mapping[str, Any]) -> list[str]:
    fits = {name: fit for name, fit in fits.items() if "again" in fit}
    if not fits:
        return []
    lines = ["## Adult-9, 30 experts", "", *FIT_COLUMNS]
    for name, fit in fits.items():
        settings = ", ".join(f"{key}={value}" for key, value in fit["settings"].items())
        label = name.removeprefix("Adult-9 ")
        label += f": {fit['method']}" if fit["method"] else ""
        lines.append(_fit_line(f"{label} ({settings})" if settings else label, fit))
    return [
        *lines,
        "",
        "The worst R-hat is the largest over the log-likelihood, the number of experts in use, the "
        "mean angle and probabilities of rows; it is shown for both fits, which have different "
        "seeds. Above 1.01 the chains have not explored all ways of dividing the rows among so "
        "many experts.",
        "",
    ]


def _many(parts: Mapping[str, Any]) -> list[str]:
    lines = []
    for part in parts.values():
        for name, fit in part.items():
            if isinstance(fit, Mapping):
                label = f"{part['method']}, {name.replace('n_', '')}"
                lines.append(_fit_line(label, fit))
    return ["## Many starts or chains at once", "", *FIT_COLUMNS, *lines, ""] if lines else []


def _bootstraps(part: Mapping[str, Any] | None) -> list[str]:
    """Many default fits of a small table in one program, and one alone."""
    if not part or "result" not in part:
        return []
    found = part["result"]
    n, load = found["n_fits"], part["machine"]["load_at_start"][0]
    lines = [
        "## Many data sets at once",
        "",
        f"Default fits of bootstraps of a table with {found['rows']} rows "
        f"({found['table']}), one alone and {n} in one program by `fit_many`. Other programs used "
        f"the card and the processor at the same time (load {load:.0f} when it began), so seconds "
        "are upper bounds.",
        "",
        "| fits | s, first | s, again | s for each, again | mean draws of a chain | converged |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for name, count in (("one fit", 1), ("all fits", n)):
        first, again = found[f"{name}, first"], found[f"{name}, again"]
        lines.append(
            f"| {count} | {first['seconds']:.1f} | {again['seconds']:.1f} "
            f"| {again['seconds'] / count:.2f} | {again['n_draws']:.0f} "
            f"| {again['converged']} |"
        )
    return [*lines, ""]


def _features(parts: Mapping[str, Any]) -> list[str]:
    rows = [(name, one) for name, one in parts.items() if "sweep_seconds" in one]
    if not rows:
        return []
    lines = [
        "## Sweeps of the feature sampler",
        "",
        "| problem | features | ms per sweep | its two passes over the rows, ms | ratio |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, one in rows:
        floor = one["products_seconds"] + one["cross_seconds"]
        lines.append(
            f"| {name} | {one['n_features']:.0f} | {1e3 * one['sweep_seconds']:.1f} "
            f"| {1e3 * floor:.1f} | {one['sweep_seconds'] / floor:.1f} |"
        )
    return [*lines, ""]


def _stamps(parts: Mapping[str, Any]) -> list[str]:
    lines = [
        "## Where this was measured",
        "",
        "Without autotuning a program compiles faster, but its small matrix products run at a "
        "fraction of their speed: compare only parts with the same flags.",
        "",
    ]
    places: dict[str, list[str]] = {}
    for name, part in parts.items():
        versions = part["versions"]
        flags = f"XLA flags `{part['xla_flags']}`" if part.get("xla_flags") else "no XLA flags"
        place = f"JAX {versions['jax']}, Python {versions['python']}, {flags}"
        places.setdefault(place, []).append(name)
    return [*lines, *(f"- {place}: {'; '.join(names)}." for place, names in places.items())]


if __name__ == "__main__":
    source, page = (Path(name) for name in sys.argv[1:3])
    fill_page(page, {"record": render(json.loads(source.read_text("utf-8")))})
