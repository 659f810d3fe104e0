"""Running one cell of a table of classifiers."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from wideangle.estimators.mixture_of_experts import MixtureOfExpertsClassifier
from wideangle.paper.baselines import BASELINES, fit_baseline, rows_for
from wideangle.paper.cells import Cell
from wideangle.paper.methods import estimator
from wideangle.paper.metrics import evaluate, row_losses
from wideangle.paper.records import Outcome
from wideangle.paper.task import Task, task_of
from wideangle.paper.tuning import tuned


def execute(cell: Cell, folder: Path) -> Outcome:
    """Choose settings, fit, predict, measure; warnings are kept, not shown."""
    task = task_of(cell)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = _baseline if cell.method in BASELINES else _experts
        proba, seconds, chosen, diagnostics = run(cell, task, folder)
    said = dict.fromkeys(f"{one.category.__name__}: {one.message}" for one in caught)
    return Outcome(
        metrics={**evaluate(task.y_test, proba, task.groups), "n_train": len(task.y_train)},
        losses=row_losses(task.y_test, proba),
        seconds=seconds,
        chosen=chosen,
        diagnostics=diagnostics,
        warnings=tuple(said),
    )


def _baseline(cell: Cell, task: Task, folder: Path) -> tuple[Any, ...]:
    start = time.perf_counter()
    X = rows_for(cell.method, task.X_train)
    model, chosen = fit_baseline(
        cell.method, X, task.y_train, seed=cell.seed, n_folds=cell.effort.n_folds
    )
    fitted = time.perf_counter()
    proba = model.predict_proba(rows_for(cell.method, task.X_test))
    seconds = {"fit": fitted - start, "predict": time.perf_counter() - fitted}
    return proba, seconds, chosen, {}


def _experts(cell: Cell, task: Task, folder: Path) -> tuple[Any, ...]:
    choice = tuned(cell, task, folder)
    effort = cell.effort
    model = estimator(
        cell.method,
        cell.n_experts,
        **{
            "n_warmup": effort.n_warmup,
            "n_draws": effort.n_draws,
            "n_chains": effort.n_chains,
            "n_passes": effort.n_passes,
            "random_state": cell.seed,
            "progress": False,
            **cell.settings,
            **choice["settings"],
        },
    )
    start = time.perf_counter()
    model.fit(task.X_train, task.y_train)
    fitted = time.perf_counter()
    proba = model.predict_proba(task.X_test)
    seconds = {
        "tune": choice["seconds"],
        "fit": fitted - start,
        "predict": time.perf_counter() - fitted,
    }
    chosen = {**choice["settings"], "validation_losses": choice["losses"]}
    return proba, seconds, chosen, diagnose(model)


def diagnose(model: MixtureOfExpertsClassifier) -> dict[str, Any]:
    """Experts in use, angles, and for chains the worst R-hat and effective sample sizes.

    R-hat of predictions is given apart: chains often agree on them and not on which experts they
    use.
    """
    result: dict[str, Any] = {
        "n_used": model.n_used_,
        "mean_angle": model.diversity_.mean_angle,
        **{name: value for name, value in model.notes_.items() if name != "log_posterior"},
    }
    summary = model.diagnostics_
    if summary is not None:
        seen = np.array([name.startswith("probability") for name in summary.names])
        result |= {
            "rhat": _largest(summary["rhat"]),
            "rhat_predictions": _largest(summary["rhat"][seen]),
            "ess_bulk": _smallest(summary["ess_bulk"]),
            "ess_tail": _smallest(summary["ess_tail"]),
            "ess_predictions": _smallest(summary["ess_bulk"][seen]),
            "n_chains": model.n_chains,
        }
    return result


def _largest(values: np.ndarray) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.max()) if len(finite) else None


def _smallest(values: np.ndarray) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.min()) if len(finite) else None
