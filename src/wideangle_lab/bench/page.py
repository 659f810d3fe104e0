"""Write docs/performance.md and the numbers of the README from a record.

``python -m wideangle_lab.bench.page results/bench/full.json docs/performance.md README.md`` writes
the page, draws its picture (``images/growth.png``, next to the page), and puts five rows between
the two marks of the README.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from wideangle_lab.bench.record import OURS, Case, Series, from_json, show, show_factor
from wideangle_lab.marks import fill_page

COMMAND = "wideangle bench"
HIGHLIGHTS = {
    ("10,000 vMF draws, p=1000, kappa=500", "s", "SciPy (float64)"): (
        "10,000 von Mises-Fisher draws, 1000 dimensions"
    ),
    ("mixture of experts, N=5000, p=20, K=5", "ESS / CPU s", "BlackJAX NUTS, our starts"): (
        "sampling a mixture of experts, 5000 rows"
    ),
    ("VI, N=32561, K=30, whole fit", "s", "gradient boosting (HistGradientBoosting)"): (
        "variational fit of 32,561 rows"
    ),
    ("Block-Images: error against clean rows", "RMSE", "PCA"): (
        "latent features, reconstruction error"
    ),
    ("Block-Images: whole fit", "s", "PCA"): "latent features, whole fit",
}
"""Case, unit and rival of each row of the README, and its label; wins and losses."""
PICTURE = Path("images") / "growth.png"
"""Relative to the page."""
NAMES = {
    "python": "Python",
    "jax": "JAX",
    "numpyro": "NumPyro",
    "blackjax": "BlackJAX",
    "catboost": "CatBoost",
    "scikit-learn": "scikit-learn",
    "numpy": "NumPy",
    "scipy": "SciPy",
}


def render(record: Mapping[str, Any]) -> str:
    """The record as Markdown."""
    areas = {name: [from_json(case) for case in area["cases"]] for name, area in _areas(record)}
    parts = [f"`make bench` writes this page from the record. {where(record)}"]
    parts += ["\n## Targets\n", *targets(areas)]
    for name, area in _areas(record):
        parts += [f"\n## {name}\n", f"{when(area['stamp'], record)}\n"]
        parts += table([case for case in areas[name] if case.curve is None])
        parts += growth([case for case in areas[name] if case.curve is not None])
        notes = dict.fromkeys(case.note for case in areas[name] if case.note)
        parts += ["", *notes] if notes else []
    return "\n".join(parts)


def _areas(record: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return list(record["areas"].items())


def where(record: Mapping[str, Any]) -> str:
    """One sentence: command, seed, machine and versions of the first area."""
    stamp = _areas(record)[0][1]["stamp"]
    settings = record["settings"]
    quick = " --quick" if settings["quick"] else ""
    return f"Command: `{COMMAND}{quick} --seed {settings['seed']}`, on {machine_of(stamp)}."


def machine_of(stamp: Mapping[str, Any]) -> str:
    """Cores, processor, memory and versions of a stamp."""
    return f"{computer_of(stamp)}, {', '.join(versions_of(stamp))}"


def computer_of(stamp: Mapping[str, Any]) -> str:
    """Accelerator, cores, processor and memory of a stamp."""
    machine = stamp["machine"]
    device = f"an {machine['device']} and " if "device" in machine else ""
    return (
        f"{device}{machine['cores']} cores of an {machine['processor']} with "
        f"{machine['memory_gib']:.0f} GiB"
    )


def versions_of(stamp: Mapping[str, Any]) -> list[str]:
    """Python and packages of a stamp, each with its version."""
    versions = stamp["versions"]
    return [f"{name} {versions[key]}" for key, name in NAMES.items() if key in versions]


def when(stamp: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """Time, load, duration and commit of one area; its machine if that is not the first area's."""
    first = _areas(record)[0][1]["stamp"]
    other = "" if machine_of(stamp) == machine_of(first) else f" on {machine_of(stamp)}"
    return (
        f"Measured {stamp['finished']} in {stamp['seconds']:.0f} s{other}, load "
        f"{stamp['machine']['load_at_start'][0]:g} at the start, commit "
        f"{stamp['commit'] or 'unknown'}."
    )


def targets(areas: Mapping[str, Sequence[Case]]) -> list[str]:
    """Every target, and whether it was met."""
    lines = ["| area | case | against | times better | target | |", "|---|---|---|---:|---:|---|"]
    for area, cases in areas.items():
        for case in cases:
            missed, factors = case.missed(), case.factors()
            for name, least in case.targets.items():
                verdict = "**missed**" if name in missed else "met"
                lines.append(
                    f"| {area} | {case.name} | {name} | {show_factor(factors[name])} | "
                    f"{show_factor(least)} | {verdict} |"
                )
            if case.curve is not None and case.curve.most is not None:
                verdict = "**missed**" if missed else "met"
                lines.append(
                    f"| {area} | {case.name} | exponent | {case.entries[OURS].median:.3g} | "
                    f"≤ {case.curve.most:g} | {verdict} |"
                )
    return lines


def table(cases: Sequence[Case]) -> list[str]:
    """All comparisons of an area."""
    if not cases:
        return []
    head = "| case | rival | times better | wideangle | rival's value | unit | repeats | target |"
    return [
        head,
        "|---|---|---:|---:|---:|---|---:|---:|",
        *(row for case in cases for row in _rows(case)),
    ]


def growth(cases: Sequence[Case]) -> list[str]:
    """Exponents, and the plot that they are fitted to."""
    if not cases:
        return []
    lines = [f"![Cost against size]({PICTURE.as_posix()})\n"]
    lines += ["| cost | in | from | to | exponent | limit |", "|---|---|---:|---:|---:|---:|"]
    for case in cases:
        assert case.curve is not None
        low, high = case.entries[OURS].quartiles
        sizes = case.curve.sizes
        limit = "" if case.curve.most is None else f"{case.curve.most:g}"
        lines.append(
            f"| {case.name} | {case.curve.axis} | {sizes[0]:,.0f} | {sizes[-1]:,.0f} | "
            f"{case.entries[OURS].median:.2f} ({low:.2f} to {high:.2f}) | "
            f"{limit}{', **missed**' * bool(case.missed())} |"
        )
    return lines


def render_summary(record: Mapping[str, Any]) -> str:
    """The rows of the README; the ratio is that of the two printed numbers."""
    lines = [
        "| measured | wideangle | other | ratio | repeats | commit |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for _, area in _areas(record):
        for case in map(from_json, area["cases"]):
            for rival in case.entries:
                if label := HIGHLIGHTS.get((case.name, case.unit, rival)):
                    lines.append(_highlight(label, case, rival, area["stamp"]["commit"]))
    return "\n".join([*lines, "", where(record)])


def _highlight(label: str, case: Case, rival: str, commit: str | None) -> str:
    ours, theirs = (float(f"{case.entries[one].median:.3g}") for one in (OURS, rival))
    better = ours >= theirs if case.higher_is_better else ours <= theirs
    times = show(float(f"{max(ours, theirs) / min(ours, theirs):.2g}"))
    return (
        f"| {label} | {_value(case, OURS)} | {_value(case, rival)}, {rival} | "
        f"{times} × {'better' if better else 'worse'} | {len(case.entries[OURS].values)} | "
        f"{(commit or 'unknown')[:7]} |"
    )


def _rows(case: Case) -> Iterator[str]:
    ours, repeats = _spread(case.entries[OURS]), len(case.entries[OURS].values)
    if not case.factors():
        yield f"| {case.name} | | | {ours} | | {case.unit} | {repeats} | |"
    missed = case.missed()
    for name, factor in case.factors().items():
        least = case.targets.get(name)
        target = "" if least is None else show_factor(least) + ", **missed**" * (name in missed)
        yield (
            f"| {case.name} | {name} | {show_factor(factor)} | {ours} | "
            f"{_spread(case.entries[name])} | {case.unit} | {repeats} | {target} |"
        )


def _spread(series: Series) -> str:
    """The median, and the interquartile range if repeats differ."""
    middle, (low, high) = show(series.median), map(show, series.quartiles)
    return middle if low == high else f"{middle} ({low} to {high})"


def _value(case: Case, name: str) -> str:
    value = case.entries[name].median
    if case.unit == "s":
        return f"{show(1e3 * value)} ms" if value < 1 else f"{show(value)} s"
    return show(value) if case.unit == "count" else f"{show(value)} {case.unit}"


def main(arguments: list[str]) -> None:
    """Read the record, write the page and its picture, refresh the README."""
    source, page, *readme = map(Path, arguments)
    record = json.loads(source.read_text(encoding="utf-8"))
    fill_page(page, {"record": render(record)})
    cases = [from_json(case) for _, area in _areas(record) for case in area["cases"]]
    curves = [case for case in cases if case.curve is not None]
    if curves:
        from wideangle_lab.bench.pictures import draw_growth

        draw_growth(curves, page.parent / PICTURE)
    for path in readme:
        fill_page(path, {"numbers": render_summary(record)})


if __name__ == "__main__":
    main(sys.argv[1:])
