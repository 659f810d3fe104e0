"""Class probabilities of rows, from posterior draws of a mixture of experts."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.mixture_of_experts import likelihood as mixture
from wideangle.mixture_of_experts.likelihood import ExpertLikelihood, Weights
from wideangle.mixture_of_experts.predict import (
    block_size,
    chosen_draws,
    in_blocks,
    log_mixture,
    on_device,
    on_host,
    score,
    softmax,
)
from wideangle.posterior import Draws
from wideangle.types import Array

DECIMALS = 3
"""Of probabilities that are watched: whether one is 1e-9 or 1e-18 matters to nobody, and mixes
slowly."""


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
    """Class probabilities and, if asked for, their entropy, averaged over draws, (N, C + 1)."""
    weights, shares = chosen_draws(draws, chain_weights)
    if on_host(rows):
        answer = partial(_on_host, weights, shares, uncertain)
        found = in_blocks(answer, rows, block_size(weights))
    else:
        found = on_device(partial(_on_device, expert, weights, shares), rows)
    found[:, :-1] /= found[:, :-1].sum(axis=1, keepdims=True)
    return found


def _on_host(weights: Weights, shares: np.ndarray, uncertain: bool, rows: Any) -> np.ndarray:
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
    """What experts say, (S, K, O, n) to (S, K, C, n), exact also of rare classes."""
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


def watch(weights: Weights, rows: np.ndarray) -> dict[str, np.ndarray]:
    """Probabilities of all classes but the first, (S, n (C - 1)), rounded."""
    watched = probabilities(weights, rows).transpose(0, 2, 1)[:, : len(rows), 1:]
    return {"probability": np.round(watched.reshape(len(watched), -1), DECIMALS)}


def log_lik(weights: Weights, rows: Any, targets: np.ndarray) -> np.ndarray:
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


def draw(rng: np.random.Generator, weights: Weights, rows: Any) -> np.ndarray:
    """A class of each row from each draw, (S, n)."""
    below = np.cumsum(probabilities(weights, rows), axis=1)[..., : rows.shape[0]]
    level = rng.random((len(weights.gate), 1, rows.shape[0])) * below[:, -1:]
    return np.sum(below[:, :-1] < level, axis=1).astype(np.int32)
