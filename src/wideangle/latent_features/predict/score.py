r"""New rows under posterior draws of the latent feature model: scores, activations, means.

Every function takes a list of :class:`~wideangle.latent_features.state.Draw` and
rows in the units of the draws; a caller that centred or scaled the training rows does the same
here, and shifts log densities by the logarithm of the scale. Rows come in chunks, so memory does
not grow with N, and neither chunks nor threads change a result. Activations and means of a row do
not depend on the rows around it either; scores, whose errors should cancel, have random numbers of
their own by row.

Features that no training row has are left out: a new row would have :math:`\alpha / (N + 1)` of
them on average, with N training rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import logsumexp

from wideangle.latent_features.parallel import derived_seed
from wideangle.latent_features.predict.annealed import annealed_evidence
from wideangle.latent_features.predict.enumerated import MAX_ENUMERATED, enumerate_rows
from wideangle.latent_features.predict.held_out import RowFields, gibbs_rows
from wideangle.latent_features.predict.partial import partial_rows
from wideangle.latent_features.state import Draw
from wideangle.machine_code import njit

SWEEPS = 20
"""Gibbs sweeps that count, for rows with too many features to enumerate."""
FEW_SWEEPS, SWEEPS_OF_ALL = 5, 125
"""Sweeps of a draw at least, and of all draws together, where means over draws are wanted."""
WARMUP = 10
CHEAP = 10
"""Features up to which all states of a row cost little more than the sweeps, and are exact."""


class EntryScores(NamedTuple):
    """Predictions of hidden entries, in the order of ``numpy.nonzero(mask)``."""

    mean: np.ndarray
    log_density: np.ndarray


def log_likelihood(
    draws: Sequence[Draw],
    rows: Any,
    seed: int,
    *,
    offset: Any = None,
    n_temperatures: int = 100,
    n_particles: int = 5,
    max_enumerated: int = MAX_ENUMERATED,
) -> np.ndarray:
    r"""Log density of each row under the posterior, its assignments summed out, (N,).

    .. math:: \log \frac1S \sum_s p(x \mid W_s, \mu_s, \sigma_s), \qquad
              p(x \mid W, \mu, \sigma) = \sum_z p(z \mid \mu) N(x; z W, \sigma^2 I).

    The sum over z is exact up to ``max_enumerated`` features; beyond, it is estimated by annealed
    importance sampling, which errs downwards, the less the more temperatures. The best z, or a
    posterior draw of z, in place of the sum would reward features for being many. Missing
    entries (NaN) are integrated out. Features of no training row are ignored.

    Parameters
    ----------
    draws
        Posterior draws, each with its own number of features.
    rows
        (N, D), dense or sparse; NaN is a missing entry.
    seed
        Whole number that decides every random choice.
    offset
        (D,): subtracted from every row.
    n_temperatures, n_particles
        See :func:`~wideangle.latent_features.predict.annealed.annealed_evidence`.
    max_enumerated
        Number of features up to which all states are visited.
    """

    def evidence(fields: RowFields, draw_seed: int, first: int) -> np.ndarray:
        if len(fields.log_odds) <= max_enumerated:
            return enumerate_rows(fields)[0]
        return annealed_evidence(fields, draw_seed, n_temperatures, n_particles, first)

    result = np.empty(rows.shape[0])
    for chunk in partial_rows(rows, _most_features(draws), offset):
        by_draw = [
            evidence(chunk.fields(draw), _seed(seed, s), chunk.first)
            for s, draw in enumerate(draws)
        ]
        last = chunk.first + chunk.rows.n_rows
        result[chunk.first : last] = logsumexp(by_draw, axis=0) - np.log(len(draws))
    return result


def activation(
    draws: Sequence[Draw],
    index: np.ndarray,
    rows: Any,
    seed: int,
    *,
    offset: Any = None,
    n_sweeps: int | None = None,
    n_warmup: int = WARMUP,
) -> np.ndarray:
    """Posterior probability that each row has each component, (N, number of components).

    ``index`` (draws, components) says which feature of a draw is which component, -1 for none
    (see :func:`~wideangle.latent_features.posterior.match`). A component is averaged over the
    draws that have it. All features of a draw are sampled, not only components.
    """
    index = np.asarray(index)
    n_sweeps = _sweeps_for(draws) if n_sweeps is None else n_sweeps
    total = np.zeros((rows.shape[0], index.shape[1]))
    for chunk in partial_rows(rows, _most_features(draws), offset):
        part = total[chunk.first : chunk.first + chunk.rows.n_rows]
        for s, draw in enumerate(draws):
            found = np.flatnonzero(index[s] >= 0)
            if len(found):
                fields = chunk.fields(draw)
                means = _activation(fields, _seed(seed, s), n_sweeps, n_warmup)
                part[:, found] += means[:, index[s, found]]
    return total / np.maximum((index >= 0).sum(axis=0), 1)


def expected_rows(
    draws: Sequence[Draw],
    rows: Any,
    seed: int,
    *,
    offset: Any = None,
    n_sweeps: int | None = None,
    n_warmup: int = WARMUP,
) -> np.ndarray:
    """Posterior mean of z W + offset of each row, (N, D): rows without noise, gaps filled in."""
    dim = rows.shape[1]
    n_sweeps = _sweeps_for(draws) if n_sweeps is None else n_sweeps
    result = np.zeros((rows.shape[0], dim)) + (0.0 if offset is None else np.asarray(offset))
    for chunk in partial_rows(rows, _most_features(draws), offset):
        part = result[chunk.first : chunk.first + chunk.rows.n_rows]
        for s, draw in enumerate(draws):
            fields = chunk.fields(draw)
            means = _activation(fields, _seed(seed, s), n_sweeps, n_warmup)
            part += means @ np.asarray(draw.vectors, np.float64) / len(draws)
    return result


def sample_rows(draw: Draw, n_rows: int, rng: np.random.Generator) -> np.ndarray:
    """New rows (n_rows, D) from one draw; features of no training row are left out."""
    vectors = np.asarray(draw.vectors, np.float64)
    z = rng.random((n_rows, len(vectors))) < np.asarray(draw.weights)
    noise = rng.standard_normal((n_rows, vectors.shape[1]))
    return z.astype(np.float64) @ vectors + np.sqrt(draw.noise_variance) * noise


def score_entries(
    draws: Sequence[Draw],
    rows: Any,
    mask: Any,
    seed: int,
    *,
    offset: Any = None,
    n_sweeps: int = SWEEPS,
    n_warmup: int = WARMUP,
) -> EntryScores:
    r"""Predict hidden entries of rows from the other entries of the same row.

    .. math:: p(x_{nd} \mid x_{n, obs}) \approx \frac1{SR} \sum_{s, r} N(x_{nd}; z_{nsr} w_{sd},
              \sigma_s^2), \qquad z_{nsr} \sim p(z \mid x_{n, obs}, W_s, \mu_s, \sigma_s),

    one entry at a time. Comparing settings by it is honest: the entries were seen neither in
    training nor by the assignments, and more features bring no gain by themselves.

    Parameters
    ----------
    draws, rows, seed, offset
        As for :func:`log_likelihood`; NaN entries outside the mask are missing and not predicted.
    mask
        (N, D) of bool, dense or sparse: the hidden entries.
    n_sweeps, n_warmup
        Gibbs sweeps that count, and before them.
    """
    rows = sparse.csr_matrix(rows) if sparse.issparse(rows) else np.asarray(rows)
    places = _nonzero(mask)
    starts = np.searchsorted(places[0], np.arange(rows.shape[0] + 1))
    truth = np.asarray(rows[places], np.float64).ravel()
    base = np.zeros(len(truth)) if offset is None else np.asarray(offset, np.float64)[places[1]]
    mean, log_density = np.zeros(len(truth)), np.full(len(truth), -np.inf)
    for chunk in partial_rows(rows, _most_features(draws), offset, hidden=mask):
        n_rows = chunk.rows.n_rows
        spans = starts[chunk.first : chunk.first + n_rows + 1]
        for s, draw in enumerate(draws):
            fields = chunk.fields(draw)
            means, states = gibbs_rows(fields, _seed(seed, s), n_sweeps, n_warmup, chunk.first)
            if len(fields.log_odds) <= CHEAP:
                means = enumerate_rows(fields)[1]
            columns = np.ascontiguousarray(np.asarray(draw.vectors, np.float64).T)
            noise = draw.noise_variance
            _entries(
                means, states, columns, noise, spans, places[1], truth - base, mean, log_density
            )
    total = len(draws) * n_sweeps
    return EntryScores(base + mean / len(draws), log_density - np.log(total))


@njit()
def _entries(means, states, columns, noise, spans, where, truth, mean, log_density):
    """Add one draw's predictions; ``columns`` is (D, K), ``spans`` the entries of each row."""
    constant = -0.5 * np.log(2.0 * np.pi * noise)
    for n in range(len(means)):
        for i in range(spans[n], spans[n + 1]):
            weights = columns[where[i]]
            for k in range(len(weights)):
                mean[i] += means[n, k] * weights[k]
            for sweep in range(states.shape[1]):
                centre = 0.0
                for k in range(len(weights)):
                    centre += states[n, sweep, k] * weights[k]
                new = constant - 0.5 * (truth[i] - centre) ** 2 / noise
                high, low = max(new, log_density[i]), min(new, log_density[i])
                log_density[i] = high + np.log1p(np.exp(low - high))


def _activation(fields: RowFields, seed: int, n_sweeps: int, n_warmup: int) -> np.ndarray:
    """p(z = 1 | x), exactly where that is cheap."""
    if len(fields.log_odds) <= CHEAP:
        return enumerate_rows(fields)[1]
    return gibbs_rows(fields, seed, n_sweeps, n_warmup, shared=True)[0]


def _sweeps_for(draws: Sequence[Draw]) -> int:
    """Sweeps that count for each draw: their errors cancel in the mean over draws."""
    return int(np.clip(-(-SWEEPS_OF_ALL // len(draws)), FEW_SWEEPS, SWEEPS))


def _most_features(draws: Sequence[Draw]) -> int:
    return max(len(draw.weights) for draw in draws)


def _seed(seed: int, draw: int) -> int:
    return int(derived_seed(seed, draw))


def _nonzero(mask: Any) -> tuple[np.ndarray, np.ndarray]:
    """Places of true entries, row by row."""
    if sparse.issparse(mask):
        mask = sparse.csr_matrix(mask, dtype=bool, copy=True)
        mask.sum_duplicates()
        mask.eliminate_zeros()
        mask.sort_indices()
        return np.repeat(np.arange(mask.shape[0]), np.diff(mask.indptr)), mask.indices
    return np.nonzero(np.asarray(mask))
