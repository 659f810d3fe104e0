r"""Mixture of experts: a softmax gate chooses, an expert answers, and the choice is summed out.

.. math::
    p(y\mid x) = \sum_k \frac{e^{\eta_k\cdot x}}{\sum_j e^{\eta_j\cdot x}}\;
                p_k(y\mid\beta_k\cdot x)

Paper: Section 3.3 (BMEM), where the choice z is kept and sampled or given a factor; summed out,
the posterior is the same and mixes far better.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax

from wideangle.mixture_of_experts.experts import ExpertLikelihood
from wideangle.mixture_of_experts.row_blocks import over_blocks, rows_for
from wideangle.mixture_of_experts.shards import ShardedBatch, sum_over_shards
from wideangle.mixture_of_experts.sparse import SparseBatch, sparse_log_lik
from wideangle.types import Array, Scalar


class Weights(NamedTuple):
    """Weight vectors of the gate, (K, p), and of the experts, (K, O, p)."""

    gate: Array
    experts: Array


class Batch(NamedTuple):
    """Rows (N, p), targets (N,) and how much each row counts (N,)."""

    rows: Array
    targets: Array
    weights: Array


AnyBatch: TypeAlias = Batch | SparseBatch | ShardedBatch


def log_lik(expert: ExpertLikelihood, weights: Weights, batch: AnyBatch) -> Scalar:
    r"""Weighted log-likelihood :math:`\sum_n w_n\log p(y_n\mid x_n)`, the choice summed out.

    Value and gradient are one forward and one backward matrix product; the gradient is written
    out (posterior minus prior responsibilities), since autodiff through two log-sum-exps takes
    twice as long. Only the weights are differentiable.
    """
    return _log_lik(expert, weights, batch)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _log_lik(expert: ExpertLikelihood, weights: Weights, batch: AnyBatch) -> Scalar:
    if isinstance(batch, SparseBatch):
        return sparse_log_lik(batch, *weights, gradient=False)[0]
    if isinstance(batch, ShardedBatch):
        return sum_over_shards(lambda w, own: _log_lik(expert, w, Batch(*own)), weights, batch)
    rows = rows_for(weights.gate.size + weights.experts.size)
    return over_blocks(lambda block: log_lik_terms(expert, weights, block)[0], batch, rows)


def _log_lik_forward(expert: ExpertLikelihood, weights: Weights, batch: AnyBatch):
    if isinstance(batch, ShardedBatch):
        return sum_over_shards(
            lambda w, own: _log_lik_forward(expert, w, Batch(*own)), weights, batch
        )
    if isinstance(batch, SparseBatch):
        value, *parts = sparse_log_lik(batch, *weights, gradient=True)
        return value, Weights(*parts)

    def on_block(block: Batch) -> tuple[Scalar, Array]:
        value, by_gate, by_scores = log_lik_terms(expert, weights, block)
        stacked = jnp.concatenate([by_gate, by_scores.reshape(-1, by_scores.shape[-1])])
        return value, _dot("an,np->ap", stacked, block.rows)  # one product, not two thin ones

    rows = rows_for(weights.gate.size + weights.experts.size)
    value, gradient = over_blocks(on_block, batch, rows)
    n = weights.gate.shape[0]
    parts = Weights(gradient[:n], gradient[n:].reshape(weights.experts.shape))
    # Rows may be of another precision than the weights; a gradient may not.
    return value, jax.tree.map(lambda part, w: part.astype(w.dtype), parts, weights)


def _log_lik_backward(expert: ExpertLikelihood, gradient: Weights, change: Scalar):
    return jax.tree.map(lambda g: (change * g).astype(g.dtype), gradient), None


_log_lik.defvjp(_log_lik_forward, _log_lik_backward)


def log_lik_terms(
    expert: ExpertLikelihood, weights: Weights, batch: Batch
) -> tuple[Scalar, Array, Array]:
    """Log-likelihood and its derivatives in the gate scores (K, N) and expert scores (K, O, N).

    Components come first so that sums over them run along whole vectors of rows.
    """
    return summed_out(expert, *score(weights, batch.rows), batch)


def summed_out(
    expert: ExpertLikelihood, gate: Array, scores: Array, batch: Batch
) -> tuple[Scalar, Array, Array]:
    """As :func:`log_lik_terms`, from the scores: responsibilities after minus before the target."""
    terms = expert.terms(scores, batch.targets)
    relative = gate - jnp.max(gate, axis=0)
    opening = jnp.exp(relative)
    total = jnp.sum(opening, axis=0)
    exponent = relative + terms.exponent
    top = jnp.max(exponent, axis=0)
    joint = jnp.exp(exponent - top) * terms.factor
    evidence = jnp.sum(joint, axis=0)
    value = jnp.sum(batch.weights * (jnp.log(evidence / total) + top))
    posterior = joint * (batch.weights / evidence)
    by_gate = posterior - opening * (batch.weights / total)
    return value, by_gate, posterior[:, None] * terms.slope


def score(weights: Weights, rows: Array) -> tuple[Array, Array]:
    """Gate scores (K, N) and expert scores (K, O, N)."""
    n, _, p = weights.experts.shape
    stacked = jnp.concatenate([weights.gate, weights.experts.reshape(-1, p)])
    scores = _dot("ap,np->an", stacked, rows)
    return scores[:n], scores[n:].reshape(n, -1, rows.shape[0])


def gate_proba(weights: Weights, rows: Array) -> Array:
    """Probability that each expert is asked, (N, K)."""
    return jax.nn.softmax(_dot("kp,np->kn", weights.gate, rows), axis=0).T


def predict(expert: ExpertLikelihood, weights: Weights, rows: Array) -> Array:
    """Expected target, (N, C): class probabilities for classifiers."""
    gate, scores = score(weights, rows)
    return jnp.einsum("kn,kcn->nc", jax.nn.softmax(gate, axis=0), expert.mean(scores))


def _dot(pattern: str, left: Array, right: Array) -> Array:
    # A GPU would otherwise round float32 factors to ten bits, which shows in energy errors. Three
    # products of halves keep twenty, and run on its matrix units: twice as fast as float32.
    precision: Any = lax.Precision.HIGHEST
    if left.dtype == right.dtype == jnp.float32 and has_fast_halves():
        precision = lax.DotAlgorithmPreset.BF16_BF16_F32_X3
    return jnp.einsum(pattern, left, right, precision=precision)


def has_fast_halves() -> bool:
    """Whether the default device is an NVIDIA card with matrix units for bfloat16 (Ampere on)."""
    device = jax.local_devices()[0]
    major = str(getattr(device, "compute_capability", "")).partition(".")[0]
    return jax.default_backend() == "gpu" and major.isdigit() and int(major) >= 8  # noqa: PLR2004
