r"""The infinite SVM: a Dirichlet-process mixture of large-margin kernel machines.

After Zhu, Chen & Xing (2011). A row belongs to one of infinitely many clusters; each cluster has a
Gaussian in a few coordinates :math:`u_n` of the rows and a classifier :math:`\eta_i` in the space
of a kernel, whose feature map :math:`f` is that of Nystroem. Maximum-entropy discrimination finds
the distribution q that is closest to the prior, subject to expected margins:

.. math::
    \min_q\; \mathrm{KL}(q \,\|\, p)
    + C \sum_n \max\Bigl(0, 1 - y_n \sum_i \phi_{ni}\, \mu_i \cdot f(x_n)\Bigr),

with :math:`q(z_n) = \phi_n`, :math:`q(\eta_i) = N(\mu_i, I)`, Beta sticks cut off at T clusters and
Gaussian cluster means. Each block below is minimised with the others fixed, so the objective never
rises.

Differs from the publication: the clusters see the first principal coordinates of the rows, not all
columns, or their density would outweigh every margin in a thousand dimensions; and the assignments
of a row are the exact minimiser of the objective above (a one-dimensional dual), not one step with
the multipliers of the last quadratic program.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.decomposition import TruncatedSVD
from sklearn.kernel_approximation import Nystroem
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from wideangle_lab.paper.infinite_svm_updates import (
    assign,
    best_order,
    first_shares,
    large_margin,
    log_density,
    objective,
    update_clusters,
)

USED = 0.01
"""A cluster is in use if it has more than this share of the training rows."""


class InfiniteSVM(ClassifierMixin, BaseEstimator):
    """Mixture of kernel machines for two classes, with an inferred number of clusters.

    Parameters
    ----------
    n_components : int
        Truncation T: maximum number of clusters.
    alpha : float
        Concentration of the Dirichlet process; larger values use more clusters.
    C : float
        Penalty for a unit of lost margin.
    gamma : float, optional
        Of the radial kernel; by default 1 / (D variance of the entries). 0 is a linear machine.
    n_landmarks : int
        Rows that Nystroem's map is built on.
    n_coordinates : int
        Principal coordinates that the clusters live in.
    max_iter, tol : int, float
        Passes, and relative fall of the objective below which they end.

    Attributes
    ----------
    objective_ : array
        The objective after every pass.
    weights_ : array (T,)
        Share of the training rows of each cluster.
    n_used_ : int
        Clusters with more than one in a hundred rows.
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        alpha: float = 1.0,
        C: float = 1.0,
        gamma: float | None = None,
        n_landmarks: int = 300,
        n_coordinates: int = 10,
        max_iter: int = 50,
        tol: float = 1e-5,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.C = C
        self.gamma = gamma
        self.n_landmarks = n_landmarks
        self.n_coordinates = n_coordinates
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Two classes; accepts sparse rows."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any) -> InfiniteSVM:
        """Fit to rows (dense or CSR) and two classes."""
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64)
        check_classification_targets(y)
        encoder = LabelEncoder().fit(y)
        self.classes_ = encoder.classes_
        if len(self.classes_) != 2:  # noqa: PLR2004
            raise ValueError(
                f"InfiniteSVM needs two classes, got {len(self.classes_)} class"
                + "es" * (len(self.classes_) > 1)
                + "; Only binary classification is supported."
            )
        sign = np.where(encoder.transform(y) == 1, 1.0, -1.0)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        self._learn_maps(X, seed)
        self._descend(self._features(X), self._coordinates(X), sign, seed)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Expected margin, with clusters of a new row inferred from its coordinates."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        shares = assign(log_density(self.clusters_, self._coordinates(X)))
        return np.sum(shares * (self._features(X) @ self.coef_.T), axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The predicted class of each row."""
        check_is_fitted(self)
        side = (self.decision_function(X) > 0).astype(int)
        return np.asarray(self.classes_)[side]

    def _learn_maps(self, X: Any, seed: int) -> None:
        n_rows, dim = X.shape
        self._svd = None
        if dim > self.n_coordinates:
            self._svd = TruncatedSVD(self.n_coordinates, random_state=seed).fit(X)
        shadow = self._shadow(X)
        self._middle = shadow.mean(axis=0)
        self._unit = float(np.sqrt(np.mean((shadow - self._middle) ** 2))) or 1.0
        self._map = None
        if self.gamma != 0:
            gamma = self.gamma
            if gamma is None:
                gamma = 1.0 / (dim * (_variance(X) or 1.0))
            self._map = Nystroem(
                gamma=gamma, n_components=min(self.n_landmarks, n_rows), random_state=seed
            ).fit(X)

    def _shadow(self, X: Any) -> np.ndarray:
        return _dense(X if self._svd is None else self._svd.transform(X))

    def _coordinates(self, X: Any) -> np.ndarray:
        return (self._shadow(X) - self._middle) / self._unit

    def _features(self, X: Any) -> np.ndarray:
        """The kernel's feature map and a constant."""
        dense = _dense(X if self._map is None else self._map.transform(X))
        return np.ascontiguousarray(np.column_stack([dense, np.ones(len(dense))]))

    def _descend(self, F: np.ndarray, U: np.ndarray, sign: np.ndarray, seed: int) -> None:
        shares = first_shares(U, self.n_components, self.alpha, seed)
        weights = np.zeros((shares.shape[1], F.shape[1]))
        duals = np.zeros(len(F))
        clusters = update_clusters(shares, U, self.alpha, noise=1.0)
        rng, history = np.random.default_rng(seed), []
        for _ in range(self.max_iter):
            weights, duals = large_margin(F, sign, shares, weights, duals, self.C, rng)
            gains = sign[:, None] * (F @ weights.T)
            shares = assign(log_density(clusters, U), gains, self.C)
            order = best_order(shares.sum(axis=0), self.alpha)
            shares, weights, gains = shares[:, order], weights[order], gains[:, order]
            clusters = update_clusters(shares, U, self.alpha, clusters.noise)
            history.append(objective(shares, clusters, weights, gains, U, self.alpha, self.C))
            if len(history) > 1 and history[-2] - history[-1] < self.tol * abs(history[-1]):
                break
        self.n_iter_ = len(history)
        self.objective_, self.coef_, self.clusters_ = np.array(history), weights, clusters
        self.weights_ = shares.mean(axis=0)
        self.n_used_ = int(np.sum(self.weights_ > USED))


def _dense(X: Any) -> np.ndarray:
    return np.asarray(X.toarray() if sp.issparse(X) else X)


def _variance(X: Any) -> float:
    if sp.issparse(X):
        mean = X.sum() / np.prod(X.shape)
        return float(X.multiply(X).sum() / np.prod(X.shape) - mean**2)
    return float(np.var(X))
