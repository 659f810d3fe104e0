"""From the records to docs/where-diversity-pays.md, by the rules of that page.

``python -m wideangle_lab.diversity.page results docs/where-diversity-pays.md``
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from wideangle_lab.bench.clusters.corpora import TITLES
from wideangle_lab.bench.defaults.tables import TABLES
from wideangle_lab.datasets import MANIFEST
from wideangle_lab.diversity.small_tables import N_CHAINS, N_DRAWS, NONE, THIN
from wideangle_lab.marks import fill_page
from wideangle_lab.paper.cells import CLASSIFIERS, FEATURES
from wideangle_lab.paper.feature_claims import feature_ablations, feature_claims
from wideangle_lab.paper.records import Record, read_all
from wideangle_lab.splits import Effect, holm, mean_effect, over_splits

MATTERS, RHAT, FEWEST, CLEAR = 0.01, 1.05, 15, 0.05
VARIATIONAL = ("building", "adult9", "rcv1_subsets.s1", "rcv1_subsets.s2")
WITHOUT, WITH = "BMEM-V-VI", "BMEM-MABN-II"
SPLITS, N_EXPERTS = range(1, 6), 10
TOO_MANY = {"map": 200, "mcmc": 100}
"""The largest number of clusters of each inference in the record of clusters."""


class Gain(NamedTuple):
    """Gain of an arm on a table, in nats."""

    effect: Effect
    base: float
    """Log-loss without repulsion on the same splits."""

    @property
    def p_value(self) -> float:
        """Two-sided p-value."""
        return 2 * min(self.effect.p_above(0.0), self.effect.p_below(0.0))


def gain_of(table: Mapping[str, Any], arm: str) -> Gain | None:
    """The gain on splits whose chains converged in both arms; None if there are too few."""
    arms = table["arms"]
    columns = [arms.index(NONE), arms.index(arm)]
    losses, rhats = (np.asarray(table[name])[:, columns] for name in ("log_loss", "rhat"))
    losses = losses[np.all(rhats <= RHAT, axis=1)]
    if len(losses) < FEWEST:
        return None
    gains = losses[:, 0] - losses[:, 1]
    return Gain(
        over_splits(gains.tolist(), table["n_test"] / table["n_train"]), float(losses[:, 0].mean())
    )


class Overall(NamedTuple):
    """Gain of an arm over all tables, relative to the log-loss without repulsion."""

    effect: Effect
    better: int
    worse: int
    """Tables whose corrected p-value is below 5 %."""
    n_tables: int

    @property
    def verdict(self) -> str:
        """Verdict by the rules of the page."""
        low, high = self.effect.interval
        if low > 0 and self.effect.mean >= MATTERS:
            return "pays"
        if high < 0:
            return "harms"
        if -MATTERS < low and high < MATTERS:
            return "makes no difference that matters"
        return f"cannot be decided; a gain above {high:.1%} is excluded"


def overall(gains: Sequence[Gain]) -> Overall:
    """The mean over tables and its interval."""
    effect = over_splits([gain.effect.mean / gain.base for gain in gains], 0.0)
    corrected = holm([gain.p_value for gain in gains])
    clear = [g.effect.mean > 0 for g, p in zip(gains, corrected, strict=True) if p < CLEAR]
    return Overall(effect, sum(clear), len(clear) - sum(clear), len(gains))


def small_tables(record: Mapping[str, Any]) -> tuple[list[tuple[str, str, str]], str]:
    """Rows of the first table of the page, and the results of the small tables."""
    tables: Mapping[str, Any] = record["tables"]
    arms = [arm for arm in next(iter(tables.values()))["arms"] if arm != NONE]
    found = {arm: {name: gain_of(table, arm) for name, table in tables.items()} for arm in arms}
    totals = {arm: overall([g for g in found[arm].values() if g is not None]) for arm in arms}
    lines = [
        "| table | training rows | log-loss, none | " + " | ".join(arms) + " | detectable |",
        "|---|---:|---:|" + "---:|" * (len(arms) + 1),
    ]
    for name, table in tables.items():
        row = [found[arm][name] for arm in arms]
        some = [gain for gain in row if gain is not None]
        base = f"{some[0].base:.4f}" if some else ""
        least = f"{np.median([gain.effect.detectable for gain in some]):.4f}" if some else ""
        cells = " | ".join(_cell(gain) for gain in row)
        title = TABLES[name].title
        lines.append(f"| {title} | {table['n_train']:,} | {base} | {cells} | {least} |")
    rows = [
        (f"small tables, sampling: {arm}", total.verdict, total.effect.text("+.2%"))
        for arm, total in totals.items()
    ]
    return rows, "\n".join([*lines, "", _notes(record)])


def _cell(gain: Gain | None) -> str:
    return f"fewer than {FEWEST} converged splits" if gain is None else gain.effect.text()


def _notes(record: Mapping[str, Any]) -> str:
    tables = record["tables"].values()
    stamp, n_fits = next(iter(tables))["stamp"], sum(np.size(t["log_loss"]) for t in tables)
    n_draws, divergent = n_fits * N_CHAINS * (N_DRAWS // THIN), sum(t["divergent"] for t in tables)
    minutes, versions = sum(table["seconds"] for table in tables) / 60, stamp["versions"]
    return (
        f"All {n_fits:,} fits took {minutes:.1f} minutes on one {stamp['device']}, with "
        f"compilation; {divergent:,} of {n_draws:,} kept draws were divergent. Seed 0, Python "
        f"{versions['python']}, JAX {versions['jax']}."
    )


def variational(records: Iterable[Record]) -> tuple[list[tuple[str, str, str]], str]:
    """The variational fits with and without angles, split by split."""
    kept = {
        (one.cell.data, one.cell.method, one.cell.seed): one
        for one in records
        if one.cell.n_experts == N_EXPERTS and one.cell.seed in SPLITS
    }
    gains: dict[str, Gain] = {}
    lines = [
        "| table | splits | log-loss, without | gain | detectable | accuracy, gain in points "
        "| experts, without and with |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for data in VARIATIONAL:
        both = [[kept.get((data, m, s)) for s in SPLITS] for m in (WITHOUT, WITH)]
        pairs = [(a, b) for a, b in zip(*both, strict=True) if a is not None and b is not None]
        if len(pairs) < 2:  # noqa: PLR2004
            continue
        shared = pairs[0][0].metrics["n_test"] / pairs[0][0].metrics["n_train"]
        loss, right = (
            np.array([[one.metrics[name] for one in pair] for pair in pairs])
            for name in ("log_loss", "accuracy")
        )
        used = np.mean([[one.diagnostics["n_used"] for one in pair] for pair in pairs], axis=0)
        effect = over_splits((loss[:, 0] - loss[:, 1]).tolist(), shared)
        points = over_splits((right[:, 1] - right[:, 0]).tolist(), shared)
        gains[data] = Gain(effect, float(loss[:, 0].mean()))
        lines.append(
            f"| {_title(data)} | {len(pairs)} | {gains[data].base:.4f} | {effect.text()} "
            f"| {effect.detectable:.4f} | {points.text('+.2f')} | {used[0]:.1f}, {used[1]:.1f} |"
        )
    what = "variational fits that leave experts unused"
    if len(gains) < len(VARIATIONAL) // 2:
        return [(what, f"cannot be decided with {len(gains)} tables", "")], "\n".join(lines)
    total = overall(list(gains.values()))
    clear = [p < CLEAR for p in holm([gain.p_value for gain in gains.values()])]
    lines.append("\nAfter Holm's correction the gain is clear on " + _named(gains, clear) + ".")
    verdict = total.verdict
    if len(gains) < len(VARIATIONAL):
        high = total.effect.interval[1]
        verdict = f"cannot be decided with {len(gains)} of {len(VARIATIONAL)} tables; "
        verdict += f"on these a gain above {high:.1%} is excluded"
    row = (what, verdict, total.effect.text("+.2%"))
    return [row], "\n".join(lines)


def _named(gains: Mapping[str, Gain], clear: Sequence[bool]) -> str:
    names = [_title(name) for name, one in zip(gains, clear, strict=True) if one]
    return ", ".join(names) if names else "none of them"


def _title(data: str) -> str:
    name, _, sample = data.partition(".")
    return f"{MANIFEST[name].title} {sample}".strip()


def clusters(record: Mapping[str, Any]) -> tuple[list[tuple[str, str, str]], str]:
    """Clusters of directions with more clusters than needed, with and without repulsion."""
    size, rows = record["size"], []
    shared = size["n_test"] / size["n_train"]
    lines = ["| corpus | inference | clusters | gain, nats per row |", "|---|---|---:|---:|"]
    for inference, n_clusters in TOO_MANY.items():
        effects = []
        for corpus in size["corpora"]:
            cells = [
                record["cells"][f"{corpus}/{split}/{inference}/{n_clusters}"]
                for split in range(size["n_splits"])
            ]
            gaps = [c["with"]["log_density"] - c["without"]["log_density"] for c in cells]
            effects.append(over_splits(gaps, shared))
            words = f"| {TITLES[corpus]} | `{inference}` | {n_clusters} "
            lines.append(f"{words}| {effects[-1].text('+.2f')} |")
        total = mean_effect(effects)
        rows.append(
            (
                f"clusters of directions, {n_clusters} clusters, `{inference}`",
                _afterwards(total, ".2f", " nats per row"),
                total.text("+.2f") + " nats per row",
            )
        )
    return rows, "\n".join(lines)


def features(records: Sequence[Record]) -> list[tuple[str, str, str]]:
    """Latent features, by the chains there are, which did not converge."""
    claims = feature_claims(records)
    angles = feature_ablations(records)[0]
    wanted = {
        "latent features: held-out likelihood, repulsion and none": angles,
        "latent features: fewer of them": claims[3],
        "rare categories of Reuters: precision at 100": claims[4],
    }
    rows = []
    for name, claim in wanted.items():
        effect = claim.effect
        if effect is not None:
            shown = f"{effect.text(claim.form)}{claim.unit}"
            rows.append((name, _afterwards(effect, claim.form[1:], claim.unit), shown))
    return rows


def _afterwards(effect: Effect, form: str, unit: str) -> str:
    low, high = effect.interval
    if low > 0:
        return "a gain; not registered"
    if high < 0:
        return "a loss; not registered"
    return f"no clear difference, a gain above {high:{form}}{unit} is excluded; not registered"


def main(folder: str, page: str) -> None:
    """Put the results between the marks of the page."""
    results = Path(folder)

    def read(name: str) -> dict[str, Any]:
        return json.loads((results / name).read_text(encoding="utf-8"))

    small, of_small = small_tables(read("diversity/small-tables.json"))
    collapse, of_collapse = variational(read_all(results / "cells", CLASSIFIERS))
    many, of_clusters = clusters(read("bench/clusters.json"))
    rows = [*small, *collapse, *many, *features(list(read_all(results / "cells", FEATURES)))]
    lines = ["| where | verdict | gain, 95 % interval |", "|---|---|---:|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    blocks = {
        "results": "\n".join(lines),
        "small tables": of_small,
        "variational": of_collapse,
        "clusters": of_clusters,
    }
    fill_page(Path(page), blocks)


if __name__ == "__main__":
    main(*sys.argv[1:])
