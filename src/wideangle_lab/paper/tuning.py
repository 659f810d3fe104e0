"""Choosing the settings of a row on the training rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold

from wideangle.mixture_of_experts.many import fit_many
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
    settings, losses = search(grid, scorer(cell, task), base)
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
    losses_of: Callable[[list[dict[str, Any]]], list[float]],
    base: dict[str, Any] | None = None,
) -> tuple[dict[str, Any], dict[str, float]]:
    """Search one setting after the other, with earlier ones at their best; returns all losses.

    If there is only one choice, nothing is fitted.
    """
    best = dict(base or {})
    losses: dict[str, float] = {}
    if all(len(values) == 1 for values in grid.values()):
        return best | {name: values[0] for name, values in grid.items()}, losses
    for name, values in grid.items():
        found = losses_of([{**best, name: value} for value in values])
        losses |= {
            f"{plain_name(name)}={shown(v)}": one for v, one in zip(values, found, strict=True)
        }
        best[name] = values[int(np.argmin(found))]
    return best, losses


def shown(value: Any) -> str:
    """Short form of a setting."""
    return value if isinstance(value, str) else f"{value:g}"


def scorer(cell: Cell, task: Task) -> Callable[[list[dict[str, Any]]], list[float]]:
    """Validation log-losses of several settings, on the rows of the first split."""
    options = {**_options(cell), "verbose": False}
    rows = first_split(cell, task)
    parts = list(validation_parts(rows.y_train, CHOSEN_ON, cell.effort.mixture_folds))

    def losses(tried: list[dict[str, Any]]) -> list[float]:
        pairs = [(settings, part) for settings in tried for part in parts]
        models = [estimator(cell.method, N_EXPERTS, **{**options, **one}) for one, _ in pairs]
        training = [(rows.X_train[train], rows.y_train[train]) for _, (train, _) in pairs]
        found: list[list[np.ndarray]] = [[] for _ in tried]
        fits = fitted(models, training, together=kind_of(cell) == "mcmc")
        for place, (model, (_, (_, test))) in enumerate(zip(fits, pairs, strict=True)):
            proba = model.predict_proba(rows.X_train[test])
            found[place // len(parts)].append(row_losses(rows.y_train[test], proba))
        values = [float(np.mean(np.concatenate(one))) for one in found]
        return [value if np.isfinite(value) else float("inf") for value in values]

    return losses


def fitted(models: list[Any], training: list[tuple[Any, Any]], *, together: bool) -> list[Any]:
    """The models, each fitted to its rows: in one program, or one after the other."""
    if together:
        return fit_many(models, training)
    return [model.fit(*rows) for model, rows in zip(models, training, strict=True)]


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
