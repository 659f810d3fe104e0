"""Predictions for rows: cluster probabilities, densities, which rows belong together."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from wideangle.sphere.vmf import values_on_host
from wideangle.spherical_mixture.rows import MemoryRows, as_units, shares
from wideangle.spherical_mixture.task import Mixture


def log_mixture(mixture: Mixture) -> tuple[np.ndarray, np.ndarray]:
    """Natural parameters and offsets with which a pass gives log densities relative to uniform."""
    dim = mixture.directions.shape[1]
    with np.errstate(divide="ignore"):
        offsets = np.log(np.asarray(mixture.weights, np.float64))
    offsets -= values_on_host(mixture.concentrations, dim).log_mean
    return mixture.concentrations[:, None] * mixture.directions, offsets


def describe(mixture: Mixture, X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Cluster probabilities (n, K) and log densities relative to uniform (n,) of raw rows.

    For a row without a direction these are the weights and 0.
    """
    units, live = as_units(X)
    parts = shares(MemoryRows(units, live.astype(np.float64)), *log_mixture(mixture))
    found = [(np.float64(responsible), logs) for responsible, logs in parts]
    proba, logs = (np.concatenate(part) for part in zip(*found, strict=True))
    proba[~live] = mixture.weights
    proba /= proba.sum(axis=1, keepdims=True)  # from single to full double precision
    return proba, np.where(live, logs, 0.0)


def states_of(kept: Mixture) -> list[Mixture]:
    """The states of all chains, one after the other."""
    flat: Mixture = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), kept)
    return [Mixture(*one) for one in zip(*flat, strict=True)]


def mean_log_density(states: list[Mixture], X: Any) -> np.ndarray:
    """Log of the mean density over states, relative to uniform."""
    logs = np.array([describe(state, X)[1] for state in states])
    top = logs.max(axis=0)
    return np.log(np.mean(np.exp(logs - top), axis=0)) + top


def similarity(states: list[Mixture], X: Any) -> np.ndarray:
    """Probability that rows belong to the same cluster, averaged over states, (n, n)."""
    total = np.zeros((X.shape[0], X.shape[0]))
    for state in states:
        proba = describe(state, X)[0]
        total += proba @ proba.T
    total /= len(states)
    np.fill_diagonal(total, 1.0)
    return total


def closest_partition(partitions: np.ndarray, weights: np.ndarray) -> int:
    r"""Which of the partitions (S, N) is closest to all of them.

    The distance is the variation of information (Meila, 2007), the entropy of each partition given
    the other, :math:`2H(a, b) - H(a) - H(b)`; the one with the smallest mean distance minimises the
    expected loss among the partitions that were drawn (Wade and Ghahramani, 2018).
    """
    n_sets = len(partitions)
    shares = weights / weights.sum()
    sizes = [int(labels.max()) + 1 for labels in partitions]
    alone = np.array([_entropy(np.bincount(labels, shares)) for labels in partitions])
    total = np.zeros(n_sets)
    for i in range(n_sets):
        for j in range(i):
            pairs = partitions[i].astype(np.int64) * sizes[j] + partitions[j]
            together = _entropy(np.bincount(pairs, shares))
            distance = 2.0 * together - alone[i] - alone[j]
            total[i] += distance
            total[j] += distance
    return int(np.argmin(total))


def _entropy(shares: np.ndarray) -> float:
    shares = shares[shares > 0]
    return float(-np.sum(shares * np.log(shares)))
