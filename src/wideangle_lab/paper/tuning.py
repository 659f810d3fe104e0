"""Choosing the settings of a row on the training rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from wideangle.storage.files import as_finite
from wideangle_lab.datasets import random_split
from wideangle_lab.paper.cells import Cell
from wideangle_lab.paper.efforts import chain_settings, kind_of
from wideangle_lab.paper.methods import GRIDS, UNREPULSED, estimator, plain_name
from wideangle_lab.paper.metrics import row_losses
from wideangle_lab.paper.records import Tunings
from wideangle_lab.paper.task import Task, task_of

N_EXPERTS = 10
"""K at which settings are chosen."""
TRAIN_SHARE = 0.8
CHOSEN_ON = 0
"""The split on whose training rows settings are chosen, for all splits."""
SHORT, N_CHAINS = 100, 2
"""Maximum warm-up and draws of a chain while choosing, and the number of chains."""
NOTHING: dict[str, Any] = {"settings": {}, "losses": {}, "seconds": 0.0}


def leader(method: str) -> str:
    """The row whose settings a row starts from: itself, or the one without diversity."""
    return UNREPULSED.get(method, method)


def tuned(
    cell: Cell, task: Task, known: Tunings
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Settings with their losses and seconds; and the choices made now, by name.

    A choice is made on the training rows of split 0 and holds for all K and splits.
    """
    if not cell.effort.tune or cell.method not in GRIDS:
        return NOTHING, {}
    grid, base, made = GRIDS[cell.method], {}, {}
    if cell.method in UNREPULSED:
        before, made = tuned(replace(cell, method=UNREPULSED[cell.method]), task, known)
        base = before["settings"]
    if not grid:
        return {**NOTHING, "settings": base}, made
    name = chosen_name(cell)
    options = _options(cell)
    asked = as_finite(
        {"grid": grid, "base": base, "options": options, "folds": cell.effort.mixture_folds}
    )
    if name in known and known[name]["asked"] == asked:
        return dict(known[name]), made
    start = time.perf_counter()
    settings, losses = search(grid, scorer(cell, first_split(cell, task)), base)
    done = {
        "asked": asked,
        "settings": settings,
        "losses": losses,
        "n_experts": N_EXPERTS,
        "seconds": time.perf_counter() - start,
    }
    return done, {**made, name: done}


def chosen_name(cell: Cell) -> str:
    """The name of the choice that a cell uses."""
    return f"{cell.data}/{cell.method}.seed{CHOSEN_ON}"


def first_split(cell: Cell, task: Task) -> Task:
    """The rows that settings are chosen on."""
    return task if cell.seed == CHOSEN_ON else task_of(replace(cell, seed=CHOSEN_ON))


def search(
    grid: dict[str, list[Any]],
    loss: Callable[[dict[str, Any]], float],
    base: dict[str, Any] | None = None,
) -> tuple[dict[str, Any], dict[str, float]]:
    """Search one setting after the other, with earlier ones at their best; returns all losses."""
    best = dict(base or {})
    losses: dict[str, float] = {}
    for name, values in grid.items():
        found = {value: loss({**best, name: value}) for value in values}
        losses |= {f"{plain_name(name)}={shown(value)}": one for value, one in found.items()}
        best[name] = min(found, key=lambda value: found[value])
    return best, losses


def shown(value: Any) -> str:
    """Short form of a setting."""
    return value if isinstance(value, str) else f"{value:g}"


def scorer(cell: Cell, task: Task) -> Callable[[dict[str, Any]], float]:
    """Validation log-loss as a function of the settings."""
    options = {**_options(cell), "verbose": False}
    parts = list(validation_parts(task.y_train, CHOSEN_ON, cell.effort.mixture_folds))

    def loss(settings: dict[str, Any]) -> float:
        found = []
        for train, test in parts:
            model = estimator(cell.method, N_EXPERTS, **{**options, **settings})
            model.fit(task.X_train[train], task.y_train[train])
            found.append(row_losses(task.y_train[test], model.predict_proba(task.X_train[test])))
        value = float(np.mean(np.concatenate(found)))
        return value if np.isfinite(value) else float("inf")

    return loss


def validation_parts(
    y: np.ndarray, seed: int, n_folds: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows to fit and rows to score: a fifth set aside once, or every fold in turn."""
    if n_folds == 1:
        yield random_split(len(y), seed, TRAIN_SHARE)
    else:
        yield from StratifiedKFold(n_folds, shuffle=True, random_state=seed).split(y, y)


def _options(cell: Cell) -> dict[str, Any]:
    """Settings of a fit while choosing."""
    short = {name: min(getattr(cell.effort, name), SHORT) for name in ("n_warmup", "n_draws")}
    effort = cell.effort._replace(**short, n_chains=N_CHAINS)
    return {**chain_settings(effort, kind_of(cell)), "random_state": CHOSEN_ON, **cell.settings}
