"""Numbers of every draw that do not depend on how experts are numbered, and what they rest on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from wideangle.mixture_of_experts import classes, quantities
from wideangle.mixture_of_experts.gaussian import GaussianExperts
from wideangle.mixture_of_experts.likelihood import ExpertLikelihood, Weights
from wideangle.mixture_of_experts.predict import products, softmax
from wideangle.posterior import Draws, evenly
from wideangle.types import as_dense

TRACE_SCORES = 2**22
"""Scores of the gate at the reference rows that are held at a time."""
USED = 0.01
"""Mean gate mass above which an expert counts as used."""
REFERENCE, WATCHED = 256, 16
"""Training rows on which draws are compared, and those of them whose predictions are watched for
convergence."""


class Answers(NamedTuple):
    """What draws say of rows, for one kind of experts; all of it by NumPy."""

    needed: tuple[str, ...]
    """Quantities of the trace that predictions depend on; others may mix slowly without harm."""
    watch: Callable[[Weights, np.ndarray], dict[str, np.ndarray]]
    """Those that are about single rows, (S, ...) each."""
    log_lik: Callable[[Weights, Any, np.ndarray], np.ndarray]
    """Log density of the target of each row in each draw, (S, n)."""
    draw: Callable[[np.random.Generator, Weights, Any], np.ndarray]
    """A target of each row from each draw, (S, n)."""


def answers_of(expert: ExpertLikelihood) -> Answers:
    """What draws of these experts say."""
    if isinstance(expert, GaussianExperts):
        parts = (quantities.watch, quantities.log_lik, quantities.draw)
        needed = ("log_lik", "prediction", "spread")
        return Answers(needed, *(partial(part, expert) for part in parts))
    return Answers(("log_lik", "probability"), classes.watch, classes.log_lik, classes.draw)


def trace(expert: ExpertLikelihood, draws: Draws, rows: Any) -> Draws:
    """Quantities of every draw that do not depend on how experts are numbered.

    Axes (chain, draw, ...): predictions at some of the training rows, number of experts in use,
    mean angle between experts, and the log-likelihood where it was recorded.
    """
    answers = answers_of(expert)
    reference = as_dense(rows, evenly(rows.shape[0], REFERENCE), np.float32)
    every = Draws(draws.values["weights"]).flat
    size = max(TRACE_SCORES // (every.gate.shape[1] * len(reference)), 1)
    parts = []
    for first in range(0, len(every.gate), size):
        some = jax.tree.map(lambda w, i=first: np.asarray(w[i : i + size], np.float32), every)
        parts.append(_describe(answers, some, reference))
    shape = draws.n_chains, draws.n_draws
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    result = {name: v.reshape(*shape, *v.shape[1:]) for name, v in joined.items()}
    if "log_lik" in draws.values:
        result["log_lik"] = np.asarray(draws.values["log_lik"])
    scales = draws.values.get("scales", {})
    result |= {f"{name}_scale": np.asarray(values) for name, values in scales.items()}
    return Draws(result, draws.stats, answers.needed)


def _describe(answers: Answers, weights: Weights, rows: np.ndarray) -> dict[str, np.ndarray]:
    """The quantities of some draws, one after the other."""
    n_draws, n_experts, _, p = weights.experts.shape
    gate = products(weights.gate.reshape(-1, p), rows).reshape(n_draws, n_experts, -1)
    mass = softmax(gate)[:, :, : len(rows)].mean(axis=2)
    return answers.watch(weights, rows[:WATCHED]) | {
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
