r"""Markov moves of one row's assignments, compiled; names as in ``fields.py``.

``local[k]`` is what switching feature k on adds to the log-likelihood, given the others. It is
brought up to date at every flip, so a sweep costs O(K) plus O(K) per flip. The likelihood may be
raised to a power between 0 and 1. Random numbers come in ready: logistic ones, below the log odds
of a feature with its probability, and Gumbel ones, which added to the logarithms of weights make
each of them the largest with a probability in proportion to its weight. Neither needs an
exponential, and rows may share them.
"""

from __future__ import annotations

import numpy as np

from wideangle.machine_code import njit

CERTAIN = 36.0
"""Log-odds beyond which double precision knows no other outcome."""


@njit()
def sweep(z, local, coupling, log_odds, power, logistic, mean):
    """One Gibbs sweep over the features of a row; the change of the log-likelihood.

    ``mean``, unless it is empty, collects the conditional probabilities.
    """
    gain = 0.0
    for k in range(len(z)):
        total = log_odds[k] + power * local[k]
        if len(mean) > 0 and total > -CERTAIN:
            mean[k] += 1.0 / (1.0 + np.exp(-total)) if total < CERTAIN else 1.0
        if (total > logistic[k]) != (z[k] == 1):
            gain += flip(k, z, local, coupling)
    return gain


@njit()
def pair_sweep(z, local, coupling, log_odds, power, gumbel, partner):
    """Redraw every feature together with a partner, from their four joint states; as `sweep`.

    Single flips cannot exchange a feature for a similar one, nor switch on two that cancel.
    Partners are drawn without looking at z, which keeps the target invariant.
    """
    gain = 0.0
    for j in range(len(z)):
        k = partner[j]
        shared = coupling[j, k]
        first = log_odds[j] + power * (local[j] + z[k] * shared)  # as if the other were off
        second = log_odds[k] + power * (local[k] + z[j] * shared)
        both = first + second - power * shared + gumbel[j, 3]
        none, first, second = gumbel[j, 0], first + gumbel[j, 1], second + gumbel[j, 2]
        new_j = max(first, both) > max(none, second)
        new_k = max(second, both) > max(none, first)
        if new_j != (z[j] == 1):
            gain += flip(j, z, local, coupling)
        if new_k != (z[k] == 1):
            gain += flip(k, z, local, coupling)
    return gain


@njit()
def flip(k, z, local, coupling):
    """Change z[k]; return the change of the log-likelihood."""
    sign = 1.0 - 2.0 * z[k]
    z[k] = 1 - z[k]
    for j in range(len(z)):
        local[j] -= sign * coupling[k, j]
    return sign * local[k]  # its own entry has not changed: the diagonal is zero


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
    weight = np.empty(len(field))
    for k in range(len(field)):  # an expression of arrays would take a second more to compile
        weight[k] = 1.0 / (1.0 + np.exp(-log_odds[k]))
    variance = 0.0
    for k in range(len(field)):
        slope, pairs = field[k], 0.0
        for j in range(len(field)):
            slope -= coupling[k, j] * weight[j]
            pairs += coupling[k, j] ** 2 * weight[j] * (1.0 - weight[j])
        variance += weight[k] * (1.0 - weight[k]) * (slope**2 + 0.5 * pairs)
    return np.sqrt(variance) + 1e-12
