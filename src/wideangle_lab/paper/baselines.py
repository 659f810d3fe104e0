"""Usual classifiers, each tuned by cross-validation on the training part.

Classifiers with probabilities are tuned by log-loss. The two with margins are tuned by accuracy;
their margins are converted to probabilities by Platt scaling, also fitted by cross-validation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler
from sklearn.svm import LinearSVC

from wideangle_lab.paper.infinite_svm import InfiniteSVM

N_TREES = 300
N_LANDMARKS = 1000
"""Maximum number of landmarks of Nystroem's map; at most half of the training rows."""
GAMMAS = [0.2, 1.0, 5.0]
"""Widths of radial kernels, in units of 1 / (mean squared length of a row)."""
Grid = dict[str, list[Any]]


class Baseline(NamedTuple):
    """A classifier, its tuned settings, and the score for tuning."""

    model: Any
    grid: Grid
    scoring: str = "neg_log_loss"


def logistic_regression(seed: int, size: tuple[int, float]) -> Baseline:
    """L2-regularised, on columns scaled to at most 1."""
    model = make_pipeline(MaxAbsScaler(), LogisticRegression(max_iter=5000))
    return Baseline(model, {"logisticregression__C": [0.01, 0.1, 1.0, 10.0, 100.0]})


def kernel_svm(seed: int, size: tuple[int, float]) -> Baseline:
    """Radial kernel by Nystroem's map, then a linear SVM."""
    n_rows, length = size
    kernel = Nystroem(n_components=min(N_LANDMARKS, n_rows // 2), random_state=seed)
    machine = LinearSVC(dual=False, random_state=seed)
    grid = {
        "nystroem__gamma": [gamma / length for gamma in GAMMAS],
        "linearsvc__C": [0.1, 1.0, 10.0],
    }
    return Baseline(make_pipeline(MaxAbsScaler(), kernel, machine), grid, "accuracy")


def random_forest(seed: int, size: tuple[int, float]) -> Baseline:
    """The size of leaves is tuned, since small leaves overfit probabilities."""
    model = RandomForestClassifier(N_TREES, random_state=seed, n_jobs=1)
    return Baseline(model, {"min_samples_leaf": [1, 5, 20], "max_depth": [None, 20]})


def gradient_boosting(seed: int, size: tuple[int, float]) -> Baseline:
    """Histogram trees; the number of rounds is set by early stopping. Needs dense rows."""
    model = HistGradientBoostingClassifier(
        early_stopping=True, max_iter=1000, n_iter_no_change=20, random_state=seed
    )
    grid = {
        "histgradientboostingclassifier__learning_rate": [0.03, 0.1],
        "histgradientboostingclassifier__max_leaf_nodes": [7, 15, 31],
    }
    return Baseline(make_pipeline(FunctionTransformer(_dense, accept_sparse=True), model), grid)


def neural_network(seed: int, size: tuple[int, float]) -> Baseline:
    """One to three hidden layers, early stopping on a tenth of the rows."""
    network = MLPClassifier(early_stopping=True, max_iter=200, random_state=seed)
    grid = {
        "mlpclassifier__hidden_layer_sizes": [(64,), (64, 64), (128, 64, 32)],
        "mlpclassifier__alpha": [1e-3, 0.1, 1.0],
    }
    return Baseline(make_pipeline(MaxAbsScaler(), network), grid)


def infinite_svm(seed: int, size: tuple[int, float]) -> Baseline:
    """Mixture of kernel machines; ours, see :mod:`wideangle_lab.paper.infinite_svm`."""
    grid = {
        "infinitesvm__n_components": [3, 10],
        "infinitesvm__gamma": [gamma / size[1] for gamma in GAMMAS[:2]],
        "infinitesvm__C": [1.0, 10.0, 100.0],
    }
    landmarks = min(N_LANDMARKS, size[0] // 2)
    model = InfiniteSVM(n_landmarks=landmarks, random_state=seed, max_iter=20)
    return Baseline(make_pipeline(MaxAbsScaler(), model), grid, "accuracy")


BASELINES: dict[str, Callable[[int, tuple[int, float]], Baseline]] = {
    "LR": logistic_regression,
    "KSVM": kernel_svm,
    "RF": random_forest,
    "GB": gradient_boosting,
    "MLP": neural_network,
    "ISVM": infinite_svm,
}
NAMES = {
    "LR": "logistic regression",
    "KSVM": "kernel SVM",
    "RF": "random forest",
    "GB": "gradient boosting",
    "MLP": "multilayer perceptron",
    "ISVM": "infinite SVM",
}


def fit_baseline(
    name: str,
    X: Any,
    y: np.ndarray,
    *,
    seed: int,
    n_folds: int,
    chosen: Mapping[str, Any] | None = None,
) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The tuned classifier, fitted to all training rows, its chosen settings, and diagnostics.

    Settings that were ``chosen`` before are used as they are.
    """
    X = sp.csr_array(X) if sp.issparse(X) else X
    scaled = MaxAbsScaler().fit_transform(X)
    length = float(scaled.multiply(scaled).sum() if sp.issparse(scaled) else np.sum(scaled**2))
    model, grid, scoring = BASELINES[name](seed, (X.shape[0], length / X.shape[0] or 1.0))
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    if chosen is None:
        search = GridSearchCV(model, grid, scoring=scoring, cv=folds, n_jobs=n_threads())
        best = search.fit(X, y).best_estimator_
        chosen = {key.rpartition("__")[2]: value for key, value in search.best_params_.items()}
        sign, score = (100, "accuracy") if scoring == "accuracy" else (-1, "log_loss")
        chosen[f"validation_{score}"] = sign * float(search.best_score_)
    else:
        chosen = {plain: chosen[plain] for plain in (key.rpartition("__")[2] for key in grid)}
        best = model.set_params(**dict(zip(grid, chosen.values(), strict=True))).fit(X, y)
    found = {"n_used": best[-1].n_used_} if name == "ISVM" else {}
    if scoring == "accuracy":
        best = CalibratedClassifierCV(best, cv=folds, ensemble=False, n_jobs=n_threads()).fit(X, y)
    return best, dict(chosen), found


def n_threads() -> int:
    """Cores that this process may use; workers set this variable to one."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    return min(allowed, int(os.environ.get("OMP_NUM_THREADS", allowed)))


def _dense(X: Any) -> Any:
    return X.toarray() if sp.issparse(X) else X
