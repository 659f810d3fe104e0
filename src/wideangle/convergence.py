r"""Whether chains have converged: one rule and one sentence, in terms of predictions.

Of the numbers in a trace some are predictions (probabilities of some rows), and others describe how
a draw is made up (its likelihood, how many components it uses, their scale). The second kind often
mixes slowly without any harm to the first. A fit warns about the first kind only; all of them are
in ``diagnostics_`` and in the report.

The limits are those that predictions need. With an effective sample size of 100 the Monte Carlo
error of a posterior mean is a tenth of the posterior standard deviation, and adds half a per cent
to the uncertainty of a prediction. Chains that agree have by chance an R-hat of up to 1.04 at that
size (:math:`\hat R^2 - 1` is about the number of chains divided by the effective sample size, and
the worst of many numbers is looked at), so a limit below 1.05 would warn of chance. Intervals and
tails want more: R-hat below 1.01 and 400 draws are the usual advice (Vehtari and others, 2021).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from wideangle.diagnostics import MIN_DRAWS, Summary, ess_bulk, rhat, values_of

RHAT_LIMIT = 1.05
"""Predictions of chains with a larger R-hat differ visibly."""
ESS_LIMIT = 100
"""Effective sample size, of all chains together, below which means are uncertain."""
DIVERGENT_LIMIT = 0.01
"""Share of draws with a divergent trajectory above which the posterior may be cut short."""
MODES_LIMIT = 5.0
r"""Chains of one distribution have :math:`(\hat R^2 - 1) e` around 1, with the effective sample
size e of one chain alone, and above this once in a thousand times."""
LEAST_ALONE = 25.0
"""Effective sample size of one chain below which it is too short to tell modes from slowness."""
DRIFT = 1.1
"""R-hat between the halves of one chain above which it is still on its way."""
_MOST_NAMED = 3
"""Numbers that are constant in each chain and shown one by one."""
_VARIATIONAL = ("n_passes",)
"""Settings of an inference that are those of :class:`~wideangle.Variational`."""
STACK = "{inference__combine=stacking} weights chains by how well they predict"
"""What to do about chains that hold to different explanations, where a family can do that."""
_SETTING = re.compile(r"\{(\w+)=([^}]*)\}")

Named = Callable[[str, str], str | None]
"""How a setting, such as ``inference__n_draws``, and its value are written; None if it cannot be
set there."""


def in_python(setting: str, value: str) -> str:
    """A setting as it is written in Python.

    >>> in_python("inference__n_draws", "800"), in_python("n_experts", "3")
    ('Sampling(n_draws=800)', 'n_experts=3')
    """
    parent, _, name = setting.rpartition("__")
    written = f"{name}={value if value[:1].isdigit() else repr(value)}"
    if parent != "inference":
        return written
    return f"{'Variational' if name in _VARIATIONAL else 'Sampling'}({written})"


class ConvergenceWarning(UserWarning):
    """Predictions may depend on where the chains began or ended.

    Parameters
    ----------
    trouble
        What is wrong.
    advice
        What to do, with settings as ``{inference__n_draws=800}``: :meth:`said` writes them as they
        are spelled in Python or on the command line.
    """

    def __init__(self, trouble: str, advice: str = "") -> None:
        super().__init__(trouble, advice)

    def __str__(self) -> str:
        return self.said(in_python)

    def said(self, named: Named) -> str:
        """The sentence; an advice whose setting does not exist there is left out."""
        trouble, advice = self.args
        known = [named(*found) for found in _SETTING.findall(advice)]
        if not advice or None in known:
            return f"{trouble}."
        return f"{trouble}: {_SETTING.sub('{}', advice).format(*known)}."


class Agreement(NamedTuple):
    """Worst R-hat and smallest effective sample size of some numbers; NaN if unknown."""

    rhat: float
    ess: float
    name: str
    """The number with the worst R-hat."""
    constant: tuple[str, ...]
    """Numbers that are constant in each chain, with different values."""

    @property
    def good(self) -> bool:
        """Whether the chains agree and have enough draws; constants that are equal are fine."""
        return not (self.rhat > RHAT_LIMIT or self.ess < ESS_LIMIT or self.constant)


def agreement(summary: Summary, *, needed: bool = True) -> Agreement:
    """How far chains agree on what predictions need, or on the other numbers."""
    chosen = np.flatnonzero(summary["needed"] == needed)
    names = [summary.names[i] for i in chosen]
    stuck = tuple(n for n in names if n in summary.constant and np.ptp(summary.constant[n]) > 0)
    rhats, sizes = (_known(summary[c][chosen]) for c in ("rhat", "ess_bulk"))
    if not len(rhats[0]):
        return Agreement(math.nan, math.nan, "", stuck)
    worst = int(np.argmax(rhats[1]))
    return Agreement(float(rhats[1][worst]), float(np.min(sizes[1])), names[rhats[0][worst]], stuck)


def _known(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places and values of finite numbers."""
    places = np.flatnonzero(np.isfinite(values))
    return places, values[places]


class Chains(NamedTuple):
    """What an advice about chains is about."""

    inference: Any = None
    """The :class:`~wideangle.Sampling` of the fit; None for chains that somebody ran by hand."""
    max_time: float = 0.0
    """Seconds after which chains of automatic length end, where ``inference`` does not say."""
    ending: str = ""
    """Why such chains ended: "modes", "memory", or for another reason."""
    in_modes: str = STACK
    """Advice where chains hold to different explanations of the data."""

    @property
    def stacked(self) -> bool:
        """Whether they are weighed by how well they predict."""
        return self.inference is not None and self.inference.combine == "stacking"

    def longer(self, n_draws: int, factor: float) -> str:
        """Advice to run them for longer, and what it costs."""
        times = f"about {math.ceil(factor)} times as long"
        chosen = self.inference
        if chosen is None:
            return f"draw {times}"
        if self.ending == "memory":
            thin = math.ceil(factor) * (chosen.thin or 1)
            return f"{{inference__thin={thin}}} keeps fewer draws of chains {times}"
        if chosen.n_draws == "auto":
            seconds = round_up(factor * (chosen.max_time or self.max_time))
            return f"{{inference__max_time={seconds}}} lets them run {times}"
        asked = round_up(factor * (chosen.n_draws or n_draws))
        return f"{{inference__n_draws={asked}}} takes {times}"


def caution_of(model: Any) -> ConvergenceWarning | None:
    """The sentence about a fitted model whose predictions are not settled, or None."""
    if model.diagnostics_ is None:
        return None
    inference = getattr(model, "choice", lambda _: None)("inference")
    ending = getattr(model, "notes_", {}).get("ending", {}).get("reason", "")
    family = model.presentation
    chains = Chains(inference, family.max_time, ending, family.in_modes)
    return model.trace_.caution(model.diagnostics_, chains)


def caution(
    values: Mapping[str, Any], summary: Summary, divergent: float, chains: Chains
) -> ConvergenceWarning | None:
    """The one sentence about a fit whose predictions are not settled, or None.

    ``values`` are the trace, arrays ``(chain, draw, ...)`` by name; ``divergent`` is the share of
    draws with a divergent trajectory; the advice names settings of ``chains``.
    """
    found = agreement(summary)
    n_draws = np.shape(next(iter(values.values())))[1]
    if n_draws < MIN_DRAWS:
        return ConvergenceWarning(
            f"Chains of {n_draws} draws are too short to tell whether predictions agree",
            chains.longer(n_draws, ESS_LIMIT / max(n_draws, 1)),
        )
    if not found.good and (chains.ending == "modes" or _in_modes(values, found)):
        if chains.stacked:
            return None  # that is what stacking is for
        return ConvergenceWarning(
            f"Predictions differ between chains{_number(found)}, which are in different modes of "
            "the posterior, so longer chains are unlikely to help",
            chains.in_modes,
        )
    if not found.good:
        n_chains = len(np.asarray(next(iter(values.values()))))
        size = found.ess if math.isfinite(found.ess) else 1.0
        if found.rhat > 1.0:  # of few draws the estimate alone is too hopeful
            size = min(size, n_chains / (found.rhat**2 - 1.0))
        size = max(size, 1.0)
        known = f", R-hat {found.rhat:.2f}" if math.isfinite(found.rhat) else ""
        return ConvergenceWarning(
            f"Predictions rest on too few independent draws (worth about {size:.0f}{known})",
            chains.longer(n_draws, max(ESS_LIMIT / size, 2.0)),
        )
    if divergent > DIVERGENT_LIMIT:
        return ConvergenceWarning(
            f"Predictions agree between chains (R-hat {found.rhat:.2f}), but in "
            f"{100 * divergent:.0f} % of the draws a trajectory diverged, so they may miss a part "
            "of the posterior",
            "compare with {inference__kernel=metropolis}, which is slow and has no trajectories",
        )
    return None


def _number(found: Agreement) -> str:
    return f" (R-hat {found.rhat:.2f})" if found.rhat > RHAT_LIMIT else ""


def _in_modes(values: Mapping[str, Any], found: Agreement) -> bool:
    """Whether chains differ by more than their own movement explains."""
    name, _, place = (found.constant or (found.name,))[0].partition("[")
    draws = np.asarray(values[name], float)
    if place:
        draws = draws[(..., *map(int, place[:-1].split(", ")))]
    if found.constant:
        return draws.shape[1] >= LEAST_ALONE
    alone = np.array([(ess_bulk(chain[None]), rhat(chain[None])) for chain in draws])
    alone = alone[~np.isnan(alone).any(axis=1)]
    if not len(alone):
        return False
    size, drift = np.median(alone, axis=0)
    moves_well = size >= LEAST_ALONE and drift < DRIFT
    return found.rhat > RHAT_LIMIT and moves_well and (found.rhat**2 - 1.0) * size > MODES_LIMIT


def round_up(number: float) -> int:
    """Up to two digits.

    >>> round_up(1234), round_up(80.0), round_up(0.5)
    (1300, 80, 1)
    """
    unit = 10 ** max(math.floor(math.log10(max(number, 1.0))) - 1, 0)
    return math.ceil(number / unit) * unit


def account(summary: Summary, words: Mapping[str, str]) -> list[tuple[str, str]]:
    """How far chains agree, as names and values: on predictions, and on all else.

    ``words`` are the numbers of the trace in words, by name.
    """
    rows = []
    for needed, title in ((True, "chains, predictions"), (False, "chains, other numbers")):
        if not (summary["needed"] == needed).any():
            continue
        found = agreement(summary, needed=needed)
        said = []
        if math.isfinite(found.rhat):
            named = "" if needed else f" ({in_words(found.name, words)})"
            said.append(f"R-hat at most {found.rhat:.2f}{named}, ESS at least {found.ess:.0f}")
        for name in found.constant[:_MOST_NAMED]:
            said.append(f"{in_words(name, words)} {values_of(summary.constant[name])}")
        more = len(found.constant) - _MOST_NAMED
        said += [f"{more} more constant in each chain"] if more > 0 else []
        rows.append((title, "; ".join(said) or "unknown: too few draws, or all alike"))
    return rows


def in_words(name: str, words: Mapping[str, str]) -> str:
    """A watched number in words; numbers of a vector are counted from 1.

    >>> in_words("probability[3]", {"probability": "probability at watched row"})
    'probability at watched row 4'
    """
    base, _, place = name.partition("[")
    said = words.get(base, base)
    return f"{said} {int(place[:-1]) + 1}" if place[:-1].isdecimal() else said


def share_divergent(stats: Mapping[str, Any]) -> float:
    """Share of the draws with a divergent trajectory in some block."""
    if not stats:
        return 0.0
    marks: Sequence[np.ndarray] = [np.asarray(info.divergent) > 0 for info in stats.values()]
    return float(np.mean(np.any(marks, axis=0))) if marks[0].size else 0.0
