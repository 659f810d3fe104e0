"""Quality of features on held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment

from wideangle.latent_features.estimator import LatentFeatureModel
from wideangle_lab.paper.metrics import standard_error

HIDDEN = 0.1
"""Share of the entries of a row that are hidden and predicted from the others."""
MOST_HIDDEN = 50_000
"""Maximum number of hidden entries; more would change the result little."""
MOST_SCORED = 500
"""Maximum number of rows for the density, whose sum over assignments is expensive."""
RETRIEVED = 100
"""Documents returned by a query."""


def reconstruction(model: LatentFeatureModel, X: Any) -> dict[str, float]:
    """Mean Euclidean distance of rows from their reconstructions and from the mean row."""
    rows = X.toarray() if sp.issparse(X) else np.asarray(X)
    distances = np.linalg.norm(model.reconstruct(X) - rows, axis=1)
    return {
        "l2_error": float(np.mean(distances)),
        "l2_error_error": standard_error(distances),
        "l2_error_of_mean": float(np.mean(np.linalg.norm(rows - model.scaling_.shift, axis=1))),
    }


def hidden_entries(model: LatentFeatureModel, X: Any, seed: int) -> dict[str, float]:
    """Root mean square error and mean log density of entries predicted from the rest of a row."""
    n_columns = X.shape[1]
    n_rows = max(1, min(X.shape[0], int(MOST_HIDDEN / (HIDDEN * n_columns))))
    part = X[:n_rows]
    mask = np.random.default_rng((seed, 1)).random((n_rows, n_columns)) < HIDDEN
    found = model.score_entries(part, mask)
    truth = np.asarray(part.toarray() if sp.issparse(part) else part)[mask]
    return {
        "n_hidden": int(mask.sum()),
        "hidden_rms": float(np.sqrt(np.mean((truth - found.mean) ** 2))),
        "hidden_log_density": float(np.mean(found.log_density)),
        "hidden_log_density_error": standard_error(found.log_density),
    }


def clustering(points: Any, classes: np.ndarray, seed: int) -> dict[str, float]:
    """k-means with as many clusters as classes: accuracy of the best matching, NMI, per cent."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import normalized_mutual_info_score

    n_classes = int(classes.max()) + 1
    if points.shape[1] == 0:  # no component: all rows are equal
        clusters = np.zeros(len(classes), np.int64)
    else:
        k = min(n_classes, len(classes))
        clusters = KMeans(k, n_init=5, random_state=seed).fit_predict(points)
    return {
        "clustering_accuracy": 100.0 * matched_accuracy(clusters, classes),
        "nmi": 100.0 * float(normalized_mutual_info_score(classes, clusters)),
    }


def matched_accuracy(clusters: np.ndarray, classes: np.ndarray) -> float:
    """Share of correctly assigned rows if every cluster is matched to at most one class."""
    table = np.zeros((int(clusters.max()) + 1, int(classes.max()) + 1), np.int64)
    np.add.at(table, (clusters, classes), 1)
    return float(table[linear_sum_assignment(-table)].sum() / len(classes))


def precision(
    queries: np.ndarray, query_classes: np.ndarray, rows: np.ndarray, row_classes: np.ndarray
) -> dict[str, Any]:
    """Per cent of the 100 nearest training rows of each held-out row that share its class.

    By class, with the number of queries; ties of the distance go to the earlier row.
    """
    n = min(RETRIEVED, len(rows))
    shares = np.zeros(len(queries))
    lengths = np.sum(rows**2, axis=1)
    for first in range(0, len(queries), 500):
        part = slice(first, first + 500)
        distances = lengths - 2 * queries[part] @ rows.T
        nearest = np.argsort(distances, axis=1, kind="stable")[:, :n]
        shares[part] = np.mean(row_classes[nearest] == query_classes[part, None], axis=1)
    return {
        "precision": {
            str(one): {
                "precision": 100.0 * float(np.mean(shares[query_classes == one])),
                "error": 100.0 * standard_error(shares[query_classes == one]),
                "n": int(np.sum(query_classes == one)),
            }
            for one in np.unique(query_classes)
        }
    }


def word_overlap(lists: Sequence[Sequence[str]]) -> float | None:
    """Redundancy: mean number of words that two features share, in per cent of a list."""
    pairs = [len({*one} & {*other}) / len(one) for one, other in combinations(lists, 2)]
    return 100.0 * float(np.mean(pairs)) if pairs else None
