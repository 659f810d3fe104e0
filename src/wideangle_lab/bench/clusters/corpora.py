"""Rows for the study of the number of clusters: documents and images in 50 dimensions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.decomposition import TruncatedSVD
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

from wideangle_lab.datasets import DataNotFoundError, load
from wideangle_lab.datasets.files import folders

N_DIRECTIONS = 50
SIMULATED = "simulated"
TITLES = {
    "reuters": "Reuters",
    "tdt": "TDT",
    "news20": "20-News",
    "rcv1_text": "RCV1 text",
    "caltech101": "Caltech-101 words",
    SIMULATED: "simulated",
}
LEAST = 0.01
"""Smallest share of the documents for which a topic of RCV1 is a class."""


class Parts(NamedTuple):
    """Rows of length one, and their classes."""

    train: np.ndarray
    y_train: np.ndarray
    test: np.ndarray
    y_test: np.ndarray


def parts_of(name: str, seed: int, n_train: int, n_test: int) -> Parts:
    """A random split, with singular vectors computed from training rows only."""
    X, y = simulated(seed) if name == SIMULATED else rows_of(name)
    train, test = train_test_split(np.arange(len(y)), train_size=n_train, random_state=seed)
    test = test[:n_test]
    fitted, held_out = X[train], X[test]
    if name != SIMULATED:
        reduce = TruncatedSVD(N_DIRECTIONS, random_state=seed).fit(fitted)
        fitted, held_out = reduce.transform(fitted), reduce.transform(held_out)
    return Parts(normalize(fitted), y[train], normalize(held_out), y[test])


def rows_of(name: str) -> tuple[Any, np.ndarray]:
    """All rows and classes: tf-idf of words, square roots of counts of visual words."""
    if name == "rcv1_text":
        return _rcv1_text()
    data = load(name, **({"background": False} if name == "caltech101" else {}))
    assert data.y is not None
    X: Any = normalize(np.sqrt(data.X)) if name == "caltech101" else data.X
    alive = np.flatnonzero(np.asarray(X.sum(axis=1)).ravel() > 0)
    return X[alive], data.y[alive]


def _rcv1_text() -> tuple[Any, np.ndarray]:
    """Documents of RCV1; the class is the rarest topic among those of at least one per cent."""
    paths = [folder / "rcv1_text.npz" for folder in folders()]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise DataNotFoundError("rcv1_text.npz was not found.")
    with np.load(path, allow_pickle=False) as z:
        parts = z["tfidf"].astype(np.float32), z["indices"].astype(np.int32), z["indptr"]
        X = sp.csr_matrix(parts, shape=tuple(z["shape"]))
        topics = z["Y"].astype(bool)
    shares = topics.mean(axis=0)
    known = topics & (shares >= LEAST)
    y = np.argmin(np.where(known, shares, np.inf), axis=1)
    alive = np.flatnonzero(known.any(axis=1) & (np.diff(X.indptr) > 0))
    return X[alive], y[alive]


def simulated(seed: int, n_rows: int = 240) -> tuple[np.ndarray, np.ndarray]:
    """Three clusters in eight dimensions, one of them rare."""
    rng = np.random.default_rng(seed)
    y = rng.choice(3, n_rows, p=[0.5, 0.4, 0.1])
    return np.eye(8)[y] + 0.25 * rng.normal(size=(n_rows, 8)), y
