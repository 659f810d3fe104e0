"""Draws of experts made by hand, and the mixture written out in double precision."""

import numpy as np

from wideangle.mixture_of_experts.classes import experts_for
from wideangle.mixture_of_experts.likelihood import Pair
from wideangle.posterior import Draws

CHAINS, DRAWS, K, P = 3, 50, 4, 7


def draws(n_classes, n_draws=DRAWS, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    n_outputs = experts_for(n_classes).n_outputs
    gate = scale * rng.normal(size=(CHAINS, n_draws, K, P))
    experts = scale * rng.normal(size=(CHAINS, n_draws, K, n_outputs, P))
    return Draws({"weights": Pair(gate.astype(np.float32), experts.astype(np.float32))})


def rows(n=100, seed=1):
    return np.random.default_rng(seed).normal(size=(n, P)).astype(np.float32)


def written_out(found, x):
    """Probabilities (chain, draw, row, class) in double precision."""
    weights = found.values["weights"]
    gate = np.exp(np.einsum("...kp,np->...nk", weights.gate, x, dtype=float))
    gate /= gate.sum(-1, keepdims=True)
    scores = np.einsum("...kop,np->...nko", weights.experts, x, dtype=float)
    if scores.shape[-1] == 1:
        scores = np.concatenate([np.zeros_like(scores), scores], -1)
    said = np.exp(scores)
    said /= said.sum(-1, keepdims=True)
    return np.einsum("...nk,...nkc->...nc", gate, said)
