"""A summary of each table of a record, and whether the targets are met."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any, NamedTuple

from wideangle_lab.bench.defaults.loop import FIT, INFERENCES, OTHERS, RIVALS
from wideangle_lab.bench.defaults.rivals import LOGISTIC
from wideangle_lab.bench.defaults.tables import TABLES
from wideangle_lab.bench.record import OURS
from wideangle_lab.splits import Effect, over_splits

SMALL = 5000
"""Largest number of training rows of a small table."""
ABOVE = 0.02
"""Largest allowed excess of our log-loss over that of logistic regression."""
QUIET = 0.9
"""Smallest allowed share of fits without a warning."""
BUSY = 1.5
"""Load per core at the start of a fit above which its time is not reliable."""
BLOCK_SECONDS = 10.0
BLOCK_SHARE = 19 / 20
BLOCK_ESS = 20 * 0.011
EEG_RHAT = 1.05
UNKNOWN = Effect(math.nan, math.nan, math.nan, 0)


class Other(NamedTuple):
    """All fits of a table by another inference."""

    log_loss: float
    linear: float
    """Mean log-loss of logistic regression on the same splits."""
    excess: Effect
    quiet: int
    """Fits without a warning."""
    n_fits: int
    seconds: float
    """Median over the first fits of a process, compilation included."""


class Summary(NamedTuple):
    """All fits of a table."""

    name: str
    fits: Sequence[Mapping[str, Any]]
    losses: Mapping[str, float]
    """Mean log-loss by classifier, ours first, over seeds with both parts."""
    errors: Sequence[str]
    n_compared: int = 0
    """Seeds with both parts."""
    excess: Effect = UNKNOWN
    """Our log-loss above that of logistic regression, relative to its mean, paired by split."""
    others: Mapping[str, Other] = {}
    """By the other inferences, where they were measured."""

    @property
    def title(self) -> str:
        """Title on the page."""
        return TABLES[self.name].title

    @property
    def classes(self) -> bool:
        """Whether it is a table of the classifier."""
        return TABLES[self.name].classes

    @property
    def quiet(self) -> int:
        """Fits without a warning."""
        return sum(not fit["warnings"] for fit in self.fits)

    @property
    def above(self) -> float:
        """Relative excess of our mean log-loss over that of logistic regression."""
        return self.excess.mean

    @property
    def lowest(self) -> str:
        """The classifier with the lowest mean log-loss."""
        return min(self.losses, key=lambda name: self.losses[name])

    def median(self, name: str) -> float:
        """Median over fits that have this number; NaN if none has."""
        return median(found) if (found := self._known(name)) else math.nan

    def seconds(self, name: str) -> float:
        """Median over fits that started on an idle machine; NaN if none did."""
        return self._replace(fits=[fit for fit in self.fits if not busy(fit)]).median(name)

    def worst(self, name: str) -> float:
        """Largest over the fits."""
        return max(self._known(name), default=math.nan)

    def _known(self, name: str) -> list[float]:
        return [fit[name] for fit in self.fits if fit.get(name) is not None]


def busy(fit: Mapping[str, Any]) -> bool:
    """Whether other programs or cells used the machine when the fit started."""
    machine = fit["stamp"]["machine"]
    return "side_by_side" in fit["stamp"] or machine["load_at_start"][0] > BUSY * machine["cores"]


class Target(NamedTuple):
    """A target and its result."""

    wish: str
    measured: str
    met: bool | None
    """None if nothing was measured."""


def summaries(record: Mapping[str, Any]) -> list[Summary]:
    """Tables of the record, in the order of the panel."""
    found = []
    for name in TABLES:
        cells = [cell for key, cell in record["cells"].items() if key.rpartition("/")[0] == name]
        parts = [cell[part] for cell in cells for part in (FIT, RIVALS) if part in cell]
        fits = [cell[FIT] for cell in cells if FIT in cell and "error" not in cell[FIT]]
        errors = [part["error"] for part in parts if "error" in part]
        if fits or errors:
            both = with_parts(cells, FIT)
            losses = losses_of(both)
            excess = excess_of(both, [cell[FIT] for cell in both], TABLES[name].shared)
            others = others_of(with_parts(cells, INFERENCES), TABLES[name].shared)
            found.append(Summary(name, fits, losses, errors, len(both), excess, others))
    return found


def with_parts(cells: Sequence[Mapping[str, Any]], ours: str) -> list[Mapping[str, Any]]:
    """Cells of classes in which this part of ours and the other classifiers were measured."""
    parts = ours, RIVALS
    both = [cell for cell in cells if all("error" not in cell.get(p, {"error": ""}) for p in parts)]
    return [cell for cell in both if ours == INFERENCES or "log_loss" in cell[ours]]


def others_of(both: Sequence[Mapping[str, Any]], shared: float | None) -> dict[str, Other]:
    """Fits by the other inferences, compared with logistic regression."""
    if not both:
        return {}
    found = {}
    for name in OTHERS:
        fits = [cell[INFERENCES][name] for cell in both]
        found[name] = Other(
            mean(fit["log_loss"] for fit in fits),
            mean(_linear(both)),
            excess_of(both, fits, shared),
            sum(not fit["warnings"] for fit in fits),
            len(fits),
            median(fit["cold"] for fit in fits),
        )
    return found


def _linear(both: Sequence[Mapping[str, Any]]) -> list[float]:
    """Log-losses of logistic regression."""
    return [cell[RIVALS][RIVALS][LOGISTIC]["log_loss"] for cell in both]


def losses_of(both: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean log-loss by classifier."""
    if not both:
        return {}
    shared = [n for n in both[0][RIVALS][RIVALS] if all(n in c[RIVALS][RIVALS] for c in both)]
    return {OURS: mean(cell[FIT]["log_loss"] for cell in both)} | {
        name: mean(cell[RIVALS][RIVALS][name]["log_loss"] for cell in both) for name in shared
    }


def excess_of(
    both: Sequence[Mapping[str, Any]], fits: Sequence[Mapping[str, Any]], shared: float | None
) -> Effect:
    """Log-loss of our fits above that of logistic regression, relative to its mean.

    Seeds that have the same rows count as one split, without an interval.
    """
    if not both:
        return UNKNOWN
    linear = _linear(both)
    pairs = zip(fits, linear, strict=True)
    more = [(fit["log_loss"] - other) / mean(linear) for fit, other in pairs]
    return over_splits([mean(more)], 0.0) if shared is None else over_splits(more, shared)


def targets(tables: Sequence[Summary]) -> list[Target]:
    """Every target, in order of importance."""
    compared = [table for table in tables if table.losses]
    return [
        _quiet(tables),
        _logistic({table.title: table.excess for table in compared}),
        *(
            _logistic({t.title: t.others[name].excess for t in tables if t.others}, f" by {name}")
            for name in OTHERS
        ),
        _lowest([table for table in compared if table.worst("n_rows") <= SMALL]),
        _divergences([table for table in tables if table.classes]),
        *_block_images([table for table in tables if table.name == "block-images"]),
        _eeg([table for table in tables if table.name == "eeg"]),
    ]


def _quiet(tables: Sequence[Summary]) -> Target:
    n_fits = sum(len(table.fits) for table in tables)
    n_quiet = sum(table.quiet for table in tables)
    met = n_quiet >= QUIET * n_fits if n_fits else None
    return Target("no warning in nine fits of ten", f"{n_quiet} of {n_fits}", met)


def _logistic(excess: Mapping[str, Effect], by: str = "") -> Target:
    wish = f"mean log-loss{by} nowhere more than {ABOVE:.0%} above logistic regression"
    if not excess:
        return Target(wish, "", None)
    over = {title: one for title, one in excess.items() if one.mean > ABOVE}
    said = ", ".join(f"{title} {one.text('+.0%')}" for title, one in over.items())
    worst = max(excess, key=lambda title: excess[title].mean)
    said = said or f"at most {excess[worst].mean:+.1%} ({worst})"
    return Target(wish, said, not over)


def _lowest(tables: Sequence[Summary]) -> Target:
    n_first = sum(table.lowest == OURS for table in tables)
    wish = f"lowest of all on half of the tables with up to {SMALL:,} training rows"
    met = 2 * n_first >= len(tables) if tables else None
    return Target(wish, f"{n_first} of {len(tables)}", met)


def _divergences(tables: Sequence[Summary]) -> Target:
    n = sum(fit["divergent"] for table in tables for fit in table.fits)
    draws = sum(fit["n_draws"] for table in tables for fit in table.fits)
    return Target("no divergences", f"{n} of {draws:,} draws", n == 0 if draws else None)


def _block_images(tables: Sequence[Summary]) -> list[Target]:
    fits = [fit for table in tables for fit in table.fits]
    quiet = [fit for fit in fits if not fit["warnings"]]
    first, next_ = (
        sum((fit.get(name) or math.inf) <= BLOCK_SECONDS for fit in quiet)
        for name in ("cold", "warm")
    )
    sizes = [table.median("ess_per_sweep") for table in tables]
    return [
        Target(
            f"Block-Images: no warning and at most {BLOCK_SECONDS:g} s in 19 of 20 seeds",
            f"{first} of {len(fits)}; {next_} by the second fit of a process",
            first >= BLOCK_SHARE * len(fits) if fits else None,
        ),
        Target(
            f"Block-Images: {BLOCK_ESS:g} effective draws of the log-likelihood a sweep",
            f"{sizes[0]:.2g}" if fits else "",
            sizes[0] >= BLOCK_ESS if fits else None,
        ),
    ]


def _eeg(tables: Sequence[Summary]) -> Target:
    wish = f"EEG: R-hat at most {EEG_RHAT:g}"
    if not tables or not tables[0].fits:
        return Target(wish, "", None)
    worst, needed = tables[0].worst("rhat_all"), tables[0].worst("rhat")
    said = f"{worst:.2f}; {needed:.2f} of what predictions need"
    return Target(wish, said, worst <= EEG_RHAT)
