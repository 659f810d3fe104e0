"""The paper's claims, each tested by comparisons of records.

A comparison is an :class:`~wideangle_lab.paper.compare.Effect` with a threshold above which it
supports its claim. A claim holds if every comparison is for it and at least three quarters were
run. It does not hold if at least half are against it, and more than for it. Otherwise, or if less
than half were run, it is undecided, and the page gives the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from wideangle_lab.paper.compare import Effect

HOLDS, FAILS, OPEN = "holds", "does not hold", "undecided"
SHARE = 0.5
"""A gain contradicts the printed one if its interval is below this share of it."""


class Comparison(NamedTuple):
    """One effect, the printed gain, and a threshold."""

    what: str
    effect: Effect | None
    form: str = "+.2f"
    unit: str = ""
    printed: float | None = None
    """The gain in the paper, if it is in its tables."""
    margin: float = 0.0
    """The claim is that the gain is larger than this; negative values allow a loss."""
    exact: bool = False
    """Whether one run is enough, as for times that differ by a large factor."""
    control: bool = False
    """Whether it is shown as a control and not counted."""

    @property
    def side(self) -> str:
        """``for``, ``against``, ``open``, ``missing``, or ``control``."""
        effect = self.effect
        if self.control:
            return "control"
        if effect is None:
            return "missing"
        low, high = (effect.mean,) * 2 if self.exact else effect[1:3]
        if np.isnan(low):
            return "open"
        if low > self.margin:
            return "for"
        absent = self.printed is not None and high < SHARE * self.printed
        return "against" if high < self.margin or absent else "open"

    def line(self) -> tuple[str, ...]:
        """A row of the table of a claim."""
        beside = "" if self.printed is None else f"{self.printed:{self.form}}{self.unit}"
        if self.effect is None:
            return (self.what, "", beside, "", "not run")
        shown = f"{self.effect.text(self.form)}{self.unit}"
        return (self.what, shown, beside, str(self.effect.n_fits), self.side)


class Claim(NamedTuple):
    """A claim of the paper, paraphrased, and its comparisons."""

    title: str
    where: str
    """Place in the paper."""
    comparisons: tuple[Comparison, ...]
    remark: str = ""

    @property
    def verdict(self) -> str:
        """``holds``, ``does not hold`` or ``undecided``."""
        sides = self._sides()
        n, n_missing = len(sides), len(self._missing())
        if n == 0 or n < n_missing:
            return OPEN
        if sides.count("for") == n and n >= 3 * n_missing:
            return HOLDS
        against = sides.count("against")
        if 2 * against >= n and against > sides.count("for"):
            return FAILS
        return OPEN

    @property
    def why(self) -> str:
        """The counts of comparisons."""
        sides, missing = self._sides(), self._missing()
        counts = ", ".join(
            f"{sides.count(side)} {side}" for side in ("for", "against", "open") if side in sides
        )
        text = f"comparisons: {counts}" if sides else "nothing was run"
        weighed = [c for c in self.comparisons if c.effect and not c.exact and not c.control]
        single = [c for c in weighed if c.effect and np.isnan(c.effect.low)]
        if single:
            text += f"; of one fit, without an interval: {len(single)}"
        return text + (f"; not run: {len(missing)}" if missing and sides else "")

    def _sides(self) -> list[str]:
        return [c.side for c in self.comparisons if c.side not in ("missing", "control")]

    def _missing(self) -> list[str]:
        return [c.what for c in self.comparisons if c.side == "missing"]


def summary(claims: Sequence[Claim]) -> Iterable[tuple[str, ...]]:
    """Rows of the first table of the page."""
    for place, claim in enumerate(claims, 1):
        known = [c for c in claim.comparisons if c.effect is not None and not c.control]
        largest = max(known, key=lambda c: c.effect.mean if c.effect else 0.0, default=None)
        smallest = min(known, key=lambda c: c.effect.mean if c.effect else 0.0, default=None)
        shown = ""
        if largest and smallest and largest.effect and smallest.effect:
            ends = [f"{c.effect.mean:{c.form}}{c.unit}" for c in (smallest, largest) if c.effect]
            shown = " to ".join(dict.fromkeys(ends)) if _alike(known) else ""
        yield (f"{place}. {claim.title}", claim.verdict, shown, claim.why)


def _alike(comparisons: Sequence[Comparison]) -> bool:
    return len({(c.unit, c.form) for c in comparisons}) == 1
