"""Predictions from draws of a mixture of experts: scores of rows, a block at a time.

On a CPU, predictions use NumPy: nothing is compiled, so a few rows are predicted immediately, and
blocks of rows that fit the cache are shared among threads. For Adult-9 with five experts (16,281
rows of 124 columns, 64 draws) the products take 2.6e9 multiplications and the probabilities 1.0e7
exponentials: 35 and 12 ms on one core, and the overhead is about as much again.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import jax
import numpy as np
import scipy.sparse as sp
from threadpoolctl import ThreadpoolController

from wideangle.mixture_of_experts import likelihood
from wideangle.mixture_of_experts.data import chunks
from wideangle.mixture_of_experts.likelihood import ExpertLikelihood, Weights
from wideangle.posterior import Draws, evenly
from wideangle.sharding import n_threads
from wideangle.types import as_dense

FEWEST_DRAWS, MOST_DRAWS, ROW_COST = 64, 256, 80_000
"""Draws per prediction: as many as cost this many multiplications per row, within these bounds, for
any number of rows. The Monte Carlo error of 64 draws is an eighth of the posterior standard
deviation of a probability, 0.005 where that is 0.04, and costs about 1e-4 nats."""
BLOCK_SCORES = 2**18
"""Scores of a block of rows, in all draws: 1 MiB, which fits the cache."""
HOST_ROWS = 4096
"""Most rows predicted without an accelerator, which would have to compile first."""
BLOCK = 64
"""Blocks are multiples of this many rows, the last one padded with zeros: the rounding of a product
then does not depend on the other rows."""
SPARSE_SHARE = 0.02
"""Share of nonzero entries up to which sparse products are faster than dense ones."""
TRACE_SCORES = 2**22
"""Gate scores at the reference rows that are held at a time."""
USED = 0.01
"""Mean gate mass above which an expert counts as used."""
REFERENCE, WATCHED = 256, 16
"""Training rows on which draws are compared, and those of them whose predictions are watched for
convergence."""


def thinned(draws: Draws, n_draws: int) -> Weights:
    """At most ``n_draws`` of the weights, evenly spread over chains and draws."""
    weights = Draws(draws.values["weights"]).flat
    chosen = evenly(len(weights.gate), n_draws)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[chosen], weights)


def chosen_draws(draws: Draws, chain_weights: np.ndarray | None) -> tuple[Weights, np.ndarray]:
    """Draws for a prediction, and the weight of each; chains of weight 0 are left out."""
    weights, n_chains = draws.values["weights"], draws.n_chains
    shares = np.full(n_chains, 1.0 / n_chains) if chain_weights is None else chain_weights
    live = np.flatnonzero(shares > 0)
    n_experts, n_outputs, p = weights.experts.shape[2:]
    n_draws = ROW_COST // (p * n_experts * (1 + n_outputs))
    n_draws = min(max(n_draws, FEWEST_DRAWS), MOST_DRAWS)
    places = evenly(len(live) * draws.n_draws, n_draws)
    chain, draw = live[places // draws.n_draws], places % draws.n_draws
    by_chain = np.bincount(chain, minlength=n_chains)
    picked = jax.tree.map(lambda leaf: np.asarray(leaf[chain, draw], np.float32), weights)
    return picked, (shares / np.maximum(by_chain, 1))[chain]


def over_draws(
    answer: Callable[[Any, Any, Any], Any],
    draws: Draws,
    rows: Any,
    chain_weights: np.ndarray | None,
    dtype: Any = np.float32,
) -> np.ndarray:
    """Averages over draws, (n, ...), by NumPy or by a compiled program on an accelerator.

    ``answer`` takes scores of the gate (S, K, n) and of the experts (S, K, O, n), in this precision
    on the host, and the weight of each draw.
    """
    weights, shares = chosen_draws(draws, chain_weights)
    if jax.default_backend() == "cpu" or rows.shape[0] <= HOST_ROWS:
        size = block_size(weights)
        return in_blocks(lambda block: answer(*score(weights, block, dtype), shares), size, rows)
    parts = [np.asarray(_on_device(answer, weights, shares, part)) for _, part in chunks(rows)]
    return np.concatenate(parts)[: rows.shape[0]].astype(np.float64)


@partial(jax.jit, static_argnums=0)
def _on_device(answer: Any, weights: Weights, shares: Any, rows: Any) -> Any:
    return answer(*jax.vmap(likelihood.score, in_axes=(0, None))(weights, rows), shares)


def in_blocks(answer: Callable[..., np.ndarray], size: int, *arrays: Any) -> np.ndarray:
    """Results (n, ...) of blocks of ``size`` rows, joined; threads share the blocks.

    Results beyond the rows of a block are dropped.
    """
    starts = range(0, arrays[0].shape[0], size)

    def one(first: int) -> np.ndarray:
        block = [array[first : first + size] for array in arrays]
        return answer(*block)[: block[0].shape[0]]

    if len(starts) == 1:
        return one(0)
    with (
        _threads_of_blas().limit(limits=1, user_api="blas"),
        ThreadPoolExecutor(min(n_threads(), len(starts))) as pool,
    ):
        return np.concatenate(list(pool.map(one, starts)))


@cache
def _threads_of_blas() -> ThreadpoolController:
    return ThreadpoolController()  # looking for libraries takes milliseconds


def block_size(weights: Weights) -> int:
    """Number of rows whose scores under all of these draws fit the cache."""
    n_scores = (weights.gate.size + weights.experts.size) // weights.gate.shape[-1]
    return max(BLOCK_SCORES // n_scores // BLOCK, 1) * BLOCK


def score(weights: Weights, rows: Any, dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the gate (S, K, n) and of the experts (S, K, O, n), n a round number."""
    p = weights.gate.shape[-1]
    stacked = np.concatenate([weights.gate.reshape(-1, p), weights.experts.reshape(-1, p)])
    found = products(stacked, rows).astype(dtype, copy=False)
    gate, says = np.split(found, [weights.gate.size // p])
    shape = weights.experts.shape[:-1]
    return gate.reshape(*shape[:2], -1), says.reshape(*shape, -1)


def products(weights: np.ndarray, rows: Any) -> np.ndarray:
    """Scores of some rows, dense or CSR, under weight vectors (A, p): (A, n), n a round number."""
    n = -(-rows.shape[0] // BLOCK) * BLOCK
    if sp.issparse(rows) and rows.nnz <= SPARSE_SHARE * rows.shape[0] * rows.shape[1]:
        scores = np.zeros((len(weights), n), np.float32)
        scores[:, : rows.shape[0]] = (rows @ weights.T).T
        return scores
    dense = as_dense(rows, slice(None), np.float32)
    if len(dense) < n:
        dense = np.concatenate([dense, np.zeros((n - len(dense), dense.shape[1]), np.float32)])
    return weights @ dense.T


def log_lik_of_rows(
    expert: ExpertLikelihood, weights: Weights, rows: Any, targets: np.ndarray
) -> np.ndarray:
    """Log density of the target of each row in each draw, (S, N), the expert summed out."""

    def answer(rows: Any, targets: np.ndarray) -> np.ndarray:
        gate, says = (part[..., : rows.shape[0]] for part in score(weights, rows, np.float64))
        return likelihood.log_density(expert, gate, says, targets).T

    return in_blocks(answer, block_size(weights), rows, targets).T


def gate(weights: Weights, rows: Any) -> np.ndarray:
    """Gate probabilities of one draw, (N, K)."""
    vectors = np.asarray(weights.gate, np.float32)
    size = max(BLOCK_SCORES // len(vectors) // BLOCK, 1) * BLOCK
    parts = [
        likelihood.softmax(products(vectors, rows[first : first + size])).T
        for first in range(0, rows.shape[0], size)
    ]
    return np.concatenate(parts)[: rows.shape[0]]


def representative(draws: Draws) -> Weights:
    """One draw to represent the posterior: the kept draw of highest likelihood.

    Averages over draws would mix up experts that are numbered differently.
    """
    weights = Draws(draws.values["weights"]).flat
    best = int(np.argmax(draws.values["log_lik"])) if "log_lik" in draws.values else 0
    return jax.tree.map(lambda leaf: np.asarray(leaf[best]), weights)


# ---- numbers of every draw


def trace(expert: ExpertLikelihood, draws: Draws, rows: Any) -> Draws:
    """Quantities of every draw that do not depend on how experts are numbered.

    Axes (chain, draw, ...): predictions at some of the training rows, number of experts in use,
    mean angle between experts, and the log-likelihood if it was recorded.
    """
    if jax.default_backend() == "cpu" and not sp.issparse(rows):
        rows = np.asarray(rows)  # the same memory; indexing it compiles nothing
    reference = as_dense(rows, evenly(rows.shape[0], REFERENCE), np.float32)
    every = Draws(draws.values["weights"]).flat
    size = max(TRACE_SCORES // (every.gate.shape[1] * len(reference)), 1)
    parts = []
    for first in range(0, len(every.gate), size):
        some = jax.tree.map(lambda w, i=first: np.asarray(w[i : i + size], np.float32), every)
        parts.append(_describe(expert, some, reference))
    shape = draws.n_chains, draws.n_draws
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    result = {name: v.reshape(*shape, *v.shape[1:]) for name, v in joined.items()}
    if "log_lik" in draws.values:
        result["log_lik"] = np.asarray(draws.values["log_lik"])
    scales = draws.values.get("scales", {})
    result |= {f"{name}_scale": np.asarray(values) for name, values in scales.items()}
    return Draws(result, draws.stats, expert.needed)


def _describe(
    expert: ExpertLikelihood, weights: Weights, rows: np.ndarray
) -> dict[str, np.ndarray]:
    """The quantities of some draws, one after the other."""
    n_draws, n_experts, _, p = weights.experts.shape
    gate = products(weights.gate.reshape(-1, p), rows).reshape(n_draws, n_experts, -1)
    mass = likelihood.softmax(gate)[:, :, : len(rows)].mean(axis=2)
    return expert.watch(weights, rows[:WATCHED]) | {
        "n_used": np.sum(mass > USED, axis=1).astype(np.float32),
        "mean_angle": _mean_angles(weights.experts.reshape(n_draws, n_experts, -1)),
    }


def _mean_angles(vectors: np.ndarray) -> np.ndarray:
    """Mean angle between the vectors (S, K, p) of each draw; 0 for one vector alone."""
    n = vectors.shape[1]
    if n == 1:
        return np.zeros(len(vectors), np.float32)
    units = vectors.astype(np.float64)
    units /= np.maximum(np.linalg.norm(units, axis=2, keepdims=True), 1e-300)
    first, second = np.triu_indices(n, 1)
    cosines = np.matmul(units, units.transpose(0, 2, 1))[:, first, second]
    return np.arccos(np.clip(cosines, -1.0, 1.0)).mean(axis=1).astype(np.float32)
