r"""New rows of the latent feature model: activation and evidence, feature by feature.

Given features :math:`W`, weights :math:`\mu` and noise variance :math:`\sigma^2`, a row
:math:`x = z W + \varepsilon` enters only through its products :math:`v = W x` and its energy
:math:`|x|^2`. Its joint density is a quadratic function of the binary vector z,

.. math::
    \log p(x, z) = c + \sum_k z_k (o_k + f_k) - \tfrac12 \sum_{j \ne k} z_j z_k C_{jk},

with log odds :math:`o_k = \log \mu_k / (1 - \mu_k)`, fields
:math:`f_k = (v_k - G_{kk}/2) / \sigma^2` and couplings :math:`C = G / \sigma^2`, where
:math:`G = W W^\top`. Entries that are missing leave the sums behind v and G, so a row with missing
entries has its own fields and couplings and nothing else changes. The row itself is never needed.

Rows are independent. Each has its own stream of random numbers, or all have the same one; either
way results do not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wideangle.latent_features.parallel import over_rows, stream
from wideangle.latent_features.predict.moves import (
    pair_sweep,
    partners_of,
    power_at,
    prior_spread,
    start_from_prior,
    sweep,
)
from wideangle.latent_features.state import Draw
from wideangle.machine_code import njit

_SMALLEST = 1e-15
"""Weights are kept this far from 0 and 1, where log odds are infinite."""


class RowFields(NamedTuple):
    """The quadratic function of z of every row; see the module's equation."""

    fields: np.ndarray
    """(N, K): log-likelihood gained by switching on one feature alone."""
    couplings: np.ndarray
    """(P, K, K), zero diagonal: one for every pattern of missing entries."""
    pattern: np.ndarray
    """(N,): which of the couplings belongs to a row."""
    log_odds: np.ndarray
    """(K,): of the prior probability of a feature."""
    partners: np.ndarray
    """(K, M): features that are redrawn together with each."""
    constant: np.ndarray
    """(N,): log-likelihood of the row with every feature off."""

    @property
    def log_all_off(self) -> float:
        """Log prior probability that no feature is on."""
        return -float(np.sum(np.logaddexp(0.0, self.log_odds)))


def row_fields(
    draw: Draw,
    products: Any,
    energy: Any,
    grams: Any,
    pattern: Any = None,
    n_observed: Any = None,
) -> RowFields:
    """Fields of rows from their products with the features.

    Parameters
    ----------
    draw
        Features, weights and noise variance.
    products
        (N, K): sum over observed entries of x_nd w_kd.
    energy
        (N,): sum over observed entries of x_nd^2.
    grams
        (K, K), or (P, K, K) for P patterns of missing entries: sums over observed entries.
    pattern
        (N,): the pattern of every row; not needed when there is only one.
    n_observed
        (N,) number of observed entries; all of them when left out.
    """
    products = np.asarray(products, np.float64)
    couplings = np.array(grams, np.float64, ndmin=3) / draw.noise_variance
    n_rows, n_features = products.shape
    pattern = np.zeros(n_rows, np.int64) if pattern is None else np.asarray(pattern, np.int64)
    n_observed = draw.vectors.shape[1] if n_observed is None else np.asarray(n_observed)
    diagonal = np.arange(n_features)
    half = couplings[:, diagonal, diagonal] / 2.0
    couplings[:, diagonal, diagonal] = 0.0
    weights = np.clip(np.asarray(draw.weights, np.float64), _SMALLEST, 1.0 - _SMALLEST)
    noise = draw.noise_variance
    constant = -0.5 * np.asarray(energy, np.float64) / noise
    return RowFields(
        fields=products / noise - half[pattern],
        couplings=couplings,
        pattern=pattern,
        log_odds=np.log(weights) - np.log1p(-weights),
        partners=partners_of(np.asarray(draw.vectors, np.float64)),
        constant=constant - 0.5 * n_observed * np.log(2.0 * np.pi * noise),
    )


def gibbs_rows(
    rows: RowFields,
    seed: Any,
    n_sweeps: int = 20,
    n_warmup: int = 10,
    first_row: int = 0,
    *,
    shared: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Estimate :math:`p(z_k = 1 \mid x)` by Gibbs sweeps over pairs of features, then over each.

    z starts from its prior. During the warm-up the likelihood is raised to a power that grows
    to 1, which keeps rows from settling in the first mode they meet.

    Parameters
    ----------
    rows
        See :func:`row_fields`.
    seed
        Whole number; with the number of the row it decides every random choice.
    n_sweeps, n_warmup
        Sweeps that count, and sweeps before them.
    first_row
        Number of the first row, for rows that come in chunks.
    shared
        Use the same random numbers for every row. What is found for a row then does not depend on
        the rows around it, as is expected of a transformer; errors of different rows go together.

    Returns
    -------
    activation, states
        (N, K): mean over sweeps of the conditional probabilities (Rao-Blackwellised), and
        (N, n_sweeps, K) of 0 and 1: z after every counted sweep.
    """
    n_rows, n_features = rows.fields.shape
    activation = np.zeros((n_rows, n_features))
    states = np.empty((n_rows, n_sweeps, n_features), np.uint8)

    def kernel(first: int, last: int) -> None:
        stride = 0 if shared else 1
        _gibbs(
            *rows[:5],
            np.uint64(seed),
            first_row * stride,
            stride,
            n_warmup,
            activation,
            states,
            first,
            last,
        )

    over_rows(kernel, n_rows, n_rows * n_features * (n_sweeps + n_warmup))
    return activation / n_sweeps, states


@njit()
def _gibbs(
    fields,
    couplings,
    pattern,
    log_odds,
    partners,
    seed,
    first_row,
    stride,
    n_warmup,
    activation,
    states,
    first,
    last,
):
    n_features = fields.shape[1]
    z, local = np.empty(n_features, np.uint8), np.empty(n_features)
    unused = np.zeros(n_features)
    for n in range(first, last):
        coupling = couplings[pattern[n]]
        state = stream(seed, first_row + stride * n)
        state, _ = start_from_prior(z, local, fields[n], coupling, log_odds, state)
        scale = prior_spread(fields[n], coupling, log_odds)
        for step in range(n_warmup + states.shape[1]):
            counts = step >= n_warmup
            power = 1.0 if counts else power_at(step + 1, n_warmup, scale)
            if partners.shape[1] > 0:
                state, _ = pair_sweep(z, local, coupling, log_odds, power, state, partners)
            mean = activation[n] if counts else unused
            state, _ = sweep(z, local, coupling, log_odds, power, state, mean)
            if counts:
                states[n, step - n_warmup] = z
