r"""New rows under posterior draws of the latent feature model: scores, activations, means.

Every function takes a list of :class:`~wideangle.latent_features.state.Draw`, rows (N, D), dense or
sparse with NaN for a missing entry, a seed that determines every random choice, and an offset (D,)
that is subtracted from every row. Rows are in the units of the draws: a caller that centred or
scaled the training rows does the same to these, and shifts log densities by the logarithm of the
scale. Rows come in chunks, which bound memory, and neither chunks nor threads change a result.
Activations and means of a row do not depend on the other rows either; for scores, rows take several
sets of random numbers in turn, so that errors cancel.

Features that no training row has are left out: a new row would have :math:`\alpha / (N + 1)` of
them on average, with N training rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import logsumexp

from wideangle.latent_features.fields import RowFields, enumerate_rows, over_draws
from wideangle.latent_features.importance import annealed_evidence, walk
from wideangle.latent_features.posterior import DrawsOfChains
from wideangle.latent_features.state import Draw
from wideangle.machine_code import njit
from wideangle.posterior import evenly
from wideangle.stacking import stack

STEPS, SWEEPS = 20, 20
"""Steps of a walk, and sweeps at its end, for rows with too many features to enumerate."""
FEW_SWEEPS, SWEEPS_OF_ALL = 5, 125
"""For means over draws: fewest sweeps of a draw, and sweeps of all draws together."""
ENUMERATED = 10
"""Most features for which all states of a row are visited, which is exact."""
HIDDEN_SHARE, MOST_HIDDEN = 0.05, 4000
"""Hidden entries: share of the observed ones, and largest number."""
STACK_DRAWS = 10
"""Number of draws that a chain's score is averaged over."""


class EntryScores(NamedTuple):
    """Predictions of hidden entries, offset subtracted, in the order of ``numpy.nonzero(mask)``."""

    mean: np.ndarray
    log_density: np.ndarray


def log_likelihood(
    draws: Sequence[Draw], rows: Any, seed: int, *, offset: Any = None
) -> np.ndarray:
    r"""Log density of each row under the posterior, its assignments summed out, (N,).

    .. math:: \log \frac1S \sum_s p(x \mid W_s, \mu_s, \sigma_s), \qquad
              p(x \mid W, \mu, \sigma) = \sum_z p(z \mid \mu) N(x; z W, \sigma^2 I).

    The sum over z is exact up to :data:`ENUMERATED` features; beyond, it is estimated by annealed
    importance sampling, which is biased downwards, less so with more steps. The best z, or a
    posterior draw of z, in place of the sum would reward models with more features. Missing entries
    (NaN) are integrated out. Features of no training row are ignored.
    """
    by_draw = np.empty((len(draws), rows.shape[0]))

    def fill(span: slice, s: int, fields: RowFields, seed: int) -> None:
        if len(fields.log_odds) <= ENUMERATED:
            by_draw[s, span] = enumerate_rows(fields)[0]
        else:
            by_draw[s, span] = annealed_evidence(fields, seed, first_row=span.start)

    over_draws(fill, draws, rows, seed, offset)
    return logsumexp(by_draw, axis=0) - np.log(len(draws))


def activation(
    draws: Sequence[Draw], index: np.ndarray, rows: Any, seed: int, *, offset: Any = None
) -> np.ndarray:
    """Posterior probability that each row has each component, (N, number of components).

    ``index`` (draws, components) says which feature of a draw is which component, -1 for none
    (see :func:`~wideangle.latent_features.posterior.match`). A component is averaged over the
    draws that have it. All features of a draw are sampled, not only components.
    """
    index = np.asarray(index)
    total = np.zeros((rows.shape[0], index.shape[1]))

    def add(span: slice, s: int, fields: RowFields, seed: int) -> None:
        found = np.flatnonzero(index[s] >= 0)
        total[span, found] += _activations(fields, seed, len(draws))[:, index[s, found]]

    over_draws(add, draws, rows, seed, offset)
    return total / np.maximum((index >= 0).sum(axis=0), 1)


def expected_rows(draws: Sequence[Draw], rows: Any, seed: int, *, offset: Any = None) -> np.ndarray:
    """Posterior mean of z W of each row, (N, D): rows without noise and offset, gaps filled in."""
    result = np.zeros(rows.shape)

    def add(span: slice, s: int, fields: RowFields, seed: int) -> None:
        means = _activations(fields, seed, len(draws))
        result[span] += means @ np.asarray(draws[s].vectors, np.float64) / len(draws)

    over_draws(add, draws, rows, seed, offset)
    return result


def _activations(fields: RowFields, seed: int, n_draws: int) -> np.ndarray:
    """p(z = 1 | x) of some rows in one of several draws, (N, K); exact where that is cheap."""
    if len(fields.log_odds) <= ENUMERATED:
        return enumerate_rows(fields)[1]
    # Errors of draws cancel in the mean over them.
    n_sweeps = int(np.clip(-(-SWEEPS_OF_ALL // n_draws), FEW_SWEEPS, SWEEPS))
    return walk(fields, seed, STEPS, n_sweeps, n_streams=1).activation


def sample_rows(draw: Draw, n_rows: int, rng: np.random.Generator) -> np.ndarray:
    """New rows (n_rows, D) from one draw; features of no training row are left out."""
    vectors = np.asarray(draw.vectors, np.float64)
    z = rng.random((n_rows, len(vectors))) < np.asarray(draw.weights)
    noise = rng.standard_normal((n_rows, vectors.shape[1]))
    return z.astype(np.float64) @ vectors + np.sqrt(draw.noise_variance) * noise


def score_entries(
    draws: Sequence[Draw], rows: Any, mask: Any, seed: int, *, offset: Any = None
) -> EntryScores:
    r"""Predict hidden entries of rows from the other entries of the same row.

    .. math:: p(x_{nd} \mid x_{n, obs}) \approx \frac1{SR} \sum_{s, r} N(x_{nd}; z_{nsr} w_{sd},
              \sigma_s^2), \qquad z_{nsr} \sim p(z \mid x_{n, obs}, W_s, \mu_s, \sigma_s),

    one entry at a time. It is a fair comparison of settings: neither training nor the assignments
    used these entries, and extra features as such bring no gain. ``mask``, (N, D) of bool, dense or
    sparse, marks the hidden entries; NaN entries outside it are missing and not predicted.
    """
    rows = sparse.csr_matrix(rows) if sparse.issparse(rows) else np.asarray(rows)
    places = places_of(mask)
    starts = np.searchsorted(places[0], np.arange(rows.shape[0] + 1))
    truth = np.asarray(rows[places], np.float64).ravel()
    base = np.zeros(len(truth)) if offset is None else np.asarray(offset, np.float64)[places[1]]
    mean, log_density = np.zeros(len(truth)), np.full(len(truth), -np.inf)

    def add(span: slice, s: int, fields: RowFields, seed: int) -> None:
        spans = starts[span.start : span.stop + 1]
        _, means, states = walk(fields, seed, STEPS, SWEEPS, first_row=span.start)
        if len(fields.log_odds) <= ENUMERATED:
            means = enumerate_rows(fields)[1]
        columns = np.ascontiguousarray(np.asarray(draws[s].vectors, np.float64).T)
        given = means, states, columns, draws[s].noise_variance, spans, places[1], truth - base
        _entries(*given, mean, log_density)

    over_draws(add, draws, rows, seed, offset, mask)
    total = len(draws) * SWEEPS
    return EntryScores(mean / len(draws), log_density - np.log(total))


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


def places_of(mask: Any) -> tuple[np.ndarray, np.ndarray]:
    """Places of true entries, row by row."""
    if sparse.issparse(mask):
        mask = sparse.csr_matrix(mask, dtype=bool, copy=True)
        mask.sum_duplicates()
        mask.eliminate_zeros()
        mask.sort_indices()
        return np.repeat(np.arange(mask.shape[0]), np.diff(mask.indptr)), mask.indices
    return np.nonzero(np.asarray(mask))


# ---------------------------------------------------------------- weights of chains


def hide(X: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Entries from which chain weights are learned, and the rows without them."""
    if sparse.issparse(X):
        raise ValueError(
            "inference.combine='stacking': entries are hidden from the fit as missing, for "
            "which rows must be dense; use X.toarray() or combine='equal'."
        )
    hidden = hidden_entries(X, seed)
    return hidden, np.where(hidden, np.nan, X)


def hidden_entries(X: np.ndarray, seed: int) -> np.ndarray:
    """Which entries of dense rows (N, D) to hide, at random among the observed ones."""
    places = np.flatnonzero(~np.isnan(X))
    n_hidden = min(int(np.ceil(HIDDEN_SHARE * len(places))), MOST_HIDDEN)
    chosen = np.random.default_rng((seed, 0x57AC)).choice(places, n_hidden, replace=False)
    mask = np.zeros(X.shape, bool)
    mask.flat[chosen] = True
    return mask


def chain_weights(
    chains: DrawsOfChains, rows: Any, mask: np.ndarray, seed: int, offset: Any
) -> np.ndarray:
    """Weights of the chains that best predict the hidden entries of ``rows``."""
    scores = []
    for members in chains.members:
        some = [chains.draws[i] for i in members[evenly(len(members), STACK_DRAWS)]]
        scores.append(score_entries(some, rows, mask, seed, offset=offset).log_density)
    return stack(np.array(scores))
