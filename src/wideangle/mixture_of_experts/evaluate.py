"""Compiled pieces that look at a finished q: draws, likelihoods, predictions, in row chunks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from wideangle.infer.ascent import as_dense
from wideangle.mixture_of_experts import likelihood as moe
from wideangle.mixture_of_experts.collapsed import Guides, Terms
from wideangle.mixture_of_experts.experts import ExpertLikelihood
from wideangle.mixture_of_experts.guides import Guide
from wideangle.mixture_of_experts.likelihood import Batch, Weights
from wideangle.types import Array, Key

ROWS = 4096
"""Rows evaluated at once."""


@jax.jit
def divergences(keys: Key, guides: Guides, terms: Terms) -> Array:
    """Minus the divergence from the priors; one estimate a key where there is no closed form."""

    def one(key: Key) -> Array:
        gate, experts = random.split(key)
        value = guides.gate.negative_kl(gate, terms.gate_prior)
        return value + guides.experts.negative_kl(experts, terms.expert_prior)

    return lax.map(one, keys)


@partial(jax.jit, static_argnames="expert")
def log_liks(
    expert: ExpertLikelihood, draws: Weights, mean: Weights, batch: Batch
) -> tuple[Array, Weights, Array]:
    """Log-likelihood of each draw, its gradient at the mean, and the mass of each gate."""

    def one(weights: Weights) -> tuple[Array, Array]:
        mass = batch.weights @ moe.gate_proba(weights, batch.rows)
        return moe.log_lik(expert, weights, batch), mass

    values, masses = lax.map(one, draws)
    slope = jax.grad(partial(moe.log_lik, expert))(mean, batch)
    return values, slope, jnp.mean(masses, axis=0)


@jax.jit
def means(guides: Guides) -> tuple[Array, Array]:
    """Expected vectors of gate and experts."""
    return guides.gate.means, guides.experts.means


@partial(jax.jit, static_argnames="n")
def draw(guide: Guide, key: Key, n: int) -> Array:
    """Exact draws, (n, K, D)."""
    return guide.sample(key, n)


def chunks(rows: Any, dtype: Any) -> Iterator[tuple[slice, np.ndarray]]:
    """Dense row chunks of one shape, with their slice; the last is filled up with zeros."""
    size = min(ROWS, rows.shape[0])
    for first in range(0, rows.shape[0], size):
        chunk = as_dense(rows, slice(first, first + size), dtype)
        fill = np.zeros((size - len(chunk), chunk.shape[1]), dtype)
        yield slice(first, first + len(chunk)), np.concatenate([chunk, fill])


@partial(jax.jit, static_argnames="expert")
def predict(expert: ExpertLikelihood, draws: Weights, rows: Array) -> Array:
    """Class probabilities, averaged over draws."""
    return jnp.mean(lax.map(lambda weights: moe.predict(expert, weights, rows), draws), axis=0)
