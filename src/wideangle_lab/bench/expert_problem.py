"""Rows, weights and targets of a mixture of experts of any size, and the cost of a gradient."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax import lax

from wideangle.mixture_of_experts.classes import LogisticExperts
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import Weights, log_lik, predict
from wideangle.priors.components import PolarComponents
from wideangle.priors.mutual_angular import MutualAngular
from wideangle_lab.bench.harness import Size

EXPERT = LogisticExperts()
DENSITY = 0.113
"""Share of the entries of Adult-9 that are not 0."""


@jax.jit
def value_and_gradient(weights: Weights, data: Data) -> Any:
    """Value and gradient of the log-likelihood."""
    return jax.value_and_grad(partial(log_lik, EXPERT))(weights, data)


@jax.jit
def two_products(stacked: Any, slopes: Any, rows: Any) -> Any:
    """The two matrix products of a gradient: a lower bound on its time for dense rows."""
    exact = lax.Precision.HIGHEST
    scores = jnp.einsum("ap,np->an", stacked, rows, precision=exact)
    return scores, jnp.einsum("an,np->ap", slopes, rows, precision=exact)


def draw_problem(
    seed: int, size: Size, density: float = DENSITY
) -> tuple[Weights, Any, np.ndarray]:
    """Weights of the prior, sparse 0/1 rows with an intercept, and targets from the model."""
    generator = np.random.default_rng(seed)
    shape = size.rows, size.columns - 1
    options: dict[str, Any] = {"format": "csr", "random_state": generator}
    rows: Any = sp.random_array(shape, density=density, **options)
    rows.data[:] = 1.0
    rows = sp.csr_array(sp.hstack([rows, np.ones((size.rows, 1))], format="csr", dtype=np.float32))
    prior = prior_of(size)
    keys = jax.random.split(jax.random.key(seed), 3)
    gate, experts = (prior.sample(key) for key in keys[:2])
    weights = Weights(gate, experts[:, None])
    chunks = [rows[i : i + 4096].toarray() for i in range(0, size.rows, 4096)]
    chance = np.concatenate([predict(EXPERT, weights, jnp.asarray(c))[:, 1] for c in chunks])
    targets = jax.random.bernoulli(keys[2], jnp.asarray(chance))
    return weights, rows, np.asarray(targets, np.int32)


def prior_of(size: Size) -> PolarComponents:
    """The estimator's default prior, with weights of standard deviation 1."""
    directions = MutualAngular.from_cosine(size.components, size.columns, np.float32(0.2), "II")
    rate = 2.0 / np.sqrt(size.columns)
    return PolarComponents(directions, np.float32(2.0), np.float32(rate))
