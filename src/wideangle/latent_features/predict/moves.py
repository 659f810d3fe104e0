r"""Markov moves of one row's assignments, compiled; names as in ``held_out.py``.

``local[k]`` is what switching feature k on adds to the log-likelihood, given the others. It is
brought up to date at every flip, so a sweep costs O(K) plus O(K) per flip. The likelihood may be
raised to a power between 0 and 1.
"""

from __future__ import annotations

import numpy as np

from wideangle.latent_features.parallel import uniform
from wideangle.machine_code import njit

CERTAIN = 36.0
"""Log-odds beyond which double precision knows no other outcome."""
N_PARTNERS = 6
"""Features with which a feature is redrawn together: those nearest to its line."""


def partners_of(features: np.ndarray) -> np.ndarray:
    """(K, at most ``N_PARTNERS``): for each feature the others of largest absolute cosine."""
    length = np.maximum(np.linalg.norm(features, axis=1), np.finfo(float).tiny)
    directions = features / length[:, None]
    cosines = np.abs(directions @ directions.T)
    np.fill_diagonal(cosines, -1.0)
    n_partners = min(N_PARTNERS, max(len(features) - 1, 0))
    return np.ascontiguousarray(np.argsort(-cosines, axis=1, kind="stable")[:, :n_partners])


@njit()
def sweep(z, local, coupling, log_odds, power, state, mean):
    """One Gibbs sweep over the features of a row, its likelihood raised to ``power``.

    ``mean`` collects the conditional probabilities. Returns the state of the stream and the
    change of the log-likelihood.
    """
    gain = 0.0
    for k in range(len(z)):
        if abs(log_odds[k] + power * local[k]) > CERTAIN:  # no exponential is needed
            probability = 1.0 if log_odds[k] + power * local[k] > 0.0 else 0.0
        else:
            probability = 1.0 / (1.0 + np.exp(-log_odds[k] - power * local[k]))
        mean[k] += probability
        state, chance = uniform(state)
        on = chance < probability
        if on != (z[k] == 1):
            gain += flip(k, z, local, coupling)
    return state, gain


@njit()
def pair_sweep(z, local, coupling, log_odds, power, state, partners):
    """Redraw every feature together with one of its partners, from their four joint states.

    Single flips cannot exchange a feature for a similar one, nor switch on two that cancel.
    Partners are drawn without looking at z, which keeps the target invariant. Returns as
    :func:`sweep`.
    """
    gain = 0.0
    for j in range(len(z)):
        state, chance = uniform(state)
        k = partners[j, int(chance * partners.shape[1])]
        shared = coupling[j, k]
        first = log_odds[j] + power * (local[j] + z[k] * shared)  # as if the other were off
        second = log_odds[k] + power * (local[k] + z[j] * shared)
        both = first + second - power * shared
        top = max(0.0, first, second, both)
        none, one, other = _weight(-top), _weight(first - top), _weight(second - top)
        state, chance = uniform(state)
        chance *= none + one + other + _weight(both - top)
        new_k = chance >= none + one
        new_j = chance >= none + one + other or (chance >= none and not new_k)
        if new_j != (z[j] == 1):
            gain += flip(j, z, local, coupling)
        if new_k != (z[k] == 1):
            gain += flip(k, z, local, coupling)
    return state, gain


@njit(inline="always")
def _weight(log_weight):
    """Weight of a state beside one of weight 1."""
    return np.exp(log_weight) if log_weight > -CERTAIN else 0.0


@njit()
def flip(k, z, local, coupling):
    """Change z[k]; return the change of the log-likelihood."""
    sign = 1.0 - 2.0 * z[k]
    z[k] = 1 - z[k]
    for j in range(len(z)):
        local[j] -= sign * coupling[k, j]
    return sign * local[k]  # its own entry has not changed: the diagonal is zero


@njit()
def start_from_prior(z, local, field, coupling, log_odds, state):
    """Draw z from its prior; set ``local`` and return the stream and the log-likelihood."""
    value = 0.0
    local[:] = field
    for k in range(len(z)):
        state, chance = uniform(state)
        z[k] = 0
        if chance < 1.0 / (1.0 + np.exp(-log_odds[k])):
            z[k] = 1
            value += local[k]
            for j in range(len(z)):
                local[j] -= coupling[k, j]
    return state, value


@njit()
def power_at(step, n_steps, scale):
    r"""Power of the likelihood at a step of a path from 0 to 1, geometric in 1 + scale * power.

    With ``scale`` the prior standard deviation of the log-likelihood, the first steps are of the
    order 1 / scale, where the path leaves the prior, and later ones grow with the power.
    """
    return np.expm1(step / n_steps * np.log1p(scale)) / scale


@njit()
def prior_spread(field, coupling, log_odds):
    r"""Standard deviation of the log-likelihood of a row when z has its prior.

    With :math:`v_k = \mu_k (1 - \mu_k)` the variance is
    :math:`\sum_k v_k (f_k - \sum_j C_{kj} \mu_j)^2 + \tfrac12 \sum_{jk} C_{jk}^2 v_j v_k`.
    """
    weight = 1.0 / (1.0 + np.exp(-log_odds))
    variance = 0.0
    for k in range(len(field)):
        slope, pairs = field[k], 0.0
        for j in range(len(field)):
            slope -= coupling[k, j] * weight[j]
            pairs += coupling[k, j] ** 2 * weight[j] * (1.0 - weight[j])
        variance += weight[k] * (1.0 - weight[k]) * (slope**2 + 0.5 * pairs)
    return np.sqrt(variance) + 1e-12
