"""How good a fitted model is on rows it has not seen, and what it says about some of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from wideangle.posterior import evenly
from wideangle.runs.sample import MOST_ROWS, Sample

BINS = 10
SMALLEST = 1e-12
HIDDEN = 0.1
"""Share of the entries of a held-out row that are hidden and predicted from the others."""
MOST_ENTRIES = 2_000_000
"""Entries of the kept rows: reconstructions are dense, and wide rows are many numbers."""
MOST_SCORED = 500
"""Rows whose density is computed: summing out assignments is the dearest number."""


def sampled_rows(n_rows: int, n_columns: int) -> np.ndarray:
    """Which of the held-out rows are kept, evenly spread."""
    most = max(1, min(n_rows, MOST_ROWS, max(50, MOST_ENTRIES // n_columns)))
    return evenly(n_rows, most)


def score_experts(proba: np.ndarray, y: np.ndarray, frequencies: np.ndarray) -> dict[str, Any]:
    """Scores of probabilities (n, C) of rows of class ``y``.

    Parameters
    ----------
    proba, y
        Predictions and truth, as indices of classes.
    frequencies
        Shares of the classes among the training rows, for the scores of a model that knows
        nothing else.

    Returns
    -------
    dict
        ``accuracy`` and ``log_loss`` (nats), each with ``_error``, its standard error, and
        ``_of_guess``, that of the frequencies; ``brier``; ``calibration_error``, the mean gap
        between confidence and accuracy over ``calibration``, a list of bins with ``confidence``,
        ``accuracy`` and ``n``.
    """
    right = np.argmax(proba, axis=1) == y
    losses = -np.log(np.maximum(proba[np.arange(len(y)), y], SMALLEST))
    guess = -np.log(np.maximum(frequencies[y], SMALLEST))
    truth = np.eye(proba.shape[1])[y]
    bins = calibration_bins(proba.max(axis=1), right)
    gaps = [one["n"] * abs(one["accuracy"] - one["confidence"]) for one in bins]
    return {
        "accuracy": float(right.mean()),
        "accuracy_error": standard_error(right),
        "accuracy_of_guess": float(np.mean(y == np.argmax(frequencies))),
        "log_loss": float(losses.mean()),
        "log_loss_error": standard_error(losses),
        "log_loss_of_guess": float(guess.mean()),
        "brier": float(np.mean(np.sum((proba - truth) ** 2, axis=1))),
        "calibration_error": float(sum(gaps) / len(y)),
        "calibration": bins,
    }


def calibration_bins(confidence: np.ndarray, right: np.ndarray) -> list[dict[str, float]]:
    """Mean confidence and accuracy of the predicted class in bins of equal width."""
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return [
        {
            "confidence": float(confidence[place == b].mean()),
            "accuracy": float(right[place == b].mean()),
            "n": int(np.sum(place == b)),
        }
        for b in np.unique(place)
    ]


def look_at_experts(model: Any, X: Any, rows: np.ndarray, y: np.ndarray) -> Sample:
    """What a mixture of experts says of some rows."""
    uncertainty = model.predict_uncertainty(X)
    values = {
        "proba": model.predict_proba(X),
        "total": uncertainty.total,
        "epistemic": uncertainty.epistemic,
        "gate": model.gate_proba(X),
    }
    return Sample(X, rows, y, values)


def score_features(model: Any, X: Any, mean_row: np.ndarray, seed: int) -> dict[str, Any]:
    """Scores of held-out rows under a latent feature model, in units of the encoded columns.

    Returns
    -------
    dict
        ``log_likelihood`` per row (nats) with ``_error``, of the first :data:`MOST_SCORED` rows;
        ``reconstruction_error``, the root mean square over entries, and ``_of_mean``, that of
        the mean training row; ``hidden_error``, the same for entries predicted from the rest of
        their row, with ``_of_mean`` and ``n_hidden``.
    """
    scored = X[:MOST_SCORED]
    densities = model.score_samples(scored)
    part = X[sampled_rows(X.shape[0], X.shape[1])]
    dense = np.asarray(part.toarray() if sp.issparse(part) else part, np.float64)
    seen = ~np.isnan(dense)
    hidden = seen & (np.random.default_rng((seed, 0x41DE)).random(dense.shape) < HIDDEN)
    result = {
        "n_scored": int(scored.shape[0]),
        "log_likelihood": float(densities.mean()),
        "log_likelihood_error": standard_error(densities),
        "reconstruction_error": _rms((model.reconstruct(part) - dense)[seen]),
        "reconstruction_error_of_mean": _rms((dense - mean_row)[seen]),
        "n_hidden": int(hidden.sum()),
    }
    if hidden.any():
        found = model.score_entries(part, hidden)
        result["hidden_error"] = _rms(found.mean - dense[hidden])
        result["hidden_error_of_mean"] = _rms((dense - mean_row)[hidden])
        result["hidden_log_density"] = float(np.mean(found.log_density))
    return result


def look_at_features(model: Any, X: Any, rows: np.ndarray) -> Sample:
    """What a latent feature model says of some rows."""
    n_scored = min(X.shape[0], MOST_SCORED)
    log_density = np.full(X.shape[0], np.nan)
    log_density[:n_scored] = model.score_samples(X[:n_scored])
    values = {
        "activations": model.transform(X),
        "reconstruction": model.reconstruct(X).astype(np.float32),
        "log_density": log_density,
    }
    return Sample(X, rows, None, values)


def standard_error(values: np.ndarray) -> float | None:
    """Standard error of a mean over rows; None for fewer than two."""
    n = len(values)
    return float(np.std(values, ddof=1) / np.sqrt(n)) if n > 1 else None


def _rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))
