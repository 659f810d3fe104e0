"""The paper's claims, judged by the rules of docs/reproduction.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from wideangle_lab.paper.compare import Gains
from wideangle_lab.splits import Effect, holm, mean_effect

HOLDS, FAILS, OPEN = "holds", "does not hold", "cannot be decided"
FEWEST = 3
"""Splits that a comparison needs."""
CLEAR = 0.025
"""One-sided, after correction."""
FACTOR = 1.5
"""Factor between two times that matters."""


class Comparison(NamedTuple):
    """The gains of one row over another on a data set, and the printed gain."""

    data: str
    what: str
    gains: Gains
    printed: float | None = None

    @property
    def counts(self) -> bool:
        """Whether enough splits converged."""
        return len(self.gains.converged) >= FEWEST

    def effect(self, *, counted: bool) -> Effect | None:
        """On the splits that converged, or on all."""
        splits = self.gains.converged if counted else self.gains.by_split
        return self.gains.effect(splits) if splits else None


class Claim(NamedTuple):
    """A claim of the paper, paraphrased, and its comparisons."""

    title: str
    where: str
    """Place in the paper."""
    comparisons: tuple[Comparison, ...]
    matters: float
    """The smallest effect that matters."""
    form: str = "+.2f"
    unit: str = " points"
    margin: float = 0.0
    """A comparison is for the claim above this; negative values allow a loss."""
    remark: str = ""

    @property
    def decidable(self) -> bool:
        """Whether at least half of the comparisons count."""
        return 2 * sum(one.counts for one in self.comparisons) >= len(self.comparisons)

    @property
    def used(self) -> tuple[Comparison, ...]:
        """Comparisons that count, or all with several splits where too few do."""
        if self.decidable:
            return tuple(one for one in self.comparisons if one.counts)
        return tuple(one for one in self.comparisons if len(one.gains.by_split) > 1)

    @property
    def effect(self) -> Effect | None:
        """The mean over data sets of the mean over their comparisons, split by split."""
        means = []
        for data in dict.fromkeys(one.data for one in self.used):
            parts = [one.gains for one in self.used if one.data == data]
            splits = [p.converged if self.decidable else frozenset(p.by_split) for p in parts]
            common = frozenset.intersection(*splits)
            if len(common) > 1:
                by_split = {s: float(np.mean([p.by_split[s] for p in parts])) for s in common}
                means.append(Gains(by_split, common, parts[0].shared).effect(common))
        return mean_effect(means) if means else None

    @property
    def printed(self) -> float | None:
        """The paper's number, over the same comparisons."""
        means = []
        for data in dict.fromkeys(one.data for one in self.used or self.comparisons):
            among = [one for one in self.used or self.comparisons if one.data == data]
            known = [one.printed for one in among if one.printed is not None]
            means += [float(np.mean(known))] if known else []
        return float(np.mean(means)) if means else None

    @property
    def sides(self) -> dict[str, str]:
        """``for``, ``against`` or ``open`` for each comparison that counts."""
        counted = [one for one in self.comparisons if one.counts]
        effects = [one.gains.effect(one.gains.converged) for one in counted]
        gain = holm([one.p_above(self.margin) for one in effects])
        small = holm([one.p_below(self.matters) for one in effects])
        return {
            f"{one.data}: {one.what}": "against" if q < CLEAR else "for" if p < CLEAR else "open"
            for one, p, q in zip(counted, gain, small, strict=True)
        }

    @property
    def verdict(self) -> str:
        """By the rules."""
        effect, sides = self.effect, list(self.sides.values())
        if self.decidable and effect is not None:
            low, high = effect.interval
            more = sides.count("for") > sides.count("against")
            if low > self.margin and effect.mean >= self.matters and more:
                return HOLDS
            if high < self.matters:
                return FAILS
        return f"{OPEN} with {self._splits()}; {self._excluded(effect)}"

    def _splits(self) -> str:
        made = [one for one in self.used or self.comparisons if one.gains.by_split]
        numbers = sorted({len(one.gains.by_split) for one in made}) or [0]
        text = " to ".join(str(one) for one in dict.fromkeys((numbers[0], numbers[-1])))
        text += " split" if numbers[-1] == 1 else " splits"
        if made and not any(one.gains.converged for one in made):
            text += ", whose chains did not converge"
        return text

    def _excluded(self, effect: Effect | None) -> str:
        if effect is None:
            return "no effect is excluded"
        bound = f"{effect.interval[1]:{self.form}}{self.unit}"
        if self.decidable:
            return f"an effect above {bound} is excluded"
        return f"an effect of these fits above {bound} is excluded"

    def show(self, number: float | None) -> str:
        """A number with its unit."""
        return "" if number is None else f"{number:{self.form}}{self.unit}"

    def line(self, place: int) -> tuple[str, ...]:
        """A row of the first table: claim, verdict, effect, the paper's number."""
        effect = self.effect
        shown = "" if effect is None else effect.text(self.form) + self.unit
        return (f"{place}. {self.title}", self.verdict, shown, self.show(self.printed))

    def lines(self) -> Iterable[tuple[str, ...]]:
        """A row for each comparison that has fits."""
        sides = self.sides
        for one in self.comparisons:
            effect = one.effect(counted=one.counts)
            if effect is None:
                continue
            n, good = len(one.gains.by_split), len(one.gains.converged)
            least = "" if np.isnan(effect.error) else f"{effect.detectable:{self.form[1:]}}"
            name = f"{one.data}: {one.what}"
            yield (
                name, effect.text(self.form), self.show(one.printed).removesuffix(self.unit),
                str(n) if good == n else f"{good} of {n}", least, sides.get(name, "not counted"),
            )  # fmt: skip


class TimeClaim(NamedTuple):
    """A claim about times: factors of single fits, without intervals."""

    title: str
    where: str
    factors: tuple[tuple[str, float | None, float], ...]
    """Comparison, factor (None without fits), and the printed one."""
    remark: str = ""

    @property
    def known(self) -> list[tuple[str, float, float]]:
        """Factors that were measured."""
        return [(what, factor, printed) for what, factor, printed in self.factors if factor]

    @property
    def mean(self) -> float:
        """Geometric mean."""
        return float(np.exp(np.mean(np.log([factor for _, factor, _ in self.known]))))

    @property
    def verdict(self) -> str:
        """By the rules."""
        faster = sum(factor > FACTOR for _, factor, _ in self.known)
        slower = sum(factor < 1 / FACTOR for _, factor, _ in self.known)
        if 2 * len(self.known) >= len(self.factors) > 0:
            if self.mean > FACTOR and faster > slower:
                return HOLDS
            if self.mean < FACTOR:
                return FAILS
        return f"{OPEN} with 1 fit of each row; no effect is excluded"

    def line(self, place: int) -> tuple[str, ...]:
        """A row of the first table."""
        printed = float(np.exp(np.mean(np.log([one for *_, one in self.known or self.factors]))))
        shown = f"{self.mean:.1f} times, no interval" if self.known else ""
        return (f"{place}. {self.title}", self.verdict, shown, f"{printed:.1f} times")

    def lines(self) -> Iterable[tuple[str, ...]]:
        """A row for each comparison that has fits."""
        for what, factor, printed in self.known:
            side = "for" if factor > FACTOR else "against" if factor < 1 / FACTOR else "open"
            yield (what, f"{factor:.1f}", f"{printed:.1f}", "1", "", side)


AnyClaim = Claim | TimeClaim
COLUMNS = ("comparison", "gain", "in the paper", "splits that count", "detectable", "verdict")


def summary(claims: Sequence[AnyClaim]) -> Iterable[tuple[str, ...]]:
    """Rows of the first table of the page."""
    return (claim.line(place) for place, claim in enumerate(claims, 1))
