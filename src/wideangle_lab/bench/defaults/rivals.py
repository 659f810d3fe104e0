"""Other classifiers with usual settings; columns are scaled if the method needs it.

Like ours, none of them is tuned.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, StandardScaler

from wideangle_lab.bench.defaults.tables import Parts
from wideangle_lab.machine import optional
from wideangle_lab.paper.metrics import row_losses

SMALLEST = 1e-6
"""Probabilities of every classifier, ours too, are at least this: a forest's may be exactly 0."""
MOST_GP = 1000
"""Largest number of rows for a Gaussian process."""
FEW = 2000
"""Up to this number of rows, a network is trained on all of them, without early stopping."""
LOGISTIC = "logistic regression"


def log_loss(y: np.ndarray, proba: np.ndarray) -> float:
    """Mean negative log probability of the true class."""
    clipped = np.clip(np.asarray(proba, float), SMALLEST, 1.0)
    return float(np.mean(row_losses(y, clipped / clipped.sum(axis=1, keepdims=True))))


def rivals(seed: int, shape: tuple[int, int], sparse: bool) -> dict[str, Any]:
    """Classifiers by name."""
    n_rows, n_columns = shape

    def scaled(model: Any) -> Any:
        return make_pipeline(MaxAbsScaler() if sparse else StandardScaler(), model)

    network = MLPClassifier(max_iter=1000, early_stopping=n_rows > FEW, random_state=seed)
    found: dict[str, Any] = {
        LOGISTIC: scaled(LogisticRegression(max_iter=5000)),
        "gradient boosting": HistGradientBoostingClassifier(early_stopping=True, random_state=seed),
        "random forest": RandomForestClassifier(300, random_state=seed, n_jobs=-1),
        "MLP": scaled(network),
    }
    if n_rows <= MOST_GP:
        kernel = ConstantKernel(1.0) * RBF(np.sqrt(n_columns))
        found["Gaussian process"] = scaled(GaussianProcessClassifier(kernel, random_state=seed))
    catboost = optional("catboost")
    if catboost is not None:
        found["CatBoost"] = catboost.CatBoostClassifier(
            random_seed=seed, verbose=False, allow_writing_files=False
        )
    return found


def compare(parts: Parts, seed: int) -> dict[str, dict[str, float]]:
    """Log-loss on the test rows, and seconds of the fit, of every rival."""
    sparse = sp.issparse(parts.train)
    result = {}
    for name, model in rivals(seed, parts.train.shape, sparse).items():
        # Only the linear model and the network are faster on sparse rows.
        as_it_is = not sparse or name in (LOGISTIC, "MLP")
        train, test = (X if as_it_is else X.toarray() for X in (parts.train, parts.test))
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(train, parts.y_train)
        seconds = time.perf_counter() - began
        result[name] = {
            "log_loss": log_loss(parts.y_test, model.predict_proba(test)),
            "seconds": round(seconds, 2),
        }
    return result
