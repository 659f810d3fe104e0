"""Where a variational fit of the mixture of experts begins."""

from __future__ import annotations

import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import random
from threadpoolctl import threadpool_limits

from wideangle.mixture_of_experts.collapsed import Guides
from wideangle.mixture_of_experts.experts import ExpertLikelihood
from wideangle.mixture_of_experts.guides import GaussianGuide, Guide, VmfGuide
from wideangle.types import Array, Key

EXPERT_SCATTER, GATE_SCATTER, WIDTH = 1.1, 1.9, 0.37
"""Scatter of the first scores, and their standard deviation under q, at a row of usual length."""
RIDGE_ROWS = 20_000
FIRST_SHAPE = 50.0


def start(
    key: Key,
    q: str,
    expert: ExpertLikelihood,
    data: Any,
    n_components: int,
    n_starts: int,
    dtype: Any = np.float32,
) -> Guides:
    r"""First guides: experts scattered around a ridge regression, gates around 0.

    Noise is measured in scores :math:`a\cdot x` at the root mean square of :math:`|x|`, so the
    start means the same whatever the number and the scale of the columns.
    """
    length = _rms_length(data.rows)
    centre = jnp.asarray(ridge(data, expert.n_outputs).ravel(), dtype)
    keys = random.split(key)
    shape = n_starts, n_components
    gate = random.normal(keys[0], (*shape, data.rows.shape[1]), dtype) * (GATE_SCATTER / length)
    scatter = random.normal(keys[1], (*shape, centre.size), dtype) * (EXPERT_SCATTER / length)
    return Guides(_guide(q, gate, WIDTH / length), _guide(q, centre + scatter, WIDTH / length))


def _guide(q: str, centres: Array, width: float) -> Guide:
    """Guides whose weights have standard deviation ``width``."""
    if q == "diagonal":
        return GaussianGuide(centres, jnp.full_like(centres, np.log(width)))
    concentration = jnp.sum(centres**2, axis=-1) / width**2
    # Below the dimension a vMF factor carries no direction, and its gradient vanishes.
    concentration = jnp.maximum(concentration, 2.0 * centres.shape[-1])
    shapes = jnp.full_like(concentration, np.log(FIRST_SHAPE))
    return VmfGuide(centres, jnp.log(concentration), shapes)


def ridge(data: Any, n_outputs: int) -> np.ndarray:
    """Logistic regression with penalty |w|^2 / 2, (O, p), on at most ``RIDGE_ROWS`` rows."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    some = slice(None, None, max(1, -(-data.rows.shape[0] // RIDGE_ROWS)))
    rows, targets, weights = data.rows[some], data.targets[some], data.weights[some]
    found = np.zeros((n_outputs, data.rows.shape[1]))
    live = weights > 0
    if len(np.unique(targets[live])) < 2:  # noqa: PLR2004
        return found
    model = LogisticRegression(fit_intercept=False, max_iter=100)
    with warnings.catch_warnings(), threadpool_limits(1, "blas"):  # the same for any threads
        # A rough fit is enough: noise is added to it.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(rows[live], targets[live], sample_weight=weights[live])
    if n_outputs == 1:
        return model.coef_
    two = len(model.coef_) == 1
    found[model.classes_] = np.concatenate([-model.coef_, model.coef_]) / 2 if two else model.coef_
    return found


def _rms_length(rows: Any) -> float:
    square = rows.multiply(rows).sum() if hasattr(rows, "multiply") else np.sum(np.square(rows))
    return float(np.sqrt(max(float(square) / rows.shape[0], 1e-12)))
