"""Experts that predict the class of a row: their likelihood, and predictions from draws."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from wideangle.mixture_of_experts import likelihood as mixture
from wideangle.mixture_of_experts.data import Data, some_rows
from wideangle.mixture_of_experts.likelihood import ExpertLikelihood, ExpertTerms, Weights
from wideangle.mixture_of_experts.predict import log_mixture, over_draws, score, softmax
from wideangle.posterior import Draws
from wideangle.types import Array

DECIMALS = 3
"""Rounding of probabilities that are watched: whether one is 1e-9 or 1e-18 does not matter, and
mixes slowly."""


class _ClassExperts:
    """What experts for two classes and for more share."""

    alike: ClassVar[bool] = True
    floor: ClassVar[None] = None
    needed: ClassVar[tuple[str, ...]] = ("probability",)

    @property
    def n_outputs(self) -> int:
        """Weight vectors per expert."""
        raise NotImplementedError

    def start(self, data: Data) -> np.ndarray:
        """A logistic regression."""
        return _logistic_start(data, self.n_outputs)

    def watch(self, weights: Weights, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Probabilities of all classes but the first, (S, n (C - 1)), rounded."""
        watched = probabilities(weights, rows).transpose(0, 2, 1)[:, : len(rows), 1:]
        return {"probability": np.round(watched.reshape(len(watched), -1), DECIMALS)}

    def log_lik(self, weights: Weights, rows: Any, targets: np.ndarray) -> np.ndarray:
        """Log probability of the class of each row in each draw, (S, n)."""
        live = rows.shape[0]
        gate, says = (part[..., :live] for part in score(weights, rows))
        if says.shape[2] == 1:
            margin = np.where(targets == 1, says[:, :, 0], -says[:, :, 0])
            exponent = np.minimum(margin, 0.0)
            factor = 1.0 / (1.0 + np.exp(-np.abs(margin)))
        else:
            top = says.max(axis=2)
            factor = 1.0 / np.exp(says - top[:, :, None]).sum(axis=2)
            exponent = says[:, :, targets, np.arange(live)] - top
        return log_mixture(gate, exponent, factor)

    def draw(self, rng: np.random.Generator, weights: Weights, rows: Any) -> np.ndarray:
        """A class of each row from each draw, (S, n)."""
        below = np.cumsum(probabilities(weights, rows), axis=1)[..., : rows.shape[0]]
        level = rng.random((len(weights.gate), 1, rows.shape[0])) * below[:, -1:]
        return np.sum(below[:, :-1] < level, axis=1).astype(np.int32)


@jax.tree_util.register_static
@dataclass(frozen=True)
class LogisticExperts(_ClassExperts):
    r"""Two classes, :math:`p(y=1) = \sigma(\beta\cdot x)` (paper: Section 3.3)."""

    @property
    def n_outputs(self) -> int:
        """One weight vector per expert."""
        return 1

    def terms(self, scores: Array, targets: Array) -> ExpertTerms:
        """Targets are 0 or 1."""
        sign = 2.0 * targets.astype(scores.dtype) - 1.0
        margin = sign * scores[:, 0]
        small = jnp.exp(-jnp.abs(margin))
        factor = 1.0 / (1.0 + small)
        slope = sign * jnp.where(margin > 0, small * factor, factor)
        return ExpertTerms(jnp.minimum(margin, 0.0), factor, slope[:, None])

    def mean(self, scores: Array) -> Array:
        """Probabilities of the two classes."""
        return jnp.concatenate([jax.nn.sigmoid(-scores), jax.nn.sigmoid(scores)], axis=1)

    def information(self, scores: Array) -> Array:
        """Variance of the Bernoulli target."""
        return (jax.nn.sigmoid(scores) * jax.nn.sigmoid(-scores))[:, :, None]


@jax.tree_util.register_static
@dataclass(frozen=True)
class SoftmaxExperts(_ClassExperts):
    r"""C classes, :math:`p(y=c) \propto e^{\beta_c\cdot x}`; all C vectors kept, for symmetry."""

    n_classes: int

    @property
    def n_outputs(self) -> int:
        """One weight vector per class."""
        return self.n_classes

    def terms(self, scores: Array, targets: Array) -> ExpertTerms:
        """Targets are 0, ..., C-1."""
        chosen = jax.nn.one_hot(targets, self.n_classes, dtype=scores.dtype, axis=0)  # (C, N)
        top = jnp.max(scores, axis=1)
        weights = jnp.exp(scores - top[:, None])
        factor = 1.0 / jnp.sum(weights, axis=1)
        exponent = jnp.sum(chosen * scores, axis=1) - top
        return ExpertTerms(exponent, factor, chosen - weights * factor[:, None])

    def mean(self, scores: Array) -> Array:
        """Class probabilities."""
        return jax.nn.softmax(scores, axis=1)

    def information(self, scores: Array) -> Array:
        """Covariance of the one-hot target."""
        proba = self.mean(scores)
        diagonal = jnp.eye(self.n_classes, dtype=proba.dtype)[:, :, None] * proba[:, :, None]
        return diagonal - proba[:, :, None] * proba[:, None]


def experts_for(n_classes: int) -> LogisticExperts | SoftmaxExperts:
    """The expert likelihood for a number of classes."""
    return LogisticExperts() if n_classes <= 2 else SoftmaxExperts(n_classes)  # noqa: PLR2004


def _logistic_start(data: Data, n_outputs: int) -> np.ndarray:
    """Logistic regression with penalty |w|^2 / 2, (O, p), on at most ``RIDGE_ROWS`` rows."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    # NumPy arrays: JAX would compile the choice of rows for each number of them.
    rows, targets, weights = (x if sp.issparse(x) else np.asarray(x) for x in some_rows(data))
    found = np.zeros((n_outputs, data.rows.shape[1]))
    live = weights > 0
    if len(np.unique(targets[live])) < 2:  # noqa: PLR2004
        return found
    model = LogisticRegression(fit_intercept=False, max_iter=100)
    with warnings.catch_warnings(), threadpool_limits(1, "blas"):  # same for any thread count
        # A rough fit is enough: noise is added to it.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(rows[live], targets[live], sample_weight=weights[live])
    if n_outputs == 1:
        return model.coef_
    two = len(model.coef_) == 1
    found[model.classes_] = np.concatenate([-model.coef_, model.coef_]) / 2 if two else model.coef_
    return found


# ---- predictions


def predict(
    expert: ExpertLikelihood, draws: Draws, rows: Any, chain_weights: np.ndarray | None = None
) -> np.ndarray:
    """Mean prediction over draws, (N, C); ``chain_weights`` are equal by default."""
    return _over_draws(expert, draws, rows, chain_weights, uncertain=False)[:, :-1]


def predict_with_entropy(
    expert: ExpertLikelihood, draws: Draws, rows: Any, chain_weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Mean prediction (N, C) and mean entropy of single predictions (N,)."""
    found = _over_draws(expert, draws, rows, chain_weights, uncertain=True)
    return found[:, :-1], found[:, -1]


def _over_draws(
    expert: ExpertLikelihood,
    draws: Draws,
    rows: Any,
    chain_weights: np.ndarray | None,
    *,
    uncertain: bool,
) -> np.ndarray:
    """Class probabilities and optionally their entropy, averaged over draws, (N, C + 1)."""
    found = over_draws(
        partial(_on_host, uncertain), partial(_on_device, expert), draws, rows, chain_weights
    )
    found[:, :-1] /= found[:, :-1].sum(axis=1, keepdims=True)
    return found


def _on_host(uncertain: bool, weights: Weights, shares: np.ndarray, rows: Any) -> np.ndarray:
    proba = probabilities(weights, rows)
    result = np.zeros((proba.shape[2], proba.shape[1] + 1))
    result[:, :-1] = np.einsum("s,scn->nc", shares, proba)
    if uncertain:
        entropies = -np.sum(proba * np.log(np.maximum(proba, 1e-37)), axis=1)
        result[:, -1] = shares @ entropies
    return result


@partial(jax.jit, static_argnums=0)
def _on_device(expert: ExpertLikelihood, weights: Weights, shares: Array, rows: Array) -> Array:
    def one(w: Weights) -> Array:
        proba = mixture.predict(expert, w, rows)
        entropies = -jnp.sum(jax.scipy.special.xlogy(proba, proba), axis=-1, keepdims=True)
        return jnp.concatenate([proba, entropies], axis=-1)

    def add(total: Array, both: tuple[Weights, Array]) -> tuple[Array, None]:
        w, share = both
        return total + share.astype(total.dtype) * one(w), None

    n_classes = max(expert.n_outputs, 2)
    return jax.lax.scan(add, jnp.zeros((rows.shape[0], n_classes + 1)), (weights, shares))[0]


def probabilities(weights: Weights, rows: Any) -> np.ndarray:
    """Class probabilities of some rows in each draw, (S, C, n), n a round number."""
    gate, says = score(weights, rows)
    return np.einsum("skn,skcn->scn", softmax(gate), _means(says))


def _means(scores: np.ndarray) -> np.ndarray:
    """Class probabilities of experts, (S, K, O, n) to (S, K, C, n), exact for rare classes too."""
    n_draws, n_experts, n_outputs, n = scores.shape
    if n_outputs > 1:
        return softmax(scores.reshape(-1, n_outputs, n)).reshape(scores.shape)
    scores = scores[:, :, 0]
    positive = scores > 0
    small = np.exp(-np.abs(scores))
    large = 1.0 / (1.0 + small)
    small *= large
    said = np.empty((n_draws, n_experts, 2, n), scores.dtype)
    said[:, :, 0] = np.where(positive, small, large)
    said[:, :, 1] = np.where(positive, large, small)
    return said
