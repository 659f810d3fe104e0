"""Running one cell of a table of classifiers."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from wideangle.mixture_of_experts.classifier import MixtureOfExpertsClassifier
from wideangle_lab.paper.baselines import BASELINES, fit_baseline
from wideangle_lab.paper.cells import Cell
from wideangle_lab.paper.efforts import chain_settings, kind_of
from wideangle_lab.paper.methods import estimator, plain_name
from wideangle_lab.paper.metrics import evaluate
from wideangle_lab.paper.records import Outcome, Record, Tunings
from wideangle_lab.paper.task import Task, task_of
from wideangle_lab.paper.tuning import chosen_name, fitted, tuned


class _Fitted(NamedTuple):
    proba: np.ndarray
    seconds: dict[str, float]
    chosen: dict[str, Any]
    diagnostics: dict[str, Any]
    tunings: dict[str, dict[str, Any]]


def execute(cell: Cell, known: Tunings) -> Outcome:
    """Choose settings, fit, predict, evaluate; warnings are recorded, not shown."""
    return execute_many([cell], known)[0]


def execute_many(cells: Sequence[Cell], known: Tunings) -> list[Outcome]:
    """The same for cells that differ in their split only; those of chains in one program."""
    tasks = [task_of(cell) for cell in cells]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if cells[0].method in BASELINES:
            done = [_baseline(*one, known) for one in zip(cells, tasks, strict=True)]
        else:
            done = _experts(cells, tasks, known)
    said = dict.fromkeys(f"{one.category.__name__}: {one.message}" for one in caught)
    return [
        Outcome(
            metrics={
                **evaluate(task.y_test, one.proba, task.groups),
                "n_train": len(task.y_train),
            },
            seconds=one.seconds,
            chosen=one.chosen,
            diagnostics=one.diagnostics,
            warnings=tuple(said),
            tunings=one.tunings,
        )
        for task, one in zip(tasks, done, strict=True)
    ]


def _baseline(cell: Cell, task: Task, known: Tunings) -> _Fitted:
    start = time.perf_counter()
    before = known.get(chosen_name(cell), {}).get("settings")
    model, chosen, diagnostics = fit_baseline(
        cell.method,
        task.X_train,
        task.y_train,
        seed=cell.seed,
        n_folds=cell.effort.n_folds,
        chosen=before,
    )
    fitted = time.perf_counter()
    proba = model.predict_proba(task.X_test)
    seconds = {"fit": fitted - start, "predict": time.perf_counter() - fitted}
    return _Fitted(proba, seconds, chosen, diagnostics, {})


def _experts(cells: Sequence[Cell], tasks: Sequence[Task], known: Tunings) -> list[_Fitted]:
    choice, made = tuned(cells[0], tasks[0], known)
    models = []
    for cell in cells:
        options = {
            **chain_settings(cell.effort, kind_of(cell)),
            "random_state": cell.seed,
            "verbose": False,
        }
        settings = {**options, **cell.settings, **choice["settings"]}
        models.append(estimator(cell.method, cell.n_experts, **settings))
    start = time.perf_counter()
    training = [(task.X_train, task.y_train) for task in tasks]
    models = fitted(models, training, together=len(cells) > 1)
    share = (time.perf_counter() - start) / len(cells)
    chosen = {plain_name(name): value for name, value in choice["settings"].items()}
    chosen["validation_losses"] = choice["losses"]
    found = []
    for model, task in zip(models, tasks, strict=True):
        start = time.perf_counter()
        proba = model.predict_proba(task.X_test)
        seconds = {
            "tune": choice["seconds"],
            "fit": share,
            "predict": time.perf_counter() - start,
        }
        diagnostics = diagnose(model)
        if model.posterior_.n_chains > 1:
            diagnostics["accuracy_of_halves"] = of_halves(model, task)
        if len(cells) > 1:
            diagnostics["n_together"] = len(cells)
        found.append(_Fitted(proba, seconds, chosen, diagnostics, made))
    return found


def of_halves(model: MixtureOfExpertsClassifier, task: Task) -> list[float]:
    """Accuracy, in per cent, by the first half of the chains and by the others."""
    usual, found = model.chain_weights_, []
    for half in np.array_split(np.arange(len(usual)), 2):
        model.chain_weights_ = np.isin(np.arange(len(usual)), half) / len(half)
        found.append(100.0 * float(np.mean(model.predict(task.X_test) == task.y_test)))
    model.chain_weights_ = usual
    return found


def diagnose(model: MixtureOfExpertsClassifier) -> dict[str, Any]:
    """Experts in use, angles, and for chains the worst R-hat and effective sample sizes.

    R-hat of predictions is separate: chains often agree on predictions but not on the experts in
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
            "n_chains": model.choice("inference").n_chains,
        }
    return result


def headline(record: Record) -> str:
    """One line about a finished cell."""
    metrics, used = record.metrics, record.diagnostics.get("n_used")
    text = f"accuracy {metrics['accuracy']:.2f} %, log-loss {metrics['log_loss']:.4f}"
    return text + (f", {used:.1f} in use" if used is not None else "")


def _largest(values: np.ndarray) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.max()) if len(finite) else None


def _smallest(values: np.ndarray) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.min()) if len(finite) else None
