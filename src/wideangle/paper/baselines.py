"""Usual classifiers, each tuned by cross-validation on the training part by log-loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

N_TREES = 300
Grid = dict[str, list[Any]]


def logistic_regression(seed: int) -> tuple[Any, Grid]:
    """L2-regularised, on columns scaled to at most 1."""
    model = make_pipeline(MaxAbsScaler(), LogisticRegression(max_iter=5000))
    return model, {"logisticregression__C": [0.01, 0.1, 1.0, 10.0, 100.0]}


def random_forest(seed: int) -> tuple[Any, Grid]:
    """Small leaves overfit probabilities, so their size is what is tuned."""
    model = RandomForestClassifier(N_TREES, random_state=seed, n_jobs=1)
    return model, {"min_samples_leaf": [1, 5, 20], "max_depth": [None, 20]}


def gradient_boosting(seed: int) -> tuple[Any, Grid]:
    """Histogram trees; the number of rounds by early stopping."""
    model = HistGradientBoostingClassifier(
        early_stopping=True, max_iter=1000, n_iter_no_change=20, random_state=seed
    )
    return model, {"learning_rate": [0.03, 0.1], "max_leaf_nodes": [7, 15, 31]}


def neural_network(seed: int) -> tuple[Any, Grid]:
    """One or two hidden layers, early stopping on a tenth of the rows."""
    network = MLPClassifier(early_stopping=True, max_iter=200, random_state=seed)
    grid = {
        "mlpclassifier__hidden_layer_sizes": [(64,), (64, 64)],
        "mlpclassifier__alpha": [1e-3, 0.1, 1.0],
    }
    return make_pipeline(MaxAbsScaler(), network), grid


BASELINES: dict[str, Callable[[int], tuple[Any, Grid]]] = {
    "LR": logistic_regression,
    "RF": random_forest,
    "GB": gradient_boosting,
    "MLP": neural_network,
}
NAMES = {
    "LR": "logistic regression",
    "RF": "random forest",
    "GB": "gradient boosting",
    "MLP": "multilayer perceptron",
}


def fit_baseline(
    name: str, X: Any, y: np.ndarray, *, seed: int, n_folds: int
) -> tuple[Any, dict[str, Any]]:
    """The tuned classifier, fitted to all training rows, and what was chosen."""
    model, grid = BASELINES[name](seed)
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    search = GridSearchCV(model, grid, scoring="neg_log_loss", cv=folds, n_jobs=1)
    search.fit(X, y)
    chosen = {key.rpartition("__")[2]: value for key, value in search.best_params_.items()}
    return search.best_estimator_, {**chosen, "validation_log_loss": -float(search.best_score_)}


def rows_for(name: str, X: Any) -> Any:
    """Histogram boosting wants dense rows; the others read sparse ones."""
    return X.toarray() if name == "GB" and sp.issparse(X) else X
