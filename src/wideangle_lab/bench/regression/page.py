"""Write docs/regression-results.md from the record.

``python -m wideangle_lab.bench.regression.page RECORD docs/regression-results.md``, where the
record is ``results/bench/regression.json``.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from scipy.stats import binom

from wideangle.presentation.family import share_interval
from wideangle_lab.bench.defaults.loop import FIT, RIVALS
from wideangle_lab.bench.defaults.page import verdicts, where
from wideangle_lab.bench.defaults.targets import Target, busy
from wideangle_lab.bench.record import OURS
from wideangle_lab.bench.regression.rivals import LINEAR
from wideangle_lab.bench.regression.rivals import RIVALS as OTHERS
from wideangle_lab.bench.regression.tables import QUANTITIES
from wideangle_lab.datasets.dataset import TRAIN_FRACTION
from wideangle_lab.marks import fill_page
from wideangle_lab.splits import Effect, over_splits

SHOWN = (OURS, *OTHERS)
LEVELS = ("50", "80", "95")
OFF, ABOVE = 0.03, 0.02
"""Largest allowed error of coverage, and excess of our scores over the linear model."""
COMPARED = {"log_density": "+.2f", "crps": "+.1%", "rmse": "+.1%"}
"""Scores that are compared with those of the linear model, and how differences are written."""
CHANCE = 0.95
"""Level of the binomial interval for errors of coverage that are due to chance."""


class Summary(NamedTuple):
    """All splits of a table with both parts."""

    name: str
    n_splits: int
    shape: tuple[int, int]
    scores: Mapping[str, Mapping[str, float]]
    """By regressor: means over the splits, seconds as a median."""
    excess: Mapping[str, Effect]
    """By score: ours minus that of the linear model; of CRPS and RMSE as a share of the latter."""

    @property
    def title(self) -> str:
        """Title on the page."""
        return QUANTITIES[self.name].title

    def place(self, name: str = OURS) -> int:
        """1 for the highest log density."""
        own = self.scores[name]["log_density"]
        return 1 + sum(one["log_density"] > own for one in self.scores.values())

    def off(self) -> dict[str, float]:
        """Error of our coverage, by level."""
        own = self.scores[OURS]
        return {level: abs(own[f"coverage_{level}"] - int(level) / 100) for level in LEVELS}

    def missed(self) -> list[str]:
        """Levels with an error of our coverage above :data:`OFF` and beyond chance.

        Chance is the central binomial interval of :data:`CHANCE` for the rows that count.
        """
        return [
            level
            for level, off in self.off().items()
            if off > max(OFF, self.half_interval(int(level) / 100))
        ]

    def half_interval(self, level: float) -> float:
        """Half the binomial interval around a level."""
        n_rows = max(round(self.n_counted()), 1)
        low, high = binom.interval(CHANCE, n_rows, level)
        return float(high - low) / (2 * n_rows)

    def n_counted(self) -> float:
        """Effective number of independent test rows of all splits.

        A row that is tested in several splits is one observation: with c tests of a row, shares
        have the variance of (sum c)^2 / sum c^2 independent rows.
        """
        n_rows, n_tests = self.shape[0] / TRAIN_FRACTION, self.n_splits * (1.0 - TRAIN_FRACTION)
        return n_rows * n_tests / (TRAIN_FRACTION + n_tests)

    def chance(self) -> float:
        """Standard error of the share of test rows inside intervals of 50 %."""
        n_test = self.n_counted()
        return 0.5 / math.sqrt(n_test)

    def cover(self) -> dict[str, str]:
        """Our coverage in per cent, with its interval, by level."""
        shares = {level: self.scores[OURS][f"coverage_{level}"] for level in LEVELS}
        return {level: _with_interval(share, self.n_counted()) for level, share in shares.items()}


def summaries(record: Mapping[str, Any]) -> list[Summary]:
    """Tables of the record, in the order of the panel."""
    found = []
    for name in QUANTITIES:
        cells = [cell for key, cell in record["cells"].items() if key.rpartition("/")[0] == name]
        if whole := [cell for cell in cells if _is_whole(cell)]:
            first = whole[0][FIT]
            shape = first["n_rows"], first["n_columns"]
            found.append(Summary(name, len(whole), shape, _scores(whole), _excess(whole)))
    return found


def _is_whole(cell: Mapping[str, Any]) -> bool:
    return all(part in cell and "error" not in cell[part] for part in (FIT, RIVALS))


def _scores(cells: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    by_name = {OURS: [cell[FIT] | {"seconds": cell[FIT]["cold"]} for cell in cells]}
    for name in OTHERS:
        parts = [cell[RIVALS][RIVALS] for cell in cells]
        if all(name in part for part in parts):
            by_name[name] = [part[name] for part in parts]
    kept = ("log_density", "crps", "rmse", *(f"coverage_{level}" for level in LEVELS))
    return {
        name: {score: mean(one[score] for one in rows) for score in kept}
        | {"seconds": median(one["seconds"] for one in rows)}
        for name, rows in by_name.items()
    }


def _excess(cells: Sequence[Mapping[str, Any]]) -> dict[str, Effect]:
    shared = 1.0 / TRAIN_FRACTION - 1.0

    def effect(score: str, *, relative: bool) -> Effect:
        linear = [cell[RIVALS][RIVALS][LINEAR][score] for cell in cells]
        unit = mean(linear) if relative else 1.0
        own = [cell[FIT][score] for cell in cells]
        gains = [(a - b) / unit for a, b in zip(own, linear, strict=True)]
        return over_splits(gains, shared)

    of_errors = {score: effect(score, relative=True) for score in ("crps", "rmse")}
    return {"log_density": effect("log_density", relative=False)} | of_errors


def targets(tables: Sequence[Summary]) -> list[Target]:
    """The targets, and whether they were met."""
    if not tables:
        return []
    far = [
        f"{table.title}, {level} %: {100 * table.off()[level]:.1f} points, by chance "
        f"{100 * table.half_interval(int(level) / 100):.1f}"
        for table in tables
        for level in table.missed()
    ]
    first = sum(table.place() <= 2 for table in tables)  # noqa: PLR2004
    worse = [
        f"{table.title}, {score.upper()} {table.excess[score].text('+.1%')}"
        for table in tables
        for score in ("crps", "rmse")
        if table.excess[score].mean > ABOVE
    ]
    nearest = f"at most {100 * max(max(table.off().values()) for table in tables):.1f} points"
    return [
        Target(
            "coverage of 50, 80 and 95 % within three points, or within 95 % of binomial draws",
            "; ".join(far) or nearest,
            not far,
        ),
        Target(
            "highest or second highest log density on half of the tables",
            f"{first} of {len(tables)}",
            2 * first >= len(tables),
        ),
        Target(
            "CRPS and RMSE nowhere more than 2 % above Bayesian ridge regression",
            "; ".join(worse) or "nowhere",
            not worse,
        ),
    ]


def render(record: Mapping[str, Any]) -> str:
    """The record as Markdown."""
    tables = summaries(record)
    whole = len(tables) == len(QUANTITIES) and all(
        table.n_splits >= QUANTITIES[table.name].n_seeds for table in tables
    )
    return "\n\n".join(
        [
            verdicts(targets(tables), whole=whole),
            "Mean log density of test rows, in nats; the highest is bold.",
            grid(tables, "log_density", ".3f", highest=True),
            "Continuous ranked probability score, in units of the quantity; the lowest is bold.",
            grid(tables, "crps", ".4g", highest=False),
            "Root mean squared error; the lowest is bold.",
            grid(tables, "rmse", ".4g", highest=False),
            "Share of test rows inside intervals of 50, 80 and 95 %, in per cent, over all splits; "
            "by chance alone the first differs from 50 by about the number in the column 'error'. "
            "A row that is tested in several splits counts as one observation.",
            covered(tables),
            "Ours once more, with 95 % intervals: of these shares (Wilson), and of the differences "
            f"from {LINEAR}, paired over splits and corrected for the rows that splits share "
            "(Nadeau and Bengio, 2003).",
            with_intervals(tables),
            *seconds(record, tables),
            where(record, "models"),
        ]
    )


def seconds(record: Mapping[str, Any], tables: Sequence[Summary]) -> list[str]:
    """Times of fits, unless the machine was busy, and how the fits ended."""
    fits = [cell[FIT] for cell in record["cells"].values() if _is_whole(cell)]
    over = sum(fit.get("ending") == "time" for fit in fits)
    ended = f"{over} of {len(fits)} of our fits ended because their two minutes were over."
    if any(map(busy, fits)):
        return [f"{ended} Seconds are left out: the machine had other work at the same time."]
    words = "Seconds of a fit, the first of a process; rivals with their predictions."
    return [f"{words} {ended}", grid(tables, "seconds", ".3g", highest=None)]


def grid(tables: Sequence[Summary], score: str, form: str, *, highest: bool | None) -> str:
    """One line for each table, one column for each regressor."""
    rows = []
    for table in tables:
        known = {n: one[score] for n, one in table.scores.items()}
        best = None if highest is None else (max if highest else min)(known, key=lambda n: known[n])
        cells = [f"{known[n]:{form}}" if n in known else "" for n in SHOWN]
        cells = [f"**{c}**" if n == best else c for n, c in zip(SHOWN, cells, strict=True)]
        size = f"{table.shape[0]:,} x {table.shape[1]}, {table.n_splits}"
        rows.append(f"| {table.title} | {size} | {' | '.join(cells)} |")
    head = f"| table | training rows x columns, splits | {' | '.join(SHOWN)} |"
    return "\n".join([head, "|---" * 2 + "|---:" * len(SHOWN) + "|", *rows])


def covered(tables: Sequence[Summary]) -> str:
    """Coverage of every regressor."""
    rows = []
    for table in tables:
        cells = [
            " ".join(f"{100 * table.scores[n][f'coverage_{level}']:.0f}" for level in LEVELS)
            if n in table.scores
            else ""
            for n in SHOWN
        ]
        rows.append(f"| {table.title} | {100 * table.chance():.0f} | {' | '.join(cells)} |")
    head = f"| table | error | {' | '.join(SHOWN)} |"
    return "\n".join([head, "|---" + "|---:" * (1 + len(SHOWN)) + "|", *rows])


def with_intervals(tables: Sequence[Summary]) -> str:
    """Our coverage, and our scores compared with those of the linear model."""
    rows = []
    for table in tables:
        compared = [table.excess[score].text(form) for score, form in COMPARED.items()]
        cells = [f"{table.n_counted():.0f}", *table.cover().values(), *compared]
        rows.append(f"| {table.title} | {' | '.join(cells)} |")
    rows.append(f"| all tables | {' | '.join(_pooled(tables))} |")
    levels = " | ".join(f"{level} %" for level in LEVELS)
    head = f"| table | rows that count | {levels} | log density | CRPS | RMSE |"
    return "\n".join([head, "|---" + "|---:" * (1 + len(LEVELS) + len(COMPARED)) + "|", *rows])


def _pooled(tables: Sequence[Summary]) -> list[str]:
    """Our coverage over all tables; nothing for the scores."""
    counts = [table.n_counted() for table in tables]
    n_rows, cells = sum(counts), []
    for level in LEVELS:
        shares = [table.scores[OURS][f"coverage_{level}"] for table in tables]
        hits = sum(share * n for share, n in zip(shares, counts, strict=True))
        cells.append(_with_interval(hits / max(n_rows, 1.0), n_rows))
    return [f"{n_rows:.0f}", *cells, *[""] * len(COMPARED)]


def _with_interval(share: float, n_rows: float) -> str:
    low, high = share_interval(share * n_rows, n_rows)
    return f"{100 * share:.0f} [{100 * low:.0f}, {100 * high:.0f}]"


if __name__ == "__main__":
    found = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    fill_page(Path(sys.argv[2]), {"record": render(found)})
