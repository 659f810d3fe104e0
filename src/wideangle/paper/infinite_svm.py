r"""The infinite SVM: a Dirichlet-process mixture of large-margin kernel machines.

After Zhu, Chen & Xing (2011). A row belongs to one of infinitely many clusters; each cluster has a
Gaussian in a few coordinates :math:`u_n` of the rows and a classifier :math:`\eta_i` in the space
of a kernel, whose feature map :math:`f` is that of Nystroem. Maximum-entropy discrimination asks
for the law q that stays closest to the prior while expected margins are kept:

.. math::
    \min_q\; \mathrm{KL}(q \,\|\, p)
    + C \sum_n \max\Bigl(0, 1 - y_n \sum_i \phi_{ni}\, \mu_i \cdot f(x_n)\Bigr),

with :math:`q(z_n) = \phi_n`, :math:`q(\eta_i) = N(\mu_i, I)`, Beta sticks cut off at T clusters and
Gaussian cluster means. Each block below is minimised with the others held, so the objective falls
in every pass.

Differs from the publication: the clusters see the first principal coordinates of the rows, not all
columns, or their density would outweigh every margin in a thousand dimensions; and the assignments
of a row are the exact minimiser of the objective above (a one-dimensional dual), not one step with
the multipliers of the last quadratic program.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import scipy.sparse as sp
from scipy.special import betaln, digamma, logsumexp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.cluster import KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.kernel_approximation import Nystroem
from sklearn.preprocessing import LabelEncoder
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

TINY = 1e-12
"""Assignments below it are not visited by the solver of the margins."""
SWEEPS, BISECTIONS, STARTS = 30, 50, 20
USED = 0.01
"""A cluster is in use if it has more than this share of the training rows."""


class Clusters(NamedTuple):
    """The generative half of q: sticks Beta(a, b), means N(m, spread I), noise variance."""

    a: np.ndarray
    b: np.ndarray
    means: np.ndarray
    spread: np.ndarray
    noise: float


class InfiniteSVM(ClassifierMixin, BaseEstimator):
    """Mixture of kernel machines for two classes, the number of clusters left to the data.

    Parameters
    ----------
    n_components : int
        Truncation T: most clusters there can be.
    alpha : float
        Concentration of the Dirichlet process; larger values use more clusters.
    C : float
        Price of a unit of lost margin.
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
        """Two classes; sparse rows are welcome."""
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
        """Expected margin, clusters of a new row told by its coordinates alone."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        shares = assign(log_density(self.clusters_, self._coordinates(X)))
        return np.sum(shares * (self._features(X) @ self.coef_.T), axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The class on whose side a row lies."""
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
        """The kernel's map and a constant."""
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


def first_shares(U: np.ndarray, n_components: int, alpha: float, seed: int) -> np.ndarray:
    """The best of several mixtures of the coordinates alone, from 1, 2, 4, ... clusters.

    Mean-field updates seldom empty a cluster that data fill, so that the number of clusters is
    decided here, by the same objective without the margins.
    """
    distinct = len(np.unique(U, axis=0))
    sizes = {min(2**power, n_components, distinct) for power in range(n_components.bit_length())}
    found = [_mixture(U, k, n_components, alpha, seed) for k in sorted(sizes | {n_components})]
    return min(found, key=lambda one: one[1])[0]


def _mixture(
    U: np.ndarray, k: int, n_components: int, alpha: float, seed: int
) -> tuple[np.ndarray, float]:
    """From clusters of k-means, slightly softened, the rest of the clusters nearly empty."""
    k = min(k, len(np.unique(U, axis=0)))
    labels = KMeans(k, n_init=3, random_state=seed).fit_predict(U)
    shares = np.full((len(U), n_components), TINY)
    shares[np.arange(len(U)), labels] = 1.0 - TINY * n_components
    shares = shares[:, np.argsort(-shares.sum(axis=0), kind="stable")]
    clusters = update_clusters(shares, U, alpha, noise=1.0)
    for _ in range(STARTS):
        shares = assign(log_density(clusters, U))
        shares = shares[:, best_order(shares.sum(axis=0), alpha)]
        clusters = update_clusters(shares, U, alpha, clusters.noise)
    nothing = np.zeros((n_components, 1)), np.zeros_like(shares)
    return shares, objective(shares, clusters, *nothing, U, alpha, 0.0)


def large_margin(
    F: np.ndarray,
    sign: np.ndarray,
    shares: np.ndarray,
    weights: np.ndarray,
    duals: np.ndarray,
    C: float,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Means of the classifiers: one SVM whose features are those of a row in all its clusters.

    Dual coordinate ascent from the last multipliers; kept only if the objective falls.
    """
    new = duals.copy()
    found = shares.T @ (F * (sign * new)[:, None])
    lengths = np.sum(F**2, axis=1) * np.sum(shares**2, axis=1)
    for _ in range(SWEEPS):
        order = rng.permutation(len(F))
        if _dual_sweep(F, sign, shares, found, new, lengths, C, order) < 1e-3 * C:
            break
    better = _margin_cost(F, sign, shares, found, C) <= _margin_cost(F, sign, shares, weights, C)
    return (found, new) if better else (weights, duals)


@numba.njit(cache=True)
def _dual_sweep(F, sign, shares, weights, duals, lengths, C, order):
    """One pass of dual coordinate ascent; returns the largest change of a multiplier."""
    largest = 0.0
    for n in order:
        margin = 0.0
        for i in range(shares.shape[1]):
            if shares[n, i] > TINY:
                margin += shares[n, i] * np.dot(weights[i], F[n])
        step = (1.0 - sign[n] * margin) / max(lengths[n], TINY)
        change = min(max(duals[n] + step, 0.0), C) - duals[n]
        if change != 0.0:
            duals[n] += change
            largest = max(largest, abs(change))
            for i in range(shares.shape[1]):
                if shares[n, i] > TINY:
                    weights[i] += change * sign[n] * shares[n, i] * F[n]
    return largest


def _margin_cost(
    F: np.ndarray, sign: np.ndarray, shares: np.ndarray, weights: np.ndarray, C: float
) -> float:
    margins = sign * np.sum(shares * (F @ weights.T), axis=1)
    return float(0.5 * np.sum(weights**2) + C * np.sum(np.maximum(0.0, 1.0 - margins)))


def assign(density: np.ndarray, gains: np.ndarray | None = None, C: float = 0.0) -> np.ndarray:
    r"""Shares of every row: exact minimiser of :math:`\sum_i \phi_i (\log \phi_i - d_i) + C h`.

    With h the hinge of :math:`\sum_i \phi_i g_i`. The dual is over one multiplier in [0, C]:
    :math:`\phi_i \propto e^{d_i + \omega g_i}`, and the margin grows with :math:`\omega`.
    """

    def shares_at(omega: np.ndarray) -> np.ndarray:
        logits = density + omega[:, None] * gains
        return np.exp(logits - logsumexp(logits, axis=1, keepdims=True))

    if gains is None:
        return np.exp(density - logsumexp(density, axis=1, keepdims=True))
    low, high = np.zeros(len(density)), np.full(len(density), C)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        short = np.sum(shares_at(middle) * gains, axis=1) < 1.0
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return shares_at(0.5 * (low + high))


def log_density(clusters: Clusters, U: np.ndarray) -> np.ndarray:
    """E log weight of a cluster + E log density of the coordinates in it, (N, T)."""
    both = digamma(clusters.a + clusters.b)
    stay, go = digamma(clusters.a) - both, digamma(clusters.b) - both
    log_weights = np.append(stay, 0.0) + np.append(0.0, np.cumsum(go))
    dim = U.shape[1]
    square = _squares(U, clusters.means) + dim * clusters.spread
    noise = clusters.noise
    return log_weights - 0.5 * (dim * np.log(2 * np.pi * noise) + square / noise)


def sticks(sizes: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Beta laws of the sticks but the last, which is the rest."""
    later = np.cumsum(sizes[::-1])[::-1] - sizes
    return 1.0 + sizes[:-1], alpha + later[:-1]


def best_order(sizes: np.ndarray, alpha: float) -> np.ndarray:
    """The largest cluster first, where that makes the sticks more probable.

    Without it the last cluster, which owns all that lies beyond the truncation, draws rows.
    """
    order = np.argsort(-sizes, kind="stable")
    gain = np.sum(betaln(*sticks(sizes[order], alpha))) - np.sum(betaln(*sticks(sizes, alpha)))
    return order if gain > 0 else np.arange(len(sizes))


def update_clusters(shares: np.ndarray, U: np.ndarray, alpha: float, noise: float) -> Clusters:
    """Sticks and means given the shares, then the noise given the means."""
    sizes = shares.sum(axis=0)
    a, b = sticks(sizes, alpha)
    spread = 1.0 / (1.0 + sizes / noise)
    means = (shares.T @ U) * (spread / noise)[:, None]
    square = np.sum(shares * (_squares(U, means) + U.shape[1] * spread))
    new_noise = max(float(square / U.size), 1e-6)
    return Clusters(a, b, means, spread, new_noise)


def objective(
    shares: np.ndarray,
    clusters: Clusters,
    weights: np.ndarray,
    gains: np.ndarray,
    U: np.ndarray,
    alpha: float,
    C: float,
) -> float:
    """KL of q from the prior, rows included, and the price of lost margins."""
    dim = U.shape[1]
    rows = np.sum(shares * (np.log(np.maximum(shares, 1e-300)) - log_density(clusters, U)))
    means = 0.5 * np.sum(
        np.sum(clusters.means**2, axis=1) + dim * (clusters.spread - 1.0 - np.log(clusters.spread))
    )
    hinge = np.sum(np.maximum(0.0, 1.0 - np.sum(shares * gains, axis=1)))
    weight = np.sum(_beta_divergence(clusters.a, clusters.b, alpha))
    return float(rows + means + weight + 0.5 * np.sum(weights**2) + C * hinge)


def _beta_divergence(a: np.ndarray, b: np.ndarray, alpha: float) -> np.ndarray:
    """KL(Beta(a, b) || Beta(1, alpha))."""
    total = digamma(a + b)
    return (
        betaln(1.0, alpha)
        - betaln(a, b)
        + (a - 1.0) * (digamma(a) - total)
        + (b - alpha) * (digamma(b) - total)
    )


def _squares(U: np.ndarray, means: np.ndarray) -> np.ndarray:
    return (U**2).sum(axis=1)[:, None] - 2 * U @ means.T + (means**2).sum(axis=1)


def _dense(X: Any) -> np.ndarray:
    return np.asarray(X.toarray() if sp.issparse(X) else X)


def _variance(X: Any) -> float:
    if sp.issparse(X):
        mean = X.sum() / np.prod(X.shape)
        return float(X.multiply(X).sum() / np.prod(X.shape) - mean**2)
    return float(np.var(X))
