r"""Assignments and evidence of new rows with many features, by annealed walks.

The sum over z in :math:`p(x) = \sum_z p(z) p(x \mid z)` has 2^K terms. A walk (annealed importance
sampling; Neal, 2001) draws z from independent Bernoulli distributions q, the base, and moves it by
Gibbs sweeps, over features and pairs of them in turn, along :math:`q(z)^{1-\beta} p(z, x)^\beta`,
with powers :math:`0 = \beta_0 < \dots < \beta_T = 1`,

.. math:: \log w = \sum_{t=1}^{T} (\beta_t - \beta_{t-1}) \log \frac{p(z_{t-1}, x)}{q(z_{t-1})}.

Final sweeps at power 1 give the assignments. The mean of w over walks is unbiased for
p(x), whatever the base and the powers, as long as they do not depend on the walks; its logarithm is
a lower bound of log p(x) in expectation.

The prior of z is a safe base, but far from the posterior when there are many features. Activations
of short walks are a close base when the row has one mode, and a useless one when a walk was caught
in a minor mode. So they are the base only if several walks from the prior, with separate random
numbers, end in the same place; w stays unbiased.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import logit, logsumexp

from wideangle.latent_features.fields import RowFields, derived_seed
from wideangle.machine_code import njit

N_STREAMS = 16
"""Sets of random numbers that rows take in turn, so that their errors cancel in a mean."""
MOST_CERTAIN = 5.0
"""Largest log odds of a base: a feature that no walk used can still be drawn."""
RUNS, RUN_STEPS, RUN_SWEEPS = 4, 50, 10
"""Walks whose activations are compared, and their lengths."""
AGREE = 0.5
"""Largest difference between activations of walks that ended in the same place."""
CERTAIN = 36.0
"""Log-odds beyond which the outcome is certain in double precision."""


class Walk(NamedTuple):
    """Results of the walks of all rows."""

    log_weights: np.ndarray
    """(N,): the exponential of each has mean p(x)."""
    activation: np.ndarray
    """(N, K): mean over sweeps of the conditional probabilities (Rao-Blackwellised)."""
    states: np.ndarray
    """(N, n_sweeps, K) of 0 and 1: z after every sweep."""


def walk(
    rows: RowFields,
    seed: int,
    n_steps: int,
    n_sweeps: int = 0,
    *,
    base: np.ndarray | None = None,
    n_streams: int = N_STREAMS,
    first_row: int = 0,
) -> Walk:
    """One walk of every row, and sweeps at its end.

    Parameters
    ----------
    rows
        See :mod:`~wideangle.latent_features.fields`.
    seed
        Integer; together with the row number it determines every random choice.
    n_steps
        Number of powers of the likelihood.
    n_sweeps
        Sweeps at the end, over pairs of features and then over each.
    base
        (N, K) log odds of the distributions to start from; by default those of the prior.
    n_streams
        Sets of random numbers. With one set, the result for a row does not depend on the other
        rows, as is expected of a transformer; errors of different rows are then correlated.
    first_row
        Index of the first row, for rows that come in chunks.
    """
    n_rows, n_features = rows.fields.shape
    base = rows.log_odds[None] if base is None else base
    numbers = _numbers(seed, rows.partners, n_streams, n_steps, n_sweeps)
    found = Walk(
        np.zeros(n_rows),
        np.zeros((n_rows, n_features)),
        np.empty((n_rows, n_sweeps, n_features), np.uint8),
    )
    fields = rows.fields + rows.log_odds - base  # of log p(z, x) / q(z) instead of log p(x | z)

    _walk(fields, rows.couplings, rows.pattern, base, *numbers, n_steps, first_row, *found)
    base_all_off = -np.logaddexp(0.0, base).sum(axis=1)
    log_weights = found.log_weights + rows.constant + rows.log_all_off - base_all_off
    return Walk(log_weights, found.activation / max(n_sweeps, 1), found.states)


def _numbers(
    seed: int, partners: np.ndarray, n_streams: int, n_steps: int, n_sweeps: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random numbers of a walk for each stream S.

    Logistic ones (S, single sweeps and the start, K), Gumbel ones (S, pair sweeps, K, 4), and the
    partner with which each feature is redrawn (S, pair sweeps, K).
    """
    rng = np.random.default_rng(seed)
    n_features, n_partners = partners.shape
    n_pairs = n_steps // 2 + n_sweeps if n_partners else 0
    n_single = 1 + n_steps + 2 * n_sweeps - n_pairs
    choice = rng.integers(max(n_partners, 1), size=(n_streams, n_pairs, n_features))
    logistic = rng.logistic(size=(n_streams, n_single, n_features))
    gumbel = rng.gumbel(size=(n_streams, n_pairs, n_features, 4))
    return logistic, gumbel, partners[np.arange(n_features), choice] if n_pairs else choice


# ---------------------------------------------------------------- moves of one row
#
# ``local[k]`` is what switching feature k on adds to the log-likelihood, given the others. It is
# updated at every flip, so a sweep costs O(K) plus O(K) per flip. Random numbers are drawn
# beforehand: logistic ones, which are below a feature's log odds with its probability, and Gumbel
# ones, which added to log weights make each the largest with probability proportional to its
# weight. Neither needs an exponential, and rows may share them.


@njit()
def sweep(z, local, coupling, log_odds, power, logistic, mean):
    """One Gibbs sweep over the features of a row; returns the change of the log-likelihood.

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
    """Redraw every feature together with a partner, from their four joint states; like `sweep`.

    Single flips cannot exchange a feature for a similar one, nor switch on two that cancel.
    Partners are drawn independently of z, which keeps the target invariant.
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
    return sign * local[k]  # local[k] has not changed: the diagonal is zero


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
    for k in range(len(field)):  # array expressions take a second longer to compile
        weight[k] = 1.0 / (1.0 + np.exp(-log_odds[k]))
    variance = 0.0
    for k in range(len(field)):
        slope, pairs = field[k], 0.0
        for j in range(len(field)):
            slope -= coupling[k, j] * weight[j]
            pairs += coupling[k, j] ** 2 * weight[j] * (1.0 - weight[j])
        variance += weight[k] * (1.0 - weight[k]) * (slope**2 + 0.5 * pairs)
    return np.sqrt(variance) + 1e-12


# ---------------------------------------------------------------- walks of all rows


@njit()
def _walk(
    fields,
    couplings,
    pattern,
    base,
    logistic,
    gumbel,
    partner,
    n_steps,
    first_row,
    log_weights,
    activation,
    states,
):
    n_features, in_pairs = fields.shape[1], gumbel.shape[1] > 0
    z, local, unseen = np.empty(n_features, np.uint8), np.empty(n_features), np.empty(0)
    for n in range(len(fields)):
        coupling, odds = couplings[pattern[n]], base[n % len(base)]
        s = (first_row + n) % len(logistic)
        value, power, single, pair = 0.0, 0.0, 1, 0
        for k in range(n_features):
            z[k], local[k] = 0, fields[n, k]
        for k in range(n_features):
            if odds[k] > logistic[s, 0, k]:
                value += flip(k, z, local, coupling)
        scale = prior_spread(fields[n], coupling, odds)
        for step in range(1, n_steps + 1):
            before = power
            power = power_at(step, n_steps, scale)
            log_weights[n] += (power - before) * value
            if step % 2 == 0 and in_pairs:
                value += pair_sweep(
                    z, local, coupling, odds, power, gumbel[s, pair], partner[s, pair]
                )
                pair += 1
            else:
                value += sweep(z, local, coupling, odds, power, logistic[s, single], unseen)
                single += 1
        for step in range(states.shape[1]):
            if in_pairs:
                pair_sweep(z, local, coupling, odds, 1.0, gumbel[s, pair], partner[s, pair])
                pair += 1
            sweep(z, local, coupling, odds, 1.0, logistic[s, single], activation[n])
            single += 1
            for k in range(n_features):
                states[n, step, k] = z[k]


def annealed_evidence(
    rows: RowFields, seed: int, n_steps: int = 100, n_walks: int = 5, first_row: int = 0
) -> np.ndarray:
    """Estimate log p(x) of every row, (N,), by the mean weight of several walks."""
    base = choose_base(rows, seed, first_row)
    log_weights = [
        walk(rows, derived_seed(seed, RUNS + i), n_steps, base=base, first_row=first_row)[0]
        for i in range(n_walks)
    ]
    return logsumexp(log_weights, axis=0) - np.log(n_walks)


def choose_base(rows: RowFields, seed: int, first_row: int = 0) -> np.ndarray:
    """Log odds (N, K) of the base of each row: of the walks if they agree, else of the prior."""
    runs = [
        walk(rows, derived_seed(seed, i), RUN_STEPS, RUN_SWEEPS, first_row=first_row).activation
        for i in range(RUNS)
    ]
    agree = np.ptp(runs, axis=0).max(axis=1, initial=0.0) < AGREE
    lowest = 1.0 / (1.0 + np.exp(MOST_CERTAIN))
    warm = logit(np.clip(np.mean(runs, axis=0), lowest, 1.0 - lowest))
    return np.where(agree[:, None], warm, rows.log_odds)
