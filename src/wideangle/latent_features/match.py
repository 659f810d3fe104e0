r"""One set of components from posterior draws whose features differ in number and order.

A component is a feature found in at least ``min_presence`` of the draws, where features of
different draws are the same if their relative distance is below a cut-off. Vectors of the same
component are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from wideangle.latent_features.predict.held_out import FeatureDraw

MISSED = 1e-3
"""Chance at which a component as rare as ``min_presence`` is in none of the draws searched."""
MOST = 0.5
"""Share of the draws of a chain from which on the chain has found a feature."""


class Matched(NamedTuple):
    """Components shared by draws, in falling order of energy."""

    components: np.ndarray
    """(K, D): mean vector over the draws that have the component."""
    presence: np.ndarray
    """(K,): share of the draws that have it."""
    index: np.ndarray
    """(draws, K): its number in each draw, -1 where it is absent."""
    spread: np.ndarray
    """(K,): root mean square distance of a draw's vector from the mean, relative to its length."""
    prevalence: np.ndarray
    """(K,): mean stick over the draws that have it, the share of rows with the component."""
    energy: np.ndarray
    r"""(K,): mean of :math:`\mu |w|^2`, what it adds to the squared length of a row."""
    by_chain: np.ndarray
    """(chains, K): share of the draws of each chain that have it."""
    n_disputed: int
    """Features that most draws of one chain have and most of another lack, kept or not."""


def match(
    draws: Sequence[FeatureDraw],
    masks: Sequence[np.ndarray] | None = None,
    *,
    chains: Any = None,
    reference: int | None = None,
    cutoff: float = 0.5,
    min_presence: float = 0.5,
) -> Matched:
    """Find the features that draws have in common.

    Features a, b of different draws can be the same if :math:`|a - b| < c max(|a|, |b|)` with the
    cut-off c; a feature and its negative never are. Candidates are collected from a few draws of
    every chain, enough to see whatever is as frequent as ``min_presence``, and averaged over those
    draws. Every draw is then assigned to these averages, one to one with the least total distance.

    Parameters
    ----------
    draws
        Posterior draws.
    masks
        Features of each draw that matter; all of them when left out.
    chains
        (draws,) number of the chain of each draw; one chain when left out.
    reference
        Draw whose features are the first candidates, such as the one of highest density; the first
        when left out.
    cutoff
        Largest relative distance between features that count as the same, below 1.
    min_presence
        Least share of draws that must have a component.
    """
    if not 0.0 < cutoff < 1.0:
        raise ValueError(f"cutoff={cutoff!r}: must lie between 0 and 1.")
    if not 0.0 < min_presence <= 1.0:
        raise ValueError(f"min_presence={min_presence!r}: must be above 0 and at most 1.")
    if masks is None:
        masks = [np.ones(len(draw.sticks), bool) for draw in draws]
    kept = [np.flatnonzero(mask) for mask in masks]
    chains = (
        np.zeros(len(draws), int) if chains is None else np.unique(chains, return_inverse=True)[1]
    )
    searched = _searched(chains, reference or 0, min_presence)
    centres = _candidates([_vectors(draws[s], kept[s]) for s in searched], cutoff)
    found = np.stack(
        [
            np.append(numbers, -1)[_assign(_vectors(draw, numbers), centres, cutoff)]
            for draw, numbers in zip(draws, kept, strict=True)
        ]
    )
    by_chain = np.stack([(found[chains == c] >= 0).mean(axis=0) for c in range(chains.max() + 1)])
    has = by_chain >= MOST
    disputed = int((has.any(axis=0) & ~has.all(axis=0)).sum())
    # Counts, and not quite: a share such as 3/10 may be rounded to either side of 0.3.
    chosen = (found >= 0).sum(axis=0) > min_presence * len(draws) - 1e-6
    return _summary(draws, found[:, chosen], by_chain[:, chosen], disputed)


def _vectors(draw: FeatureDraw, numbers: np.ndarray) -> np.ndarray:
    """Features in single precision: enough for distances, and half the time."""
    return np.asarray(draw.features)[numbers].astype(np.float32)


def _searched(chains: np.ndarray, reference: int, min_presence: float) -> list[int]:
    """Draws in which candidates are looked for: the reference, then some of every chain."""
    rate = np.log1p(-min(min_presence, 0.9))
    enough = int(np.ceil(np.log(MISSED) / rate))
    some = [reference]
    for chain in range(chains.max() + 1):
        members = np.flatnonzero(chains == chain)
        spaced = np.linspace(0, len(members) - 1, min(enough, len(members))).round().astype(int)
        some += [int(m) for m in members[spaced] if m != reference]
    return some


def _candidates(searched: list[np.ndarray], cutoff: float) -> np.ndarray:
    """Features of the searched draws, those that match an earlier one averaged with it."""
    centres = searched[0].copy()
    weights = np.ones(len(centres), np.float32)
    for vectors in searched[1:]:
        found = _assign(vectors, centres, cutoff)
        known = np.flatnonzero(found >= 0)
        weights[known] += 1.0
        centres[known] += (vectors[found[known]] - centres[known]) / weights[known, None]
        new = np.setdiff1d(np.arange(len(vectors)), found[known])
        centres = np.concatenate([centres, vectors[new]])
        weights = np.append(weights, np.ones(len(new), np.float32))
    return centres


def _assign(vectors: np.ndarray, centres: np.ndarray, cutoff: float) -> np.ndarray:
    """For each centre the number of its vector, or -1: least total distance, one to one."""
    result = np.full(len(centres), -1)
    closeness = cutoff - relative_distance(vectors, centres)
    row, column = np.nonzero(closeness > 0.0)
    if len(row) == 0:
        return result
    # Pairs that could be the same fall into groups, nearly all of one pair; the others are small.
    n_nodes = len(vectors) + len(centres)
    graph = coo_array((np.ones(len(row)), (row, len(vectors) + column)), (n_nodes, n_nodes))
    group = connected_components(graph, directed=False)[1][row]
    size = np.bincount(group)[group]
    result[column[size == 1]] = row[size == 1]
    for g in np.unique(group[size > 1]):
        members = group == g
        rows, columns = np.unique(row[members]), np.unique(column[members])
        gain = np.maximum(closeness[np.ix_(rows, columns)], 0.0)
        left, right = linear_sum_assignment(gain, maximize=True)
        good = gain[left, right] > 0.0
        result[columns[right[good]]] = rows[left[good]]
    return result


def relative_distance(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """|a - b| / max(|a|, |b|) for every pair, (K, K'); 1 between a zero vector and any other."""
    a, b = np.sum(left**2, axis=1)[:, None], np.sum(right**2, axis=1)[None, :]
    larger = np.maximum(np.maximum(a, b), np.finfo(float).tiny)
    return np.sqrt(np.maximum(a + b - 2.0 * (left @ right.T), 0.0) / larger)


def _summary(
    draws: Sequence[FeatureDraw], index: np.ndarray, by_chain: np.ndarray, n_disputed: int
) -> Matched:
    """Averages over draws of the matched features, in falling order of energy."""
    n_found, dim = index.shape[1], draws[0].features.shape[1]
    mean, square = np.zeros((n_found, dim)), np.zeros(n_found)
    prevalence, energy = np.zeros(n_found), np.zeros(n_found)
    for draw, numbers in zip(draws, index, strict=True):
        present = numbers >= 0
        features = np.asarray(draw.features)[numbers[present]].astype(np.float64)
        sticks = np.asarray(draw.sticks)[numbers[present]].astype(np.float64)
        length = np.sum(features**2, axis=1)
        mean[present] += features
        square[present] += length
        prevalence[present] += sticks
        energy[present] += sticks * length
    times = (index >= 0).sum(axis=0)
    mean, square = mean / times[:, None], square / times
    centre = np.sum(mean**2, axis=1)
    order = np.argsort(-energy / times, kind="stable")
    return Matched(
        components=mean[order],
        presence=times[order] / len(draws),
        index=index[:, order],
        spread=np.sqrt(np.maximum(square - centre, 0.0) / np.maximum(centre, 1e-300))[order],
        prevalence=(prevalence / times)[order],
        energy=(energy / times)[order],
        by_chain=by_chain[:, order],
        n_disputed=n_disputed,
    )
