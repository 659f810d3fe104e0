"""The effort of each suite at each level, and which parts of it affect a method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wideangle.checks import check_choice
from wideangle_lab.paper.baselines import BASELINES
from wideangle_lab.paper.cells import CLASSIFIERS, FEATURES, Cell, Effort
from wideangle_lab.paper.methods import ROWS

QUICK = Effort(20, 20, 2, 20, 2, False, 300)
"""Checks that everything runs; the results are not meaningful."""
USUAL = {
    CLASSIFIERS: Effort(400, 600),
    # A sweep is expensive, and chains start from features found by a search.
    FEATURES: Effort(150, 150, 2),
}
TEXT = ("reuters", "tdt", "news20")
USUAL_TEXT = Effort(20, 20, 2)
"""Text has 5000 columns and hundreds of features: a sweep takes seconds without an accelerator."""
FULL = {
    CLASSIFIERS: Effort(mixture_folds=5),
    FEATURES: Effort(500, 500, 4),
}
"""The paper's protocol, with chains long enough for diagnostics."""
LEVELS = ("quick", "usual", "full")
N_SPLITS = {"quick": 1, "usual": 5, "full": 5}
"""Splits of each level."""

_ROWS = {"max_rows"}
CHAINS = {"n_warmup", "n_draws", "n_chains"}
"""A record of longer chains is an answer, too: see :func:`wideangle_lab.paper.records.find`."""
_CHOICE = {"tune", "mixture_folds"}
_FIELDS = {
    "baseline": _ROWS | {"n_folds"},
    "map": _ROWS | _CHOICE | {"n_passes"},
    "vi": _ROWS | _CHOICE | {"n_passes"},
    "mcmc": _ROWS | _CHOICE | CHAINS,
    FEATURES: _ROWS | CHAINS,
}


def effort_of(
    suite: str, level: str, changes: Mapping[str, Any] | None = None, data: str = ""
) -> Effort:
    """The effort of a suite (on a data set), with the user's changes."""
    check_choice("level", level, LEVELS)
    usual = {**USUAL, FEATURES: USUAL_TEXT} if data in TEXT else USUAL
    base = QUICK if level == "quick" else (FULL if level == "full" else usual)[suite]
    return base._replace(**dict(changes or {}))


def chain_settings(effort: Effort, inference: str) -> dict[str, Any]:
    """The length of a fit, as settings of an estimator with this inference."""
    if inference != "mcmc":
        return {"inference__n_passes": effort.n_passes}
    return {
        f"inference__{name}": getattr(effort, name) for name in ("n_warmup", "n_draws", "n_chains")
    }


def kind_of(cell: Cell) -> str:
    """``baseline``, ``features``, or the inference of a mixture."""
    if cell.suite == FEATURES:
        return FEATURES
    if cell.method in BASELINES:
        return "baseline"
    return {**ROWS.get(cell.method, {}), **cell.settings}["inference"]


def identity(cell: Cell) -> dict[str, Any]:
    """The settings that affect a cell: parts of the effort that the method ignores are omitted."""
    fields = _FIELDS[kind_of(cell)]
    plain = cell.as_json()
    return plain | {"effort": {k: v for k, v in plain["effort"].items() if k in fields}}
