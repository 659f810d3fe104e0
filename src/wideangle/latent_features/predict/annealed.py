r"""Evidence of new rows with many features, by annealed importance sampling.

The sum over z in :math:`p(x) = \sum_z p(z) p(x \mid z)` has 2^K terms. Annealed importance
sampling (Neal, 2001) draws z from independent Bernoulli distributions q, the base, and moves it by
Gibbs sweeps, over features and pairs of them in turn, along :math:`q(z)^{1-\beta} p(z, x)^\beta`,
with powers :math:`0 = \beta_0 < \dots < \beta_T = 1`,

.. math:: \log w = \sum_{t=1}^{T} (\beta_t - \beta_{t-1}) \log \frac{p(z_{t-1}, x)}{q(z_{t-1})}.

The mean of w over particles is unbiased for p(x), whatever the base and the powers, as long as
they do not depend on the particles; its logarithm is a lower bound of log p(x) in expectation.

The prior of z is a safe base, but far from the posterior when features are many. Activations of
short Gibbs runs are a close one when the row has one mode, and useless when a run was caught in a
minor one. So they are the base of rows for which several runs from the prior, with random numbers
of their own, end in the same place; w stays unbiased.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logit, logsumexp

from wideangle.latent_features.parallel import derived_seed, over_rows, stream
from wideangle.latent_features.predict.held_out import RowFields, gibbs_rows
from wideangle.latent_features.predict.moves import (
    pair_sweep,
    power_at,
    prior_spread,
    start_from_prior,
    sweep,
)
from wideangle.machine_code import njit

MOST_CERTAIN = 5.0
"""Largest log odds of a base: a feature that no Gibbs run saw keeps a chance."""
RUNS, RUN_WARMUP, RUN_SWEEPS = 4, 25, 10
"""Gibbs runs whose activations are compared, and their lengths."""
AGREE = 0.5
"""Largest difference between activations of runs that ended in the same place."""


def annealed_evidence(
    rows: RowFields,
    seed: int,
    n_temperatures: int = 100,
    n_particles: int = 5,
    first_row: int = 0,
) -> np.ndarray:
    """Estimate log p(x) of every row, (N,).

    Parameters
    ----------
    rows
        See :func:`~wideangle.latent_features.predict.held_out.row_fields`.
    seed
        Whole number; with the number of the row it decides every random choice.
    n_temperatures, n_particles
        Powers of the path, and independent repeats along it.
    first_row
        Number of the first row, for rows that come in chunks.
    """
    base = choose_base(rows, seed, first_row)
    log_weights = annealed_weights(
        rows, base, derived_seed(seed, 0), n_temperatures, n_particles, first_row
    )
    return logsumexp(log_weights, axis=1) - np.log(n_particles)


def choose_base(rows: RowFields, seed: int, first_row: int = 0) -> np.ndarray:
    """Log odds (N, K) of the base of each row: of Gibbs runs where they agree, else the prior's."""
    runs = [
        gibbs_rows(rows, derived_seed(seed, 1 + run), RUN_SWEEPS, RUN_WARMUP, first_row)[0]
        for run in range(RUNS)
    ]
    agree = np.ptp(runs, axis=0).max(axis=1, initial=0.0) < AGREE
    lowest = 1.0 / (1.0 + np.exp(MOST_CERTAIN))
    warm = logit(np.clip(np.mean(runs, axis=0), lowest, 1.0 - lowest))
    return np.where(agree[:, None], warm, rows.log_odds)


def annealed_weights(
    rows: RowFields,
    base: np.ndarray,
    seed: Any,
    n_temperatures: int,
    n_particles: int,
    first_row: int = 0,
) -> np.ndarray:
    """Log weights of every particle, (N, n_particles); the exponential of each has mean p(x).

    ``base``: log odds (N, K) of the Bernoulli distributions from which particles start.
    """
    n_rows, n_features = rows.fields.shape
    log_weights = np.zeros((n_rows, n_particles))
    fields = rows.fields + rows.log_odds - base  # of log p(z, x) / q(z) instead of log p(x | z)

    def kernel(first: int, last: int) -> None:
        _anneal(
            fields,
            rows.couplings,
            rows.pattern,
            base,
            rows.partners,
            np.uint64(seed),
            first_row,
            n_temperatures,
            log_weights,
            first,
            last,
        )

    over_rows(kernel, n_rows, n_rows * n_features * n_temperatures * n_particles)
    base_all_off = -np.logaddexp(0.0, base).sum(axis=1)
    return log_weights + (rows.constant + rows.log_all_off - base_all_off)[:, None]


@njit()
def _anneal(
    fields,
    couplings,
    pattern,
    base,
    partners,
    seed,
    first_row,
    n_temperatures,
    log_weights,
    first,
    last,
):
    n_features = fields.shape[1]
    z, local = np.empty(n_features, np.uint8), np.empty(n_features)
    unused = np.zeros(n_features)
    for n in range(first, last):
        coupling = couplings[pattern[n]]
        state = stream(seed, first_row + n)
        scale = prior_spread(fields[n], coupling, base[n])
        for particle in range(log_weights.shape[1]):
            state, value = start_from_prior(z, local, fields[n], coupling, base[n], state)
            power = 0.0
            for step in range(1, n_temperatures + 1):
                before = power
                power = power_at(step, n_temperatures, scale)
                log_weights[n, particle] += (power - before) * value
                if step % 2 == 0 and partners.shape[1] > 0:
                    state, gain = pair_sweep(z, local, coupling, base[n], power, state, partners)
                else:
                    state, gain = sweep(z, local, coupling, base[n], power, state, unused)
                value += gain
