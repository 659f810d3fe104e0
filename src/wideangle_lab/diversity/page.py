"""From the records to docs/where-diversity-pays.md, by the rules of that page.

``python -m wideangle_lab.diversity.page results/diversity docs/where-diversity-pays.md``
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as student

from wideangle_lab.bench.defaults.tables import TABLES
from wideangle_lab.diversity.small_tables import N_CHAINS, N_DRAWS, NONE, THIN
from wideangle_lab.marks import fill_page

MATTERS, RHAT, FEWEST, LEVEL = 0.01, 1.05, 15, 0.95
POWER = 2.8
"""Size of an effect that is detected with a power of 80 %, in standard errors."""


class Gain(NamedTuple):
    """Gain of an arm on a table, in nats, with the standard error corrected for shared rows."""

    mean: float
    error: float
    n_splits: int
    base: float
    """Log-loss without repulsion on the same splits."""

    @property
    def p_value(self) -> float:
        """Two-sided p-value."""
        return float(2 * student.sf(abs(self.mean) / self.error, self.n_splits - 1))

    def interval(self) -> tuple[float, float]:
        """Student's t."""
        reach = student.ppf((1 + LEVEL) / 2, self.n_splits - 1) * self.error
        return self.mean - reach, self.mean + reach


def gain_of(table: Mapping[str, Any], arm: str) -> Gain | None:
    """The gain on splits whose chains converged in both arms; None if there are too few."""
    arms = table["arms"]
    columns = [arms.index(NONE), arms.index(arm)]
    losses, rhats = (np.asarray(table[name])[:, columns] for name in ("log_loss", "rhat"))
    losses = losses[np.all(rhats <= RHAT, axis=1)]
    if len(losses) < FEWEST:
        return None
    gains = losses[:, 0] - losses[:, 1]
    shared = 1.0 / len(gains) + table["n_test"] / table["n_train"]
    error = float(np.std(gains, ddof=1) * np.sqrt(shared))
    return Gain(float(np.mean(gains)), error, len(gains), float(np.mean(losses[:, 0])))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for multiple comparisons (Holm).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order, found, largest = np.argsort(p_values), [0.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        found[index] = largest
    return found


class Overall(NamedTuple):
    """Gain of an arm over all tables, relative to the log-loss without repulsion."""

    mean: float
    low: float
    high: float
    better: int
    worse: int
    """Tables whose corrected p-value is below 5 %."""
    n_tables: int

    @property
    def verdict(self) -> str:
        """Verdict by the rules of the page."""
        if self.low > 0 and self.mean >= MATTERS:
            return "pays"
        if self.high < 0:
            return "harms"
        if -MATTERS < self.low and self.high < MATTERS:
            return "makes no difference that matters"
        return f"cannot be decided; a gain above {self.high:.1%} is excluded"


def overall(gains: Sequence[Gain]) -> Overall:
    """The mean over tables and its interval."""
    relative = np.array([gain.mean / gain.base for gain in gains])
    error = np.std(relative, ddof=1) / np.sqrt(len(relative))
    reach = float(student.ppf((1 + LEVEL) / 2, len(relative) - 1) * error)
    mean, corrected = float(np.mean(relative)), holm([gain.p_value for gain in gains])
    clear = [g.mean > 0 for g, p in zip(gains, corrected, strict=True) if p < 1 - LEVEL]
    return Overall(
        mean, mean - reach, mean + reach, sum(clear), len(clear) - sum(clear), len(gains)
    )


def small_tables(record: Mapping[str, Any]) -> str:
    """The results of the small tables."""
    tables: Mapping[str, Any] = record["tables"]
    arms = [arm for arm in next(iter(tables.values()))["arms"] if arm != NONE]
    found = {arm: {name: gain_of(table, arm) for name, table in tables.items()} for arm in arms}
    known = {arm: [g for g in gains.values() if g is not None] for arm, gains in found.items()}
    totals = {arm: overall(gains) for arm, gains in known.items()}
    lines = [
        *_answer(totals),
        "",
        "| prior of the directions | gain over all tables | tables with a clear gain | loss "
        "| verdict |",
        "|---|---:|---:|---:|---|",
    ]
    for arm, total in totals.items():
        interval = f"{total.mean:+.2%} [{total.low:+.2%}, {total.high:+.2%}]"
        counts = f"{total.better} of {total.n_tables} | {total.worse} of {total.n_tables}"
        lines.append(f"| {arm} | {interval} | {counts} | {total.verdict} |")
    lines += [
        "",
        "Gains are relative to the log-loss without repulsion. By table, in nats, with 95 % "
        "intervals; the last column is the effect that could have been found with a power of 80 %:",
        "",
        "| table | training rows | log-loss, none | " + " | ".join(arms) + " | detectable |",
        "|---|---:|---:|" + "---:|" * (len(arms) + 1),
    ]
    for name, table in tables.items():
        row = [found[arm][name] for arm in arms]
        some = [gain for gain in row if gain is not None]
        base = f"{some[0].base:.4f}" if some else ""
        least = f"{POWER * np.median([gain.error for gain in some]):.4f}" if some else ""
        cells = " | ".join(_cell(gain) for gain in row)
        title = TABLES[name].title
        lines.append(f"| {title} | {table['n_train']:,} | {base} | {cells} | {least} |")
    return "\n".join([*lines, "", *_notes(record)])


def _answer(totals: Mapping[str, Overall]) -> list[str]:
    said = {total.verdict for total in totals.values()}
    if said == {"makes no difference that matters"}:
        return [
            "**On small tables repulsion makes no difference that matters**, at any strength tried."
        ]
    groups: dict[str, list[str]] = {}
    for arm, total in totals.items():
        groups.setdefault(total.verdict, []).append(arm)
    return [f"- **{', '.join(names)}: {verdict}**" for verdict, names in groups.items()]


def _cell(gain: Gain | None) -> str:
    if gain is None:
        return f"fewer than {FEWEST} converged splits"
    low, high = gain.interval()
    return f"{gain.mean:+.4f} [{low:+.4f}, {high:+.4f}]"


def _notes(record: Mapping[str, Any]) -> list[str]:
    tables = record["tables"].values()
    stamp, n_fits = next(iter(tables))["stamp"], sum(np.size(t["log_loss"]) for t in tables)
    n_draws, divergent = n_fits * N_CHAINS * (N_DRAWS // THIN), sum(t["divergent"] for t in tables)
    minutes, versions = sum(table["seconds"] for table in tables) / 60, stamp["versions"]
    return [
        f"All {n_fits:,} fits took {minutes:.1f} minutes on one {stamp['device']}, with "
        f"compilation; {divergent:,} of {n_draws:,} kept draws were divergent. Seed 0, Python "
        f"{versions['python']}, JAX {versions['jax']}. Commands:",
        "",
        "```sh",
        "python -m wideangle_lab.diversity.small_tables results/diversity/small-tables.json",
        "python -m wideangle_lab.diversity.page results/diversity docs/where-diversity-pays.md",
        "```",
    ]


def main(folder: str, page: str) -> None:
    """Put the results between the marks of the page."""
    record = json.loads((Path(folder) / "small-tables.json").read_text(encoding="utf-8"))
    fill_page(Path(page), {"results": small_tables(record)})


if __name__ == "__main__":
    main(*sys.argv[1:])
