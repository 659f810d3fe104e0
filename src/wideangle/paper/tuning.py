"""Choosing the settings of a row on a validation part of the training rows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from wideangle.datasets import random_split
from wideangle.paper.cells import Cell
from wideangle.paper.methods import GRIDS, UNREPULSED, estimator
from wideangle.paper.metrics import row_losses
from wideangle.paper.records import plain, write_json
from wideangle.paper.task import Task

N_EXPERTS = 10
"""K at which settings are chosen."""
TRAIN_SHARE = 0.8
SHORTER, N_CHAINS = 4, 2
"""Chains while choosing: a fourth of the length, and two of them."""


def tuned(cell: Cell, task: Task, folder: Path) -> dict[str, Any]:
    """Settings, their validation losses and the seconds it took; kept in a file of its own.

    The file holds for all K of a data set and row, and for all seeds where the split is fixed.
    """
    if not cell.effort.tune or cell.method not in GRIDS:
        return {"settings": {}, "losses": {}, "seconds": 0.0}
    grid, base = GRIDS[cell.method], {}
    if cell.method in UNREPULSED:
        base = tuned(replace(cell, method=UNREPULSED[cell.method]), task, folder)["settings"]
    if not grid:
        return {"settings": base, "losses": {}, "seconds": 0.0}
    seed = 0 if task.fixed else cell.seed
    path = folder / "tuning" / cell.data / f"{cell.method}.seed{seed}.json"
    asked = plain(
        {
            "grid": grid,
            "base": base,
            "effort": cell.effort._asdict(),
            "given": dict(cell.settings),
        }
    )
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept["asked"] == asked:
            return kept
    start = time.perf_counter()
    settings, losses = search(grid, scorer(cell, task, seed), base)
    done = {
        "asked": asked,
        "settings": settings,
        "losses": losses,
        "n_experts": N_EXPERTS,
        "seconds": time.perf_counter() - start,
    }
    write_json(path, done)
    return done


def search(
    grid: dict[str, list[float]],
    loss: Callable[[dict[str, float]], float],
    base: dict[str, float] | None = None,
) -> tuple[dict[str, float], dict[str, float]]:
    """One setting after the other, earlier ones at their best; and all losses met."""
    best = dict(base or {})
    losses: dict[str, float] = {}
    for name, values in grid.items():
        found = {value: loss({**best, name: value}) for value in values}
        losses |= {f"{name}={value:g}": one for value, one in found.items()}
        best[name] = min(found, key=lambda value: found[value])
    return best, losses


def scorer(cell: Cell, task: Task, seed: int) -> Callable[[dict[str, float]], float]:
    """Validation log-loss as a function of the settings."""
    part = random_split(len(task.y_train), seed, TRAIN_SHARE)
    effort = cell.effort
    options = {
        "n_warmup": max(effort.n_warmup // SHORTER, 1),
        "n_draws": max(effort.n_draws // SHORTER, 1),
        "n_chains": N_CHAINS,
        "n_passes": effort.n_passes,
        "random_state": seed,
        "progress": False,
        **cell.settings,
    }

    def loss(settings: dict[str, float]) -> float:
        model = estimator(cell.method, N_EXPERTS, **{**options, **settings})
        model.fit(task.X_train[part.train], task.y_train[part.train])
        proba = model.predict_proba(task.X_train[part.test])
        value = float(np.mean(row_losses(task.y_train[part.test], proba)))
        return value if np.isfinite(value) else float("inf")

    return loss
