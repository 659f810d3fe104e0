r"""What one expert says about a target: the replaceable piece of a mixture of experts.

A piece turns scores (inner products with the expert's weight vectors) into a log-likelihood
:math:`\ell`, given as ``exponent + log(factor)`` with ``factor`` in (0, 1]: the mixture then sums
experts with one exponential each and no logarithm, and still cannot underflow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from wideangle.types import Array


class ExpertTerms(NamedTuple):
    """Likelihood of each row under each expert, axes (K, N); slope has the scores' (K, O, N)."""

    exponent: Array
    factor: Array
    slope: Array
    """Derivative of the log-likelihood in the scores."""


class ExpertLikelihood(Protocol):
    """One kind of expert: a frozen dataclass, registered as static, since code depends on it."""

    @property
    def n_outputs(self) -> int:
        """Weight vectors O per expert."""
        ...

    def terms(self, scores: Array, targets: Array) -> ExpertTerms:
        """Likelihood of ``targets`` (N,) given ``scores`` (K, O, N)."""
        ...

    def mean(self, scores: Array) -> Array:
        """Expected target of each expert: ``scores`` (K, O, N) to (K, C, N)."""
        ...

    def information(self, scores: Array) -> Array:
        """Fisher information of the scores: (K, O, N) to (K, O, O, N)."""
        ...


@jax.tree_util.register_static
@dataclass(frozen=True)
class LogisticExperts:
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
class SoftmaxExperts:
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
    """The piece for a number of classes."""
    return LogisticExperts() if n_classes <= 2 else SoftmaxExperts(n_classes)  # noqa: PLR2004
