"""Running one cell of the tables of latent features."""

from __future__ import annotations

import time
import warnings
from typing import Any, NamedTuple

import numba
import numpy as np

from wideangle.latent_features.estimator import LatentFeatureModel
from wideangle_lab.datasets import Dataset, random_split
from wideangle_lab.paper.cells import Cell
from wideangle_lab.paper.feature_methods import feature_model
from wideangle_lab.paper.feature_metrics import (
    MOST_SCORED,
    clustering,
    hidden_entries,
    precision,
    reconstruction,
    word_overlap,
)
from wideangle_lab.paper.feature_pictures import MOST_TOPICS, picture, top_words
from wideangle_lab.paper.made import MADE_TEXT, data_set
from wideangle_lab.paper.metrics import standard_error
from wideangle_lab.paper.records import Outcome, Record, Tunings

RETRIEVAL = ("reuters", MADE_TEXT)
"""Data sets for retrieval of rows by their features, as in the paper."""


class FeatureTask(NamedTuple):
    """Training and held-out rows."""

    data: Dataset
    X_train: Any
    X_test: Any
    y_train: np.ndarray | None
    y_test: np.ndarray | None


def feature_task(cell: Cell) -> FeatureTask:
    """Train on 70 % of the rows, drawn by the seed; the same for all rows of a table."""
    data = data_set(cell.data)
    train, test = random_split(data.shape[0], cell.seed)
    # In random order, so that the first rows are a fair sample.
    generator = np.random.default_rng((cell.seed, 0))
    train, test = (generator.permutation(part)[: cell.effort.max_rows] for part in (train, test))
    y_train, y_test = (None if data.y is None else data.y[part] for part in (train, test))
    return FeatureTask(data, data.X[train], data.X[test], y_train, y_test)


def execute(cell: Cell, known: Tunings) -> Outcome:
    """Fit, evaluate on held-out rows, draw pictures; warnings are recorded, not shown."""
    task = feature_task(cell)
    # This is 1 in a process with one thread: chains then run one after the other.
    model = feature_model(cell, n_jobs=numba.config.NUMBA_NUM_THREADS)  # pyright: ignore[reportAttributeAccessIssue]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.perf_counter()
        spent = time.process_time()
        model.fit(task.X_train)
        seconds = {"fit": time.perf_counter() - start}
        cpu = {"cpu_fit": time.process_time() - spent}
        scores = model.score_samples(task.X_test[:MOST_SCORED])
        metrics = measure(model, task, cell.seed)
        seconds["evaluate"] = time.perf_counter() - start - seconds["fit"]
        drawn = picture(model, task.data)
    metrics |= {
        "n_train": task.X_train.shape[0],
        "n_test": task.X_test.shape[0],
        "log_likelihood": float(np.mean(scores)),
        "log_likelihood_error": standard_error(scores),
        "n_scored": len(scores),
    }
    said = dict.fromkeys(f"{one.category.__name__}: {one.message}" for one in caught)
    return Outcome(
        metrics,
        seconds,
        diagnostics=diagnose(model) | cpu,
        warnings=tuple(said),
        picture=drawn,
    )


def measure(model: LatentFeatureModel, task: FeatureTask, seed: int) -> dict[str, Any]:
    """All metrics on held-out rows except their density."""
    metrics: dict[str, Any] = {
        **reconstruction(model, task.X_test),
        **hidden_entries(model, task.X_test, seed),
    }
    if task.y_test is None or task.y_train is None:
        return metrics
    points = model.transform(task.X_test)
    metrics |= clustering(points, task.y_test, seed)
    plain = clustering(task.X_test, task.y_test, seed)
    metrics |= {f"{name}_of_rows": value for name, value in plain.items()}
    if task.data.name in RETRIEVAL:
        metrics |= precision(points, task.y_test, model.transform(task.X_train), task.y_train)
    if names := task.data.feature_names:
        lists = [top_words(vector, names) for vector in model.components_]
        metrics |= {"words": lists[:MOST_TOPICS], "word_overlap": word_overlap(lists)}
    return metrics


def diagnose(model: LatentFeatureModel) -> dict[str, Any]:
    """Number of features, their angles, and R-hat of label-invariant quantities."""
    summary = model.diagnostics_
    rhats = dict(zip(summary.names, map(float, summary["rhat"]), strict=True))
    finite = [value for value in rhats.values() if np.isfinite(value)]
    stuck = {name: v.tolist() for name, v in summary.constant.items() if np.ptp(v) > 0}
    angles = model.diversity_ if model.n_components_ > 1 else None
    return {
        "n_components": model.n_components_,
        "n_raw": float(np.mean(model.trace_.values["n_active"])),
        "n_disputed": model.matched_.n_disputed,
        "mean_angle": None if angles is None else angles.mean_angle,
        "concentration": model.concentration_,
        "noise_scale": model.noise_scale_,
        "start_objectives": model.start_objectives_,
        "rhat": max(finite) if finite else None,
        "rhats": rhats,
        "constant": stuck,
        "n_chains": model.choice("inference").n_chains,
        "interrupted": model.interrupted_,
    }


def headline(record: Record) -> str:
    """One line about a finished cell."""
    metrics, found = record.metrics, record.diagnostics
    text = f"log-likelihood {metrics['log_likelihood']:.2f}, L2 {metrics['l2_error']:.4g}"
    text += f", {found['n_components']} components of {found['n_raw']:.0f}"
    if "nmi" in metrics:
        text += f", clustering {metrics['clustering_accuracy']:.1f} %, NMI {metrics['nmi']:.1f} %"
    return text
