"""Experts that predict the class of a row: their likelihood, and predictions from draws."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from wideangle.mixture_of_experts.data import Data, some_rows
from wideangle.mixture_of_experts.likelihood import ExpertTerms, Weights, expected, softmax
from wideangle.mixture_of_experts.predict import score

DECIMALS = 3
"""Rounding of probabilities that are watched: whether one is 1e-9 or 1e-18 does not matter, and
mixes slowly."""
MOST_SCORE = 80.0
"""Scores are clipped here for probabilities, 1e-35."""


class _ClassExperts(ABC):
    """What experts for two classes and for more share."""

    n_outputs: int
    alike: ClassVar[bool] = True
    needed: ClassVar[tuple[str, ...]] = ("probability",)

    @abstractmethod
    def mean(self, scores: Any) -> Any:
        """Class probabilities."""

    def start(self, data: Data) -> np.ndarray:
        """A logistic regression."""
        return _logistic_start(data, self.n_outputs)

    def watch(self, weights: Weights, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Probabilities of all classes but the first, (S, n (C - 1)), rounded."""
        watched = expected(self, *score(weights, rows)).transpose(0, 2, 1)[:, : len(rows), 1:]
        return {"probability": np.round(watched.reshape(len(watched), -1), DECIMALS)}

    def draw(self, rng: np.random.Generator, weights: Weights, rows: Any) -> np.ndarray:
        """A class of each row from each draw, (S, n)."""
        proba = expected(self, *score(weights, rows))
        below = np.cumsum(proba, axis=1)[..., : rows.shape[0]]
        level = rng.random((len(weights.gate), 1, rows.shape[0])) * below[:, -1:]
        return np.sum(below[:, :-1] < level, axis=1).astype(np.int32)

    def proba(self, gate: Any, scores: Any, shares: Any) -> Any:
        """Class probabilities averaged over draws with these shares, (n, C)."""
        return _averaged(expected(self, gate, scores), shares)

    def proba_and_entropy(self, gate: Any, scores: Any, shares: Any) -> Any:
        """The same, and the entropy of single draws averaged in the same way, (n, C + 1)."""
        xp, proba = gate.__array_namespace__(), expected(self, gate, scores)
        entropies = -xp.sum(proba * xp.log(xp.maximum(proba, 1e-37)), axis=1)
        parts = _averaged(proba, shares), (shares @ entropies)[:, None]
        return xp.concatenate(parts, axis=1)


def _averaged(proba: Any, shares: Any) -> Any:
    found = proba.__array_namespace__().einsum("s,scn->nc", shares, proba)
    return found / found.sum(axis=1, keepdims=True)


@jax.tree_util.register_static
@dataclass(frozen=True)
class LogisticExperts(_ClassExperts):
    r"""Two classes, :math:`p(y=1) = \sigma(\beta\cdot x)` (paper: Section 3.3)."""

    n_outputs: ClassVar[int] = 1

    def terms(self, scores: Any, targets: Any) -> ExpertTerms:
        """Targets are 0 or 1."""
        xp = scores.__array_namespace__()
        sign = 2.0 * targets.astype(scores.dtype) - 1.0
        margin = sign * scores[..., 0, :]
        small = xp.exp(-xp.abs(margin))
        factor = 1.0 / (1.0 + small)
        slope = sign * xp.where(margin > 0, small * factor, factor)
        return ExpertTerms(xp.minimum(margin, 0.0), factor, slope[..., None, :])

    def mean(self, scores: Any) -> Any:
        """Probabilities of the two classes, exact for rare ones too."""
        xp = scores.__array_namespace__()
        # Clipped, or the odds overflow; a choice by sign would take several times as long.
        odds = xp.exp(xp.clip(-scores, -MOST_SCORE, MOST_SCORE))
        second = 1.0 / (1.0 + odds)
        return xp.concatenate((odds * second, second), axis=-2)

    def information(self, scores: Any) -> Any:
        """Variance of the Bernoulli target."""
        return jax.nn.sigmoid(scores) * jax.nn.sigmoid(-scores)


@jax.tree_util.register_static
@dataclass(frozen=True)
class SoftmaxExperts(_ClassExperts):
    r"""C classes, :math:`p(y=c) \propto e^{\beta_c\cdot x}`; all C vectors kept, for symmetry."""

    n_outputs: int
    """Number of classes."""

    def terms(self, scores: Any, targets: Any) -> ExpertTerms:
        """Targets are 0, ..., C-1."""
        xp = scores.__array_namespace__()
        labels = xp.arange(self.n_outputs)[:, None]
        chosen = (targets == labels).astype(scores.dtype)  # (C, N)
        top = xp.max(scores, axis=-2)
        weights = xp.exp(scores - top[..., None, :])
        factor = 1.0 / xp.sum(weights, axis=-2)
        exponent = xp.sum(chosen * scores, axis=-2) - top
        return ExpertTerms(exponent, factor, chosen - weights * factor[..., None, :])

    def mean(self, scores: Any) -> Any:
        """Class probabilities."""
        return softmax(scores)

    def information(self, scores: Any) -> Any:
        """Variance of each entry of the one-hot target."""
        proba = softmax(scores)
        return proba - proba * proba


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
