r"""Rows on the sphere, in blocks, and what one pass over them gives.

With the expected natural parameters :math:`\eta_k` of the clusters and offsets :math:`o_k` (log
weight minus log normaliser) a pass finds, for rows x of length one and weight w,

.. math:: r_{nk} \propto e^{\eta_k\cdot x_n + o_k}, \qquad
          n_k = \sum_n w_n r_{nk}, \qquad R_k = \sum_n w_n r_{nk} x_n,

and the log of the sum over clusters of each row: mostly two matrix products. Products of many dense
rows are computed on the device in single precision, a block at a time; few rows stay on the host,
in double precision, without compilation; sparse ones stay there too. Sums over blocks are in double
precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from wideangle.streaming.sources import RowSource, chunks
from wideangle.types import Array

BLOCK = 8192
"""Rows of a block: a block and its responsibilities fit the cache."""
SMALL = 2**20
"""Most entries for which rows have double precision and stay on the host."""


class Statistics(NamedTuple):
    """Sums of a pass for each cluster, and over all rows."""

    counts: np.ndarray
    """Weight of the rows of each cluster, (K,)."""
    resultants: np.ndarray
    """Sums of the rows of each cluster, (K, p)."""
    log_lik: float
    """Sum over rows of the log of the sum over clusters."""


class Rows(Protocol):
    """Blocks of rows of length one (or zero, with weight zero); can be iterated repeatedly."""

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of columns."""
        ...

    def __iter__(self) -> Iterator[tuple[Any, Any, int]]:
        """Block, weights, and the number of rows in it; the rest of the block is padding."""
        ...


class MemoryRows:
    """Rows in memory: many dense ones on the device, others on the host."""

    def __init__(self, units: Any, weights: np.ndarray) -> None:
        self.shape: tuple[int, int] = units.shape
        self.weights = weights
        self.sparse: bool = sp.issparse(units)
        parts = [slice(i, i + BLOCK) for i in range(0, units.shape[0], BLOCK)]
        self._blocks = [_filled(units[part], weights[part]) for part in parts]

    def __iter__(self) -> Iterator[tuple[Any, Any, int]]:
        return iter(self._blocks)

    def arrays(self) -> dict[str, np.ndarray]:
        """All rows and weights, by name, for a fingerprint."""
        found = {"weights": self.weights}
        for i, (block, *_) in enumerate(self._blocks):
            parts = (block.data, block.indices, block.indptr) if self.sparse else (block,)
            found |= {f"rows_{i}_{j}": np.asarray(part) for j, part in enumerate(parts)}
        return found

    def take(self, places: np.ndarray) -> np.ndarray:
        """Rows at ascending indices, dense."""
        found = []
        for i, (block, _, n_rows) in enumerate(self._blocks):
            inside = places[(places >= i * BLOCK) & (places < i * BLOCK + n_rows)]
            rows: Any = block if sp.issparse(block) else np.asarray(block)
            part = rows[inside - i * BLOCK]
            found.append(part.toarray() if sp.issparse(part) else part)
        return np.concatenate(found)

    def sample(self, rng: np.random.Generator, most: int) -> MemoryRows:
        """These rows, or this many of those with positive weight, drawn by weight.

        The choice does not depend on how rows are numbered, nor on whether a row occurs twice or
        has weight two.
        """
        rng = np.random.default_rng(rng.integers(2**63))  # later draws must not depend on this one
        if np.sum(self.weights > 0) <= most:
            return self
        order = self.order(rng)
        ends = np.cumsum(self.weights[order])
        levels = (np.arange(most) + rng.random(most)) * (ends[-1] / most)
        chosen = order[np.minimum(np.searchsorted(ends, levels, side="right"), len(order) - 1)]
        return MemoryRows(self.take(np.sort(chosen)), np.ones(most))

    def order(self, rng: np.random.Generator) -> np.ndarray:
        """Indices of the rows, sorted by their cosines to a random direction."""
        axis = rng.standard_normal(self.shape[1])
        parts = [
            np.asarray(block @ axis.astype(block.dtype))[:n_rows]
            for block, _, n_rows in self._blocks
        ]
        return np.argsort(np.concatenate(parts), kind="stable")


class SourceRows:
    """Rows of a file, read again in every pass."""

    def __init__(self, source: RowSource) -> None:
        self.shape = source.shape
        self._source = source

    def __iter__(self) -> Iterator[tuple[Any, Any, int]]:
        for _, rows in chunks(self._source, BLOCK):
            if not np.isfinite(rows).all():
                raise ValueError("the rows hold NaN or infinity.")
            units, live = as_units(rows, np.float32)
            yield _filled(units, live.astype(np.float64))


def sample_source(source: RowSource, rng: np.random.Generator, most: int) -> MemoryRows:
    """At most this many rows of a file, evenly spread over it."""
    chosen = np.sort(rng.choice(source.shape[0], min(most, source.shape[0]), replace=False))
    parts = [
        rows[chosen[(chosen >= first) & (chosen < first + len(rows))] - first]
        for first, rows in chunks(source, BLOCK)
    ]
    units, live = as_units(np.concatenate(parts))
    if not live.any():
        raise ValueError("the rows are zero in all columns: they have no direction.")
    return MemoryRows(units, live.astype(np.float64))


def as_units(X: Any, dtype: Any = None) -> tuple[Any, np.ndarray]:
    """Rows divided by their lengths, and which rows have a direction.

    Few entries get double precision, many single precision.
    """
    sparse = sp.issparse(X)
    X = sp.csr_matrix(X) if sparse else np.asarray(X)
    dtype = dtype or (np.float64 if (X.nnz if sparse else X.size) <= SMALL else np.float32)
    # Divided by the largest entry first: the square of a length may overflow.
    if sparse:
        starts, values = X.indptr, X.data.astype(np.float64)
        places = np.repeat(np.arange(X.shape[0]), np.diff(starts))
        peaks = np.zeros(X.shape[0])
        np.maximum.at(peaks, places, np.abs(values))
        live = peaks > 0
        values = values / np.where(live, peaks, 1.0)[places]
        lengths = np.sqrt(np.bincount(places, values**2, minlength=X.shape[0]))
        values = (values / np.where(live, lengths, 1.0)[places]).astype(dtype)
        return sp.csr_matrix((values, X.indices, starts), shape=X.shape), live
    peaks = np.max(np.abs(X), axis=1, initial=0.0).astype(np.float64)
    live = peaks > 0
    units = np.empty(X.shape, dtype)
    for part in (slice(i, i + BLOCK) for i in range(0, len(X), BLOCK)):
        scaled = X[part] / np.where(live[part], peaks[part], 1.0)[:, None]
        lengths = np.sqrt(np.einsum("np,np->n", scaled, scaled))
        units[part] = scaled / np.where(live[part], lengths, 1.0)[:, None]
    return units, live


def _filled(rows: Any, weights: np.ndarray) -> tuple[Any, Any, int]:
    """A block, padded to one size if it is for the device."""
    n_rows = rows.shape[0]
    if sp.issparse(rows) or rows.dtype == np.float64:
        return rows, weights, n_rows
    if room := BLOCK - n_rows:
        rows, weights = np.pad(rows, ((0, room), (0, 0))), np.pad(weights, (0, room))
    return jnp.asarray(rows, jnp.float32), jnp.asarray(weights, jnp.float32), n_rows


# ---------------------------------------------------------------- passes


def gather(rows: Rows, natural: np.ndarray, offsets: np.ndarray) -> Statistics:
    """One pass: responsibilities of all rows, summed up."""
    n_clusters, dim = natural.shape
    counts, resultants = np.zeros(n_clusters), np.zeros((n_clusters, dim))
    total = 0.0
    waiting: list[tuple[Any, Any, int]] = []

    def take(found: Any, weights: Any, n_rows: int) -> float:
        counts[:] += np.asarray(found[0], np.float64)
        resultants[:] += np.asarray(found[1], np.float64)
        parts = np.asarray(weights, np.float64) * np.asarray(found[2], np.float64)
        return float(parts[:n_rows].sum())

    for block, weights, n_rows in rows:
        make = _device_sums if isinstance(block, jax.Array) else _sums
        parameters = natural.astype(block.dtype), offsets.astype(block.dtype)
        waiting.append((make(block, weights, *parameters), weights, n_rows))
        if len(waiting) > 1:  # the next block is computed while the last one is fetched
            total += take(*waiting.pop(0))
    for one in waiting:
        total += take(*one)
    return Statistics(counts, resultants, total)


def shares(
    rows: Rows, natural: np.ndarray, offsets: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Block by block the responsibilities (n, K) and the log of the sum of each row (n,)."""
    for block, _, n_rows in rows:
        make = _device_shares if isinstance(block, jax.Array) else _shares
        responsible, logs = make(block, natural.astype(block.dtype), offsets.astype(block.dtype))
        yield np.asarray(responsible)[:n_rows], np.asarray(logs, np.float64)[:n_rows]


def _shares(rows: Any, natural: Any, offsets: Any, xp: Any = np) -> tuple[Any, Any]:
    """Responsibilities of a block, on the host or, with ``xp=jnp``, on the device."""
    logits = rows @ natural.T + offsets
    top = xp.max(logits, axis=1, keepdims=True)
    parts = xp.exp(logits - top)
    total = xp.sum(parts, axis=1, keepdims=True)
    return parts / total, (xp.log(total) + top)[:, 0]


def _sums(rows: Any, weights: Any, natural: Any, offsets: Any, xp: Any = np) -> tuple[Any, ...]:
    """Counts, resultants and the log of the sum of each row."""
    responsible, logs = _shares(rows, natural, offsets, xp)
    weighted = responsible * weights.astype(responsible.dtype)[:, None]
    return xp.sum(weighted, axis=0), (rows.T @ weighted).T, logs


@jax.jit
def _device_shares(*arguments: Array) -> tuple[Array, Array]:
    with jax.default_matmul_precision("highest"):
        return _shares(*arguments, xp=jnp)


@jax.jit
def _device_sums(*arguments: Array) -> tuple[Array, ...]:
    with jax.default_matmul_precision("highest"):
        return _sums(*arguments, xp=jnp)
