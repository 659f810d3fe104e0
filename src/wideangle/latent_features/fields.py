r"""New rows of the latent feature model as functions of their assignments.

Given features :math:`W`, weights :math:`\mu` and noise variance :math:`\sigma^2`, a row
:math:`x = z W + \varepsilon` enters only through its products :math:`v = W x` and its energy
:math:`|x|^2`. Its joint density is a quadratic function of the binary vector z,

.. math::
    \log p(x, z) = c + \sum_k z_k (o_k + f_k) - \tfrac12 \sum_{j \ne k} z_j z_k C_{jk},

with log odds :math:`o_k = \log \mu_k / (1 - \mu_k)`, fields :math:`f_k = (v_k - G_{kk}/2) /
\sigma^2` and couplings :math:`C = G / \sigma^2`, where :math:`G = W W^\top`. A missing entry is
left out of the sums in v and G, and nothing else changes. Rows with the same missing entries share
their couplings, so only distinct patterns cost memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from threadpoolctl import threadpool_limits

from wideangle.latent_features.memory import MemoryRows
from wideangle.latent_features.rows import has_gaps
from wideangle.latent_features.state import Draw
from wideangle.machine_code import in_ranges
from wideangle.types import as_dense

CHUNK_BYTES, CHUNK_ROWS = 64 * 2**20, 512
"""Largest memory of each array of a chunk (its rows, products, Gram matrices), and most rows."""
N_PARTNERS = 6
"""Number of partners with which a feature may be redrawn: those of largest absolute cosine."""
_SMALLEST = 1e-15
"""Weights are kept this far from 0 and 1, where log odds are infinite."""
_NOTHING = np.empty(0, np.int64)


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
    """(K, M): partners with which each feature may be redrawn."""
    constant: np.ndarray
    """(N,): log-likelihood of the row with every feature off."""

    @property
    def log_all_off(self) -> float:
        """Log prior probability that no feature is on."""
        return -float(np.sum(np.logaddexp(0.0, self.log_odds)))


def enumerate_rows(rows: RowFields) -> tuple[np.ndarray, np.ndarray]:
    r"""Exact :math:`\log p(x)`, (N,), and :math:`p(z_k = 1 \mid x)`, (N, K), by all 2^K states."""
    n_features = rows.fields.shape[1]
    states = (np.arange(2**n_features)[:, None] >> np.arange(n_features) & 1).astype(np.float64)
    first, second = np.triu_indices(n_features, 1)
    shared = rows.couplings[:, first, second] @ (states[:, first] * states[:, second]).T
    values = (rows.fields + rows.log_odds) @ states.T - shared[rows.pattern]
    top = values.max(axis=1)
    masses = np.exp(values - top[:, None])
    total = masses.sum(axis=1)
    log_density = rows.constant + rows.log_all_off + top + np.log(total)
    return log_density, masses @ states / total[:, None]


class Chunk(NamedTuple):
    """Some rows with zeros in place of missing entries, and what is missing where."""

    rows: MemoryRows
    pattern: np.ndarray
    """(N,): index of the pattern of each row."""
    missing: list[np.ndarray]
    """Columns that each pattern misses."""

    def fields(self, draw: Draw) -> RowFields:
        """The rows under one posterior draw."""
        features, noise = np.asarray(draw.vectors, np.float64), draw.noise_variance
        whole = features @ features.T
        gaps = [features[:, gone] for gone in self.missing]
        couplings = np.stack([whole - gone @ gone.T for gone in gaps]) / noise
        diagonal = np.arange(len(features))
        half = couplings[:, diagonal, diagonal] / 2.0
        couplings[:, diagonal, diagonal] = 0.0
        weights = np.clip(np.asarray(draw.weights, np.float64), _SMALLEST, 1.0 - _SMALLEST)
        n_seen = self.rows.dim - np.array([len(gone) for gone in self.missing])[self.pattern]
        return RowFields(
            fields=self.rows.products(features) / noise - half[self.pattern],
            couplings=couplings,
            pattern=self.pattern,
            log_odds=np.log(weights) - np.log1p(-weights),
            partners=partners_of(whole),
            constant=-0.5 * (self.rows.row_energy / noise + n_seen * np.log(2 * np.pi * noise)),
        )


def over_draws(
    action: Callable[[slice, int, RowFields, int], None],
    draws: Sequence[Draw],
    matrix: Any,
    seed: int,
    offset: Any = None,
    hidden: Any = None,
) -> None:
    """Call ``action`` for chunks of rows under every draw, in float64, in threads.

    It gets the places of the rows, the number of the draw, the fields, and the seed of the draw.
    Chunks do not depend on the number of threads, so neither do results. Matrix products of a chunk
    use one thread each: waiting threads of one product would slow the other chunks. ``hidden``,
    (N, D) of bool, dense or sparse, marks entries to treat as missing as well.
    """
    n_features = max(len(draw.weights) for draw in draws)
    n_rows, dim = matrix.shape
    is_sparse = sparse.issparse(matrix)
    matrix = sparse.csr_matrix(matrix) if is_sparse else np.asarray(matrix)
    hidden = sparse.csr_matrix(hidden) if sparse.issparse(hidden) else hidden
    gappy = hidden is not None or has_gaps(matrix)
    per_row = max(n_features, 1) * (n_features if gappy else 1)
    per_row = max(per_row, dim if gappy or not is_sparse else 1)
    size = min(max(1, CHUNK_BYTES // (8 * per_row)), CHUNK_ROWS)

    def chunk(part: slice) -> Chunk:
        if not gappy:
            rows = MemoryRows(matrix[part].astype(np.float64), offset)
            return Chunk(rows, np.zeros(rows.n_rows, np.int64), [_NOTHING])
        dense = as_dense(matrix, part, np.float64)
        gaps = np.isnan(dense)
        if hidden is not None:
            gaps |= as_dense(hidden, part, bool)
        centred = dense if offset is None else dense - offset
        return Chunk(MemoryRows(np.where(gaps, 0.0, centred)), *_patterns(gaps))

    def one(first: int, last: int) -> None:
        span = slice(first, last)
        rows = chunk(span)
        for s, draw in enumerate(draws):
            action(span, s, rows.fields(draw), derived_seed(seed, s))

    cuts = np.linspace(0, n_rows, -(-n_rows // size) + 1).astype(int)
    with threadpool_limits(1, "blas"):
        in_ranges(one, cuts.tolist())


def _patterns(gaps: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Which of the distinct rows of a mask each row is, and the columns that these mark."""
    packed = np.packbits(gaps, axis=1)
    _, example, pattern = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    return pattern.ravel(), [np.flatnonzero(gaps[n]) for n in example]


def derived_seed(seed: int, purpose: int) -> int:
    """A seed for one of several purposes or draws, unrelated to those of the others."""
    return int(np.random.SeedSequence([int(seed), purpose]).generate_state(1, np.uint64)[0])


def partners_of(gram: np.ndarray) -> np.ndarray:
    """(K, at most ``N_PARTNERS``): the other features of largest absolute cosine to each."""
    length = np.sqrt(np.maximum(np.diagonal(gram), np.finfo(float).tiny))
    cosines = np.abs(gram / length[:, None] / length)
    np.fill_diagonal(cosines, -1.0)
    n_partners = min(N_PARTNERS, max(len(gram) - 1, 0))
    return np.ascontiguousarray(np.argsort(-cosines, axis=1, kind="stable")[:, :n_partners])
