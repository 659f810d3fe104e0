"""Weights of chains by how well they predict entries that were hidden from the fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from wideangle.latent_features.posterior import DrawsOfChains
from wideangle.latent_features.predict.score import score_entries
from wideangle.posterior import evenly
from wideangle.stacking import stack

HIDDEN_SHARE, MOST_HIDDEN = 0.05, 4000
"""Entries that are hidden: this share of those there are, and no more than so many."""
STACK_DRAWS = 10
"""Draws of a chain that its score is averaged over."""


def hidden_entries(X: np.ndarray, seed: int) -> np.ndarray:
    """Which entries of dense rows (N, D) to hide, at random among those that are there."""
    places = np.flatnonzero(~np.isnan(X))
    n_hidden = min(int(np.ceil(HIDDEN_SHARE * len(places))), MOST_HIDDEN)
    chosen = np.random.default_rng((seed, 0x57AC)).choice(places, n_hidden, replace=False)
    mask = np.zeros(X.shape, bool)
    mask.flat[chosen] = True
    return mask


def chain_weights(
    chains: DrawsOfChains, rows: Any, mask: np.ndarray, seed: int, offset: Any
) -> np.ndarray:
    """Weight of each chain: those with which the hidden entries of ``rows`` are predicted best."""
    scores = []
    for chain in range(int(chains.chains.max()) + 1):
        members = np.flatnonzero(chains.chains == chain)
        some = [chains.draws[i] for i in members[evenly(len(members), STACK_DRAWS)]]
        scores.append(score_entries(some, rows, mask, seed, offset=offset).log_density)
    return stack(np.array(scores))
