"""Tables of the page: rows to look at, diagnostics, settings."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np

from wideangle.convergence import ESS_LIMIT, RHAT_LIMIT, in_words
from wideangle.diagnostics import values_of
from wideangle.presentation.records import Column, Run
from wideangle.types import as_dense

_KEY_COLUMNS = 4
"""Columns whose values are shown of a doubtful row."""


def doubtful_rows(run: Run) -> list[Column]:
    """Rows to look at, with their numbers in front and their most important values behind."""
    table = run.presentation.rows_to_look_at(run)
    if table is None or len(table.order) == 0:
        return []
    chosen = _key_columns(run)
    values = as_dense(run.sample.X, table.order, float)[:, chosen]
    known = np.where(np.isnan(values), np.array(None), values.astype(object))
    return [
        Column("row", run.sample.rows[table.order].tolist()),
        *table.columns,
        *(Column(run.columns[c], known[:, i].tolist()) for i, c in enumerate(chosen)),
    ]


def _key_columns(run: Run) -> np.ndarray:
    """Columns that matter most to the model, strongest first."""
    shown = run.presentation
    sizes = np.abs(shown.vectors()).reshape(-1, len(shown.entry_names(run.columns)))
    return np.argsort(-sizes.max(axis=0, initial=0.0)[: len(run.columns)], kind="stable")[
        :_KEY_COLUMNS
    ]


def diagnostics(run: Run) -> list[dict[str, Any]]:
    """R-hat and effective sample sizes of each watched number, and whether they are good."""
    table = run.model.diagnostics_
    if table is None:
        return []
    rows = []
    for i, name in enumerate(table.names):
        rhat, bulk, tail = (_known(table[c][i]) for c in ("rhat", "ess_bulk", "ess_tail"))
        still = table.constant.get(name)
        verdict = "unknown"
        if still is not None:
            verdict = "constant" if np.ptp(still) == 0 else "stuck"
        elif rhat is not None:
            good = rhat <= RHAT_LIMIT and bulk is not None and bulk >= ESS_LIMIT
            verdict = "good" if good else "doubtful" if table["needed"][i] else "slow"
        rows.append(
            {
                "name": in_words(name, run.presentation.words),
                "needed": "yes" if table["needed"][i] else "no",
                "mean": _known(table["mean"][i]),
                "by_chain": "" if still is None else values_of(still),
                "rhat": rhat,
                "bulk": bulk,
                "tail": tail,
                "verdict": verdict,
            }
        )
    return rows


def _known(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def recipe(run: Run) -> dict[str, Any]:
    """What it takes to repeat the run."""
    settings = run.settings
    command = settings.get("command") or []
    known = ("command", "options", "versions", "seed", "source", "n_rows", "began", "image_shape")
    other = {k: v for k, v in settings.items() if k not in known}
    return {
        "command": shlex.join(str(word) for word in command),
        "facts": {
            "data": settings.get("source", ""),
            "rows in the file": settings.get("n_rows", ""),
            "seed": settings.get("seed", ""),
            "began": settings.get("began", ""),
            **other,
            **{f"seconds to {k}": v for k, v in (run.metrics.get("seconds") or {}).items()},
        },
        "settings": run.model.get_params(deep=False),
        "versions": settings.get("versions") or {},
        "notes": [str(note) for note in run.metrics.get("notes") or []],
    }
