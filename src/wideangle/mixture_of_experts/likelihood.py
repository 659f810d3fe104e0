r"""Mixture of experts: a softmax gate picks an expert, which predicts; the choice is summed out.

.. math::
    p(y\mid x) = \sum_k \frac{e^{\eta_k\cdot x}}{\sum_j e^{\eta_j\cdot x}}\;
                p_k(y\mid\beta_k\cdot x)

Paper: Section 3.3 (BMEM), where the choice z is sampled or has a variational factor; summing it out
leaves the posterior unchanged, and chains mix far better.

The likelihood of one expert is replaceable, see :class:`ExpertLikelihood`. It turns
scores (inner products with the expert's weight vectors) into a log-likelihood :math:`\ell`, given
as ``exponent + log(factor)`` with ``factor`` in (0, 1]: the mixture then sums experts with one
exponential each and no logarithm, and still cannot underflow. All formulas in the scores are
written once, for arrays of JAX or of NumPy, (..., K, N), with any leading axes.

Sums over rows are taken a block at a time. A CPU keeps the scores of a block in its cache. Blocks
also fix the order of the sum: threads would split a long sum, so its rounding would depend on the
number of threads, and so would every draw, since chains amplify rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec

from wideangle.mixture_of_experts.data import Data, ShardedRows
from wideangle.mixture_of_experts.sparse import SparseRows, over_sparse_rows
from wideangle.sharding import AXIS, summed
from wideangle.types import Array, Scalar

T = TypeVar("T")
Rows = TypeVar("Rows")

BLOCK_ROWS = 1024
"""Rows in a block on a CPU: fewer make thin products, more leave the cache."""
WIDE = 2**13
"""Number of weights above which half of these rows make a large enough product; threads would split
the sums of a larger one."""
GRAM_ROWS = 128
"""Rows of a product with two wide sides: so few that a CPU does not split it among threads."""


if TYPE_CHECKING:

    class Pair(NamedTuple, Generic[T]):
        """A pair of values, for the gate and for the experts."""

        gate: T
        experts: T

else:

    class Pair(NamedTuple):
        """As above; skops takes a tuple with a second base for a plain one."""

        gate: Any
        experts: Any
        __class_getitem__ = classmethod(GenericAlias)


Weights: TypeAlias = Pair[Array]
"""Weight vectors of the gate, (K, p), and of the experts, (K, O, p)."""


class ExpertTerms(NamedTuple):
    """Likelihood of each row under each expert, (..., K, N)."""

    exponent: Array
    factor: Array
    slope: Array
    """Derivative of the log-likelihood with respect to the scores, (..., K, O, N) like them."""


class ExpertLikelihood(Protocol):
    """One kind of expert: a frozen dataclass, registered as static since compiled code uses it."""

    @property
    def n_outputs(self) -> int:
        """Number of weight vectors per expert, O."""
        ...

    def terms(self, scores: Array, targets: Array) -> ExpertTerms:
        """Likelihood of ``targets`` (N,) given ``scores`` (..., K, O, N)."""
        ...

    def mean(self, scores: Array) -> Array:
        """Expected target of each expert: ``scores`` (..., K, O, N) to (..., K, C, N)."""
        ...

    def information(self, scores: Array) -> Array:
        """Diagonal of the Fisher information of the scores, (K, O, N)."""
        ...

    @property
    def alike(self) -> bool:
        """Whether the data inform all outputs equally, so that samplers scale them alike.

        True for classes, whose scores have a unit; False for mean and noise of a quantity.
        """
        ...

    def start(self, data: Data) -> np.ndarray:
        """Weights (O, p) of one expert for all rows, around which experts begin."""
        ...

    # Predictions of draws (leading axis of the weights: S) for rows, in NumPy.

    @property
    def needed(self) -> tuple[str, ...]:
        """Quantities of the trace that predictions depend on; only these have to mix well."""
        ...

    def watch(self, weights: Weights, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Those of them that describe single rows, (S, ...) each."""
        ...

    def draw(self, rng: np.random.Generator, weights: Weights, rows: Any) -> np.ndarray:
        """A target of each row from each draw, (S, n)."""
        ...


def log_lik(expert: ExpertLikelihood, weights: Weights, data: Data) -> Scalar:
    r"""Weighted log-likelihood :math:`\sum_n w_n\log p(y_n\mid x_n)`, the choice summed out.

    Value and gradient are one forward and one backward matrix product; the gradient is written
    out (posterior minus prior responsibilities), since autodiff through two log-sum-exps takes
    twice as long. Only the weights are differentiable.
    """
    return _log_lik(expert, weights, data)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _log_lik(expert: ExpertLikelihood, weights: Weights, data: Data) -> Scalar:
    if isinstance(data.rows, SparseRows):
        return _of_sparse(expert, weights, data.rows, gradient=False)[0]
    if isinstance(data.rows, ShardedRows):
        return _sum_over_shards(partial(_log_lik, expert), weights, data)
    rows = rows_for(weights.gate.size + weights.experts.size)
    return over_blocks(
        lambda block: summed_out(expert, *score(weights, block.rows), block)[0], data, rows
    )


def _log_lik_forward(expert: ExpertLikelihood, weights: Weights, data: Data):
    if isinstance(data.rows, ShardedRows):
        return _sum_over_shards(partial(_log_lik_forward, expert), weights, data)
    n = weights.gate.shape[0]

    def on_block(block: Data) -> tuple[Scalar, Array]:
        scores = _dot("ap,np->an", _stacked(weights), block.rows)
        value, slopes = _with_slopes(expert, n, scores, block)
        return value, _dot("an,np->ap", slopes, block.rows)  # one product, not two thin ones

    if isinstance(data.rows, SparseRows):
        value, gradient = _of_sparse(expert, weights, data.rows, gradient=True)
    else:
        rows = rows_for(weights.gate.size + weights.experts.size)
        value, gradient = over_blocks(on_block, data, rows)
    parts = Weights(gradient[:n], gradient[n:].reshape(weights.experts.shape))
    # Rows may have another precision than the weights; a gradient may not.
    return value, jax.tree.map(lambda part, w: part.astype(w.dtype), parts, weights)


def _log_lik_backward(expert: ExpertLikelihood, gradient: Weights, change: Scalar):
    return jax.tree.map(lambda g: (change * g).astype(g.dtype), gradient), None


_log_lik.defvjp(_log_lik_forward, _log_lik_backward)


def _of_sparse(
    expert: ExpertLikelihood, weights: Weights, rows: SparseRows, *, gradient: bool
) -> tuple[Scalar, Array]:
    on_scores = partial(_with_slopes, expert, weights.gate.shape[0])
    return over_sparse_rows(on_scores, rows, _stacked(weights), gradient=gradient)


def _with_slopes(expert: ExpertLikelihood, n: int, scores: Any, data: Data) -> tuple[Any, Any]:
    """Log-likelihood at stacked scores (K + K O, N), and its derivatives in them."""
    xp = scores.__array_namespace__()
    value, by_gate, by_scores = summed_out(expert, *_split(scores, n), data)
    return value, xp.concatenate([by_gate, by_scores.reshape(-1, scores.shape[-1])])


def _sum_over_shards(function: Callable[[Weights, Data], Any], weights: Weights, data: Data) -> Any:
    """Sum over devices of a function of the weights and the device's part of the data."""

    def part(weights: Weights, some: Data) -> Any:
        return summed(function(weights, some))

    # The inner loop over blocks of rows starts from values that are not yet summed.
    of_all = jax.shard_map(
        part,
        mesh=data.rows.mesh,
        in_specs=(PartitionSpec(), PartitionSpec(AXIS)),
        out_specs=PartitionSpec(),
        check_vma=False,
    )
    return of_all(weights, data._replace(rows=data.rows.array))


def rows_for(n_weights: int) -> int:
    """Rows of a block for products with this many weights.

    >>> rows_for(60 * 124), rows_for(120 * 300)
    (1024, 512)
    """
    return BLOCK_ROWS if n_weights <= WIDE else BLOCK_ROWS // 2


def over_blocks(function: Callable[[Rows], Any], data: Rows, block_rows: int = BLOCK_ROWS) -> Any:
    """Sum of a function over blocks of rows (the first axis of every leaf)."""
    n_rows = jax.tree.leaves(data)[0].shape[0]
    n_more = -(-n_rows // block_rows) - 1
    if n_more < 1 or jax.default_backend() != "cpu":
        return function(data)

    def add(index: Array, total: Any) -> Any:
        start = index * block_rows
        block = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, start, block_rows), data)
        return jax.tree.map(jnp.add, total, function(block))

    last = jax.tree.map(lambda leaf: leaf[n_more * block_rows :], data)
    return lax.fori_loop(0, n_more, add, function(last))


def summed_out(
    expert: ExpertLikelihood, gate: Any, scores: Any, data: Data
) -> tuple[Any, Any, Any]:
    """Log-likelihood and its derivatives: in the gate scores (K, N) and expert scores (K, O, N).

    Derivatives in the gate scores are responsibilities with the target minus those without it.
    Components come first so that sums over them run along whole vectors of rows.
    """
    xp = gate.__array_namespace__()
    found, slope = _summed(expert, gate, scores, data.targets)
    value = xp.sum(data.weights * (xp.log(found.evidence / found.total) + found.top))
    posterior = found.joint * (data.weights / found.evidence)
    by_gate = posterior - found.opening * (data.weights / found.total)
    return value, by_gate, posterior[:, None] * slope


def log_density(expert: ExpertLikelihood, gate: Any, scores: Any, targets: Any) -> Any:
    """Log density of each target, (..., N), the choice of expert summed out."""
    found, _ = _summed(expert, gate, scores, targets)
    return gate.__array_namespace__().log(found.evidence / found.total) + found.top


class _Sums(NamedTuple):
    """Terms of the mixture and their sums over experts, relative to the largest."""

    opening: Any
    total: Any
    joint: Any
    evidence: Any
    top: Any


def _summed(expert: ExpertLikelihood, gate: Any, scores: Any, targets: Any) -> tuple[_Sums, Any]:
    xp = gate.__array_namespace__()
    terms = expert.terms(scores, targets)
    relative = gate - xp.max(gate, axis=-2, keepdims=True)
    opening = xp.exp(relative)
    exponent = relative + terms.exponent
    top = xp.max(exponent, axis=-2, keepdims=True)
    joint = xp.exp(exponent - top) * terms.factor
    total, evidence = xp.sum(opening, axis=-2), xp.sum(joint, axis=-2)
    return _Sums(opening, total, joint, evidence, top.squeeze(-2)), terms.slope


def score(weights: Weights, rows: Array) -> tuple[Array, Array]:
    """Gate scores (K, N) and expert scores (K, O, N)."""
    return _split(_dot("ap,np->an", _stacked(weights), rows), weights.gate.shape[0])


def _stacked(weights: Weights) -> Array:
    """All weight vectors, (K + K O, p)."""
    return jnp.concatenate([weights.gate, weights.experts.reshape(-1, weights.gate.shape[-1])])


def _split(scores: Any, n: int) -> tuple[Any, Any]:
    """Scores of the gate and of the experts."""
    return scores[:n], scores[n:].reshape(n, -1, scores.shape[-1])


def softmax(scores: Any) -> Any:
    """Softmax over the last axis but one."""
    xp = scores.__array_namespace__()
    found = xp.exp(scores - xp.max(scores, axis=-2, keepdims=True))
    return found / xp.sum(found, axis=-2, keepdims=True)


def expected(expert: ExpertLikelihood, gate: Any, scores: Any) -> Any:
    """Expected target, (..., C, N), at scores of the gate (..., K, N) and of the experts."""
    xp = gate.__array_namespace__()
    opening = xp.exp(gate - xp.max(gate, axis=-2, keepdims=True))
    found = xp.einsum("...kn,...kcn->...cn", opening, expert.mean(scores))
    return found / xp.sum(opening, axis=-2)[..., None, :]  # last, where there are fewest numbers


def predict(expert: ExpertLikelihood, weights: Weights, rows: Array) -> Array:
    """Expected target, (N, C): class probabilities for classifiers."""
    return expected(expert, *score(weights, rows)).T


def _dot(pattern: str, left: Array, right: Array) -> Array:
    # By default a GPU rounds float32 factors to ten bits, which causes energy errors. Three
    # half-precision products keep twenty bits and use the matrix units: twice as fast as float32.
    precision: Any = lax.Precision.HIGHEST
    if left.dtype == right.dtype == jnp.float32 and has_fast_halves():
        precision = lax.DotAlgorithmPreset.BF16_BF16_F32_X3
    return jnp.einsum(pattern, left, right, precision=precision)


def has_fast_halves() -> bool:
    """Whether the default device is an NVIDIA card with matrix units for bfloat16 (Ampere on)."""
    device = jax.local_devices()[0]
    major = str(getattr(device, "compute_capability", "")).partition(".")[0]
    return jax.default_backend() == "gpu" and major.isdigit() and int(major) >= 8  # noqa: PLR2004
