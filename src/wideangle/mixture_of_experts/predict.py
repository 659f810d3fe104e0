"""Predictions and summaries from posterior draws of a mixture of experts."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.infer.ascent import as_dense
from wideangle.mixture_of_experts import likelihood as mixture
from wideangle.mixture_of_experts.data import chunks, round_up
from wideangle.mixture_of_experts.likelihood import ExpertLikelihood, Weights
from wideangle.posterior import Draws, evenly
from wideangle.sphere.geometry import diversity
from wideangle.types import Array

PREDICT_DRAWS = 256
"""Draws behind a prediction; more would change the third digit at the price of time."""
USED = 0.01
"""Mean gate mass above which an expert counts as used."""
NEEDED = ("log_lik", "probability")
"""Quantities of the trace that predictions depend on; the others may mix slowly without harm."""
REFERENCE, WATCHED = 256, 16
"""Training rows on which draws are compared, and those of them whose probabilities are watched
for convergence."""


def thinned(draws: Draws, n_draws: int = PREDICT_DRAWS) -> Weights:
    """At most ``n_draws`` of the weights, evenly spread over chains and draws."""
    weights = Draws(draws.values["weights"]).flat
    total = len(weights.gate)
    chosen = evenly(total, n_draws)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[chosen]), weights)


def predict(expert: ExpertLikelihood, draws: Draws, rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean prediction (N, C) and mean entropy of single predictions (N,)."""
    weights = thinned(draws)
    parts = [_predict(expert, weights, chunk) for _, chunk in chunks(rows)]
    mean, expected = (np.concatenate([np.asarray(p[i]) for p in parts]) for i in (0, 1))
    n_rows = rows.shape[0]
    mean = mean[:n_rows].astype(np.float64)
    return mean / mean.sum(axis=1, keepdims=True), expected[:n_rows].astype(np.float64)


@partial(jax.jit, static_argnums=0)
def _predict(expert: ExpertLikelihood, weights: Weights, rows: Array) -> tuple[Array, Array]:
    def one(w: Weights) -> tuple[Array, Array]:
        proba = mixture.predict(expert, w, rows)
        return proba, -jnp.sum(jax.scipy.special.xlogy(proba, proba), axis=-1)

    def add(total: Any, w: Weights) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, one(w)), None

    first = jax.tree.map(lambda leaf: leaf[0], weights)
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), jax.eval_shape(one, first))
    total, _ = jax.lax.scan(add, zeros, weights)
    return jax.tree.map(lambda leaf: leaf / weights.gate.shape[0], total)


def gate(weights: Weights, rows: Any) -> np.ndarray:
    """Gate probabilities of one draw, (N, K)."""
    compiled = jax.jit(mixture.gate_proba)
    parts = [np.asarray(compiled(weights, chunk)) for _, chunk in chunks(rows)]
    return np.concatenate(parts)[: rows.shape[0]]


def entropy(proba: np.ndarray) -> np.ndarray:
    """Entropy of each row, in nats."""
    return -np.sum(np.where(proba > 0, proba * np.log(np.maximum(proba, 1e-300)), 0.0), axis=1)


def trace(expert: ExpertLikelihood, draws: Draws, rows: Any) -> Draws:
    """Quantities of every draw that do not depend on how experts are numbered.

    Axes (chain, draw, ...): probabilities at some of the training rows, number of experts in use,
    mean angle between experts, and the log-likelihood where it was recorded.
    """
    reference = as_dense(rows, evenly(rows.shape[0], REFERENCE), np.float32)
    weights = Draws(draws.values["weights"]).flat
    filled = np.zeros((round_up(len(reference)), reference.shape[1]), np.float32)
    filled[: len(reference)] = reference
    values = _trace(expert, jax.tree.map(jnp.asarray, weights), filled, len(reference))
    shape = draws.n_chains, draws.n_draws
    result = {k: np.asarray(v).reshape(*shape, *v.shape[1:]) for k, v in values.items()}
    if "log_lik" in draws.values:
        result["log_lik"] = np.asarray(draws.values["log_lik"])
    return Draws(result, draws.stats, NEEDED)


@partial(jax.jit, static_argnums=0)
def _trace(
    expert: ExpertLikelihood, weights: Weights, rows: Array, n_rows: Array
) -> dict[str, Array]:
    live = jnp.arange(rows.shape[0]) < n_rows

    def one(w: Weights) -> dict[str, Array]:
        mass = jnp.sum(mixture.gate_proba(w, rows) * live[:, None], axis=0) / n_rows
        flat = w.experts.reshape(w.experts.shape[0], -1)
        angle = diversity(flat).mean_angle if len(flat) > 1 else jnp.zeros(())
        watched = mixture.predict(expert, w, rows[:WATCHED])[:, 1:]
        return {
            "probability": watched.reshape(-1),
            "n_used": jnp.sum(mass > USED).astype(rows.dtype),
            "mean_angle": angle,
        }

    return jax.lax.map(one, weights)


def representative(draws: Draws) -> Weights:
    """One draw that stands for the posterior: of highest likelihood among those kept.

    Averages over draws would mix experts that are numbered differently.
    """
    weights = Draws(draws.values["weights"]).flat
    best = int(np.argmax(draws.values["log_lik"])) if "log_lik" in draws.values else 0
    return jax.tree.map(lambda leaf: np.asarray(leaf[best]), weights)
