"""Results of a benchmark: series of repeats, cases, and the record of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

OURS = "wideangle"
"""Name of our entry, the first of every case."""
EXPONENT = "exponent"
THOUSAND = 1000


@dataclass(frozen=True)
class Series:
    """One number per repeat."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median."""
        return float(np.median(self.values))

    @property
    def quartiles(self) -> tuple[float, float]:
        """Interquartile range of the repeats."""
        low, high = np.quantile(self.values, (0.25, 0.75))
        return float(low), float(high)


@dataclass(frozen=True)
class Curve:
    """Cost against one growing size: the points of a slope."""

    axis: str
    """What grows: ``rows``, ``columns`` or ``components``."""
    sizes: tuple[float, ...]
    values: tuple[Series, ...]
    """One series per size."""
    unit: str
    most: float | None = None
    """Largest allowed exponent."""

    def slopes(self) -> Series:
        """Exponents: slopes of log value against log size by least squares, one per repeat."""
        logs = np.log([series.values for series in self.values])
        return Series(tuple(float(s) for s in np.polyfit(np.log(self.sizes), logs, 1)[0]))


@dataclass(frozen=True)
class Case:
    """One comparison."""

    name: str
    unit: str
    entries: Mapping[str, Series]
    """By competitor, ours first; every series has the same number of repeats."""
    higher_is_better: bool = False
    targets: Mapping[str, float] = field(default_factory=dict)
    """By rival: the smallest factor by which ours should be better."""
    note: str = ""
    curve: Curve | None = None

    def factors(self) -> dict[str, float | None]:
        """By rival: the ratio of the two medians, above 1 where ours is better.

        None if the denominator is 0: ours is better, but there is no ratio.
        """
        ours = self.entries[OURS].median
        rivals = {name: one.median for name, one in self.entries.items() if name != OURS}
        if self.higher_is_better:
            return {name: _ratio(ours, theirs) for name, theirs in rivals.items()}
        return {name: _ratio(theirs, ours) for name, theirs in rivals.items()}

    def missed(self) -> list[str]:
        """Rivals with a factor below its target; ``exponent`` if the slope is too large."""
        factors = self.factors()
        names = [
            name
            for name, least in self.targets.items()
            if (factor := factors[name]) is not None and factor < least
        ]
        limit = None if self.curve is None else self.curve.most
        if limit is not None and self.entries[OURS].median > limit:
            names.append(EXPONENT)
        return names


def _ratio(above: float, below: float) -> float | None:
    """Ratio of two numbers that may be 0."""
    if below == 0.0:
        return 1.0 if above == 0.0 else None
    return above / below


def show_factor(factor: float | None) -> str:
    """For example ``28``, ``1/7.4`` if ours is worse, or a dash if there is no ratio."""
    if not factor:  # a quick run may measure nothing at all
        return "-"
    return show(factor) if factor >= 1 else f"1/{show(1 / factor)}"


def show(value: float) -> str:
    """Three digits, without an exponent if possible."""
    return f"{value:,.0f}" if abs(value) >= THOUSAND else f"{value:.3g}"


def to_json(case: Case) -> dict[str, Any]:
    """Plain data; includes the summaries for readers of the file."""
    return {
        "name": case.name,
        "unit": case.unit,
        "higher_is_better": case.higher_is_better,
        "entries": {name: _series(series) for name, series in case.entries.items()},
        "factors": case.factors(),
        "targets": dict(case.targets),
        "note": case.note,
        **({} if case.curve is None else {"curve": _curve(case.curve)}),
    }


def from_json(data: Mapping[str, Any]) -> Case:
    """The case of :func:`to_json`; factors are computed again."""
    return Case(
        name=data["name"],
        unit=data["unit"],
        entries={name: Series(tuple(one["values"])) for name, one in data["entries"].items()},
        higher_is_better=data["higher_is_better"],
        targets=data["targets"],
        note=data["note"],
        curve=_to_curve(data["curve"]) if "curve" in data else None,
    )


def _curve(curve: Curve) -> dict[str, Any]:
    values = [series.values for series in curve.values]
    return {
        "axis": curve.axis,
        "sizes": curve.sizes,
        "values": values,
        "unit": curve.unit,
        "most": curve.most,
    }


def _to_curve(data: Mapping[str, Any]) -> Curve:
    values = tuple(Series(tuple(one)) for one in data["values"])
    return Curve(data["axis"], tuple(data["sizes"]), values, data["unit"], data["most"])


def _series(series: Series) -> dict[str, Any]:
    return {"median": series.median, "quartiles": series.quartiles, "values": series.values}
