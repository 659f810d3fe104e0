"""From the record to docs/cluster-results.md.

``python -m wideangle_lab.bench.clusters.page results/bench/clusters.json docs/cluster-results.md``
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

from wideangle_lab.bench.clusters.corpora import TITLES
from wideangle_lab.bench.page import machine_of
from wideangle_lab.bench.record import OURS, from_json, show
from wideangle_lab.marks import fill_page

WORDS = {"map": "Maximisation", "vi": "Variational inference", "mcmc": "Sampling"}
COMMAND = "wideangle bench --area clusters"
SCORES = {
    "log_density": ("log density", False),
    "nmi": ("NMI (k-means)", True),
    "rare_recall": ("recall of rare classes (k-means)", True),
}
"""Scores on the page, in words, and whether k-means has them."""
Cell = Mapping[str, Any]


class Interval(NamedTuple):
    """A mean over splits and the half-width of its 95 % interval."""

    mean: float
    half: float

    @property
    def sign(self) -> int:
        """1 if the interval is above zero, -1 if below, 0 if it contains zero."""
        return int(np.sign(self.mean)) if abs(self.mean) > self.half else 0

    def __str__(self) -> str:
        """Bold if the interval excludes zero."""
        text = f"{self.mean:+.2f} ± {self.half:.2f}"
        return f"**{text}**" if self.sign else text


def paired(differences: Sequence[float]) -> Interval:
    """Student's interval of a mean of paired differences."""
    values = np.asarray(differences, float)
    if len(values) < 2:  # noqa: PLR2004
        return Interval(float(values.mean()), np.inf)
    error = values.std(ddof=1) / np.sqrt(len(values))
    return Interval(float(values.mean()), float(error * student.ppf(0.975, len(values) - 1)))


class Table(NamedTuple):
    """All cells of a corpus with one inference."""

    corpus: str
    cells: Mapping[int, Mapping[str, Cell]]
    """By number of clusters, then by split."""

    @property
    def title(self) -> str:
        """Title on the page."""
        return TITLES[self.corpus]

    @property
    def most(self) -> int:
        """The largest number of clusters."""
        return max(self.cells)

    def difference(self, n: int, score: str) -> Interval:
        """With repulsion minus without."""
        cells = self.cells[n].values()
        return paired([cell["with"][score] - cell["without"][score] for cell in cells])

    def mean(self, n: int, model: str, score: str) -> float:
        """Mean over splits."""
        return float(np.mean([cell[model][score] for cell in self.cells[n].values()]))

    def tuned(self, split: str) -> int:
        """The number of clusters chosen on training rows, without repulsion."""
        return max(self.cells, key=lambda n: self.cells[n][split]["inner"]["0"])

    def beside_tuned(self, model: str, score: str) -> Interval:
        """Score at the largest number of clusters minus that at the chosen number."""
        return paired([
            cell[model][score] - self.cells[self.tuned(split)][split]["without"][score]
            for split, cell in self.cells[self.most].items()
        ])  # fmt: skip


def tables(record: Mapping[str, Any], inference: str) -> list[Table]:
    """The measured corpora, in order, with the splits that are complete."""
    found = []
    for corpus in TITLES:
        cells: dict[int, dict[str, Cell]] = {}
        for name, cell in record["cells"].items():
            where, split, how, clusters = name.split("/")
            if (where, how) == (corpus, inference):
                cells.setdefault(int(clusters), {})[split] = cell
        splits = set.intersection(*map(set, cells.values())) if cells else set()
        if splits:
            whole = {n: {s: cells[n][s] for s in sorted(splits)} for n in sorted(cells)}
            found.append(Table(corpus, whole))
    return found


def render(record: Mapping[str, Any]) -> str:
    """The record as Markdown."""
    parts = []
    for inference, words in WORDS.items():
        if found := tables(record, inference):
            scores = SCORES if inference == "map" else ("log_density",)
            parts += [f"## {words}", verdict(found), effect(found), grid(found, scores)]
    if "convergence" in record:
        parts += ["## Convergence of the chains", *map(converged, record["convergence"].items())]
    if "speed" in record:
        parts += ["## CPU seconds of a pass", speed(record["speed"])]
    if "disk" in record:
        parts += ["## Rows on disk", on_disk(record["disk"])]
    parts.append(where(record))
    return "\n\n".join(parts)


def where(record: Mapping[str, Any]) -> str:
    """Seeds, machines and versions; commits are in the record."""
    lines = [
        f"- {name}: seed {one['seed']}, finished {one['finished']}, load {_load(one):g}, on "
        f"{machine_of(one)}"
        for name, one in sorted(record["stamps"].items())
    ]
    return "\n".join([f"Measured by `{COMMAND}`:", "", *lines])


def _load(stamp: Mapping[str, Any]) -> float:
    return stamp["machine"]["load_at_start"][0]


def verdict(found: Sequence[Table]) -> str:
    """The largest number of clusters, compared with a number chosen on training rows."""
    most = found[0].most

    def count(model: str) -> str:
        signs = [table.beside_tuned(model, "log_density").sign for table in found]
        return (
            f"higher on {signs.count(1)}, lower on {signs.count(-1)} and unclear on "
            f"{signs.count(0)} of {len(found)} corpora"
        )

    return (
        f"Held-out log density with {most} clusters, compared with a number of clusters chosen on "
        f"training rows: {count('without')} without repulsion, {count('with')} with it."
    )


def effect(found: Sequence[Table]) -> str:
    """What the repulsion changes, over all corpora and numbers of clusters."""
    changes = {
        (table.title, n): table.difference(n, "log_density") for table in found for n in table.cells
    }
    signs = [change.sign for change in changes.values()]
    (title, n), largest = max(changes.items(), key=lambda item: abs(item[1].mean))
    return (
        f"Of {len(signs)} paired 95 % intervals for the change in log density by repulsion, "
        f"{signs.count(0)} contain zero, {signs.count(1)} are above it and {signs.count(-1)} "
        f"below. The largest mean change is {largest.mean:+.2f} ± {largest.half:.2f} ({title}, "
        f"{n} clusters)."
    )


def grid(found: Sequence[Table], scores: Iterable[str]) -> str:
    """Scores without repulsion for every number of clusters, and those of k-means in brackets."""
    numbers = sorted({n for table in found for n in table.cells})
    rows = [
        f"| corpus | score | {' | '.join(map(str, numbers))} |",
        "|---|---" + "|---:" * len(numbers) + "|",
    ]
    for table in found:
        for score in scores:
            (words, rival), values = SCORES[score], []
            for n in numbers:
                if n not in table.cells:
                    values.append("")
                    continue
                value = f"{table.mean(n, 'without', score):.2f}"
                other = f" ({table.mean(n, 'k-means', score):.2f})" if rival else ""
                values.append(value + other)
            rows.append(f"| {table.title} | {words} | {' | '.join(values)} |")
    return "\n".join(rows)


def converged(item: tuple[str, Mapping[str, Any]]) -> str:
    """Chains of the study compared with longer ones from the same starts."""
    corpus, found = item
    lengths = list(next(iter(found["log_density"].values())))
    rows = [
        f"{TITLES[corpus]}, {found['clusters']} clusters: held-out log density of chains from "
        "several starts, as long as in the study and longer.",
        "",
        "| strength of the repulsion | times as long | mean of starts | lowest | highest |",
        "|---:|---:|---:|---:|---:|",
    ]
    for cosine, values in found["log_density"].items():
        for length in lengths:
            one = values[length]
            ends = f"{np.mean(one):.2f} | {min(one):.2f} | {max(one):.2f}"
            rows.append(f"| {cosine} | {length} | {ends} |")
    return "\n".join(rows)


def speed(cases: Sequence[Mapping[str, Any]]) -> str:
    """CPU seconds of a pass, compared with other programs and with the targets."""
    rows = ["| case | other | wideangle, CPU s | other, CPU s | ratio | target |"]
    rows.append("|---|---|---:|---:|---:|---:|")
    for case in map(from_json, cases):
        for name in case.factors():
            ours, other = case.entries[OURS].median, case.entries[name].median
            wish = f"at most {1 / case.targets[name]:g}" if name in case.targets else ""
            missed = " **missed**" if name in case.missed() else ""
            rows.append(
                f"| {case.name} | {name} | {show(ours)} | {show(other)} | "
                f"{ours / other:.2f} | {wish}{missed} |"
            )
    return "\n".join(rows)


def on_disk(found: Mapping[str, Any]) -> str:
    """Time and memory of a fit to rows in a file."""
    return (
        f"{found['rows']:,} rows of {found['columns']:,} columns, a file of {found['file_mib']:,} "
        f"MiB, with {found['clusters']} clusters: the fit, a start on a sample and "
        f"{found['passes']} passes through all rows, took {found['cpu_seconds']:.0f} s of CPU time "
        f"and at most {found['peak_mib']:,} MiB more memory than before it."
    )


if __name__ == "__main__":
    found = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    fill_page(Path(sys.argv[2]), {"record": render(found)})
