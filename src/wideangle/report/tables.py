"""Tables of the page: rows to look at, diagnostics, settings."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
import scipy.sparse as sp

from wideangle.diagnostics import ESS_PER_CHAIN, RHAT_LIMIT
from wideangle.plots.chains import WORDS
from wideangle.runs.folder import Run

MOST_ROWS = 25
KEY_COLUMNS = 4
"""Columns whose values are shown of a doubtful row."""


def doubtful_rows(run: Run) -> dict[str, Any]:
    """Rows to look at: most uncertain for experts, least explained for features."""
    return _uncertain(run) if run.kind == "moe" else _surprising(run)


def _uncertain(run: Run) -> dict[str, Any]:
    sample, classes = run.sample, run.frame.classes
    proba, total = sample.values["proba"], sample.values["total"]
    order = np.argsort(-total, kind="stable")[:MOST_ROWS]
    best = np.argmax(proba, axis=1)
    owner = np.argmax(sample.values["gate"], axis=1)
    head = ["row", "true class", "predicted", "probability", "uncertainty", "of it ignorance",
            "expert"]  # fmt: skip
    lines = [
        [
            int(sample.rows[i]),
            "" if sample.y is None else str(classes[sample.y[i]]),
            str(classes[best[i]]),
            float(proba[i, best[i]]),
            float(total[i]),
            float(sample.values["epistemic"][i] / max(total[i], 1e-12)),
            int(owner[i]) + 1,
        ]
        for i in order
    ]
    return _with_columns(run, order, head, lines)


def _surprising(run: Run) -> dict[str, Any]:
    sample = run.sample
    density, used = sample.values["log_density"], sample.values["activations"]
    finite = np.flatnonzero(np.isfinite(density))
    order = finite[np.argsort(density[finite], kind="stable")][:MOST_ROWS]
    gap = dense_rows(sample.X, order) - sample.values["reconstruction"][order]
    missed = np.sqrt(np.nanmean(np.where(np.isnan(gap), np.nan, gap**2), axis=1))
    head = ["row", "log density", "left unexplained", "features", "which"]
    lines = [
        [
            int(sample.rows[i]),
            float(density[i]),
            float(missed[place]),
            round(float(used[i].sum()), 1),
            " ".join(str(k + 1) for k in np.flatnonzero(used[i] > 0.5)[:12]),  # noqa: PLR2004
        ]
        for place, i in enumerate(order)
    ]
    return _with_columns(run, order, head, lines)


def _with_columns(
    run: Run, order: np.ndarray, head: list[str], lines: list[list[Any]]
) -> dict[str, Any]:
    """Values of the columns with the largest weights beside each row."""
    if len(run.columns) and len(order):
        chosen = key_columns(run)
        values = dense_rows(run.sample.X, order)[:, chosen]
        head = [*head, *(run.columns[c] for c in chosen)]
        lines = [
            [*line, *(None if np.isnan(v) else float(v) for v in row)]
            for line, row in zip(lines, values, strict=True)
        ]
    return {"head": head, "lines": lines, "n_own": len(head) - min(KEY_COLUMNS, len(run.columns))}


def key_columns(run: Run) -> np.ndarray:
    """Columns that matter most to the model, strongest first."""
    p = len(run.columns)
    if run.kind == "features":
        size = np.abs(run.model.components_).max(axis=0, initial=0.0)
    else:
        size = np.abs(np.asarray(run.model.experts_)).reshape(-1, run.model.gates_.shape[1])
        size = size.max(axis=0)
    return np.argsort(-size[:p], kind="stable")[:KEY_COLUMNS]


def dense_rows(X: Any, chosen: np.ndarray) -> np.ndarray:
    """Some rows as a dense array of floats."""
    part = X[chosen]
    return np.asarray(part.toarray() if sp.issparse(part) else part, float)


def diagnostics(run: Run) -> list[dict[str, Any]]:
    """R-hat and effective sample sizes of each watched number, and whether they are good."""
    table = run.model.diagnostics_
    if table is None:
        return []
    posterior = run.model.posterior_ if run.kind == "moe" else run.model.trace_
    least = ESS_PER_CHAIN * posterior.n_chains
    rows = []
    for i, name in enumerate(table.names):
        rhat, bulk, tail = (float(table[c][i]) for c in ("rhat", "ess_bulk", "ess_tail"))
        good = not (rhat > RHAT_LIMIT or bulk < least or tail < least)
        known = np.isfinite(rhat)
        rows.append(
            {
                "name": plain_name(name),
                "mean": float(table["mean"][i]),
                "rhat": rhat if known else None,
                "bulk": bulk if np.isfinite(bulk) else None,
                "tail": tail if np.isfinite(tail) else None,
                "verdict": ("good" if good else "doubtful") if known else "constant",
            }
        )
    return rows


def plain_name(name: str) -> str:
    """A watched number in words."""
    if name.startswith("probability["):
        return f"probability at watched row {int(name[len('probability[') : -1]) + 1}"
    return WORDS.get(name, name)


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
