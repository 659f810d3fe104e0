"""Rows, targets and weights of a mixture of experts: where they live, and which of them count.

Also what follows from them alone: the starting points of chains and ascents.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax.sharding import Mesh

from wideangle.checks import check_total_weight
from wideangle.sharding import current_mesh, spread
from wideangle.types import Array, Key, as_dense, as_targets

CHUNK = 4096
"""Rows handled at once when there are many draws."""
DENSE_LIMIT = 2**31
"""Largest size in bytes for which sparse rows are made dense if a method needs it."""
SPARSE_SHARE, SPARSE_SIZE = 0.05, 2**23
"""Sparse rows stay sparse with at most this share of nonzero entries, and at least this many
entries times experts in all: otherwise matrix products were faster, on one core and with 5 to 30
experts."""
EXPERT_SCATTER, GATE_SCATTER = 1.1, 1.9
"""Standard deviation of the initial scores at a row of usual length."""
RIDGE_ROWS = 20_000
"""Most rows for the regression that experts start from."""
HASHED = 2**16
"""Entries hashed at a time: they fit the cache."""
ODD, TURN, SEED = np.uint64(0x9E3779B97F4A7C15), np.uint64(32), 20_261_116
"""An odd multiplier, half the width of a number, and the seed of the multipliers of columns."""


class Data(NamedTuple):
    """Rows with the intercept, targets, and how much each row counts.

    Targets (N,) are classes 0..C-1 or numbers in units of :class:`TargetScaling`.

    Rows (N, p) are a dense array or a SciPy CSR matrix. Arguments of compiled programs may also be
    :class:`ShardedRows`, spread over devices, or
    :class:`~wideangle.mixture_of_experts.sparse.SparseRows`, which stay on the host.
    """

    rows: Any
    targets: Any
    weights: Any


@partial(jax.tree_util.register_dataclass, data_fields=["array"], meta_fields=["mesh"])
@dataclass(frozen=True)
class ShardedRows:
    """Rows (N, p) cut into as many parts as there are devices."""

    array: Array
    mesh: Mesh


def shard(data: Data, mesh: Mesh) -> Data:
    """Dense data spread over a mesh; padding rows have weight 0."""
    rows, targets, weights = spread(tuple(data), mesh)
    return Data(ShardedRows(rows, mesh), targets, weights)


def for_sampling(data: Data, n_experts: int) -> Data:
    """All rows, for methods that need them at every step: sparse where that is faster."""
    rows = data.rows
    if not sp.issparse(rows) or jax.default_backend() != "cpu" or current_mesh() is not None:
        return make_dense(data)
    size = rows.shape[0] * rows.shape[1]
    faster = rows.nnz <= SPARSE_SHARE * size and n_experts * size >= SPARSE_SIZE
    if not faster and 4 * size <= DENSE_LIMIT:
        return make_dense(data)
    # Empty rows of weight 0 cost nothing, and minibatches are those of dense rows.
    missing = round_up(rows.shape[0]) - rows.shape[0]
    filled = sp.csr_array(
        (rows.data, rows.indices, np.pad(rows.indptr, (0, missing), "edge")),
        shape=(rows.shape[0] + missing, rows.shape[1]),
    )
    weights = np.pad(data.weights.astype(np.float32), (0, missing))
    return Data(filled, np.pad(data.targets, (0, missing)), weights)


def make_dense(data: Data) -> Data:
    """All rows on the device, or on the host if they will be spread over several devices.

    Raises an error for sparse data that would not fit.
    """
    rows = data.rows
    if sp.issparse(rows):
        size = rows.shape[0] * rows.shape[1] * 4
        if size > DENSE_LIMIT:
            raise ValueError(
                f"X has {rows.shape[0]} x {rows.shape[1]} entries, {size / 2**30:.1f} GiB when "
                "dense, which is needed on a GPU. Use "
                "inference='vi', which reads sparse minibatches, or fewer columns."
            )
        rows = rows.toarray()
    return fill(Data(rows, data.targets, data.weights.astype(np.float32)))


def sample(seed: int, data: Data, n_rows: int) -> Data:
    """Some of the rows, weighted up, padded to one of few sizes."""
    total = data.rows.shape[0]
    chosen = np.arange(total)
    if total > n_rows:
        chosen = np.random.default_rng(seed).choice(total, n_rows, replace=False)
    weights = np.asarray(data.weights, np.float32)[chosen]
    weights = weights * np.float32(np.sum(data.weights) / max(np.sum(weights), 1e-30))
    source = data.rows if sp.issparse(data.rows) else np.asarray(data.rows)  # compiles nothing
    rows = as_dense(source, chosen, np.float32)
    return fill(Data(rows, as_targets(data.targets)[chosen], weights))


def fill(data: Data, n_rows: int | None = None) -> Data:
    """Add rows of weight 0 up to a number, by default a round one that many sizes share."""
    missing = (n_rows or round_up(len(data.targets))) - len(data.targets)
    pad = [np.pad(np.asarray(leaf), [(0, missing)] + [(0, 0)] * (leaf.ndim - 1)) for leaf in data]
    if current_mesh() is not None:  # one device may be too small for all rows
        return Data(*pad)
    return Data(*map(jax.device_put, pad))  # compiles nothing


def round_up(n_rows: int) -> int:
    """The next of about eight sizes per power of two."""
    step = max(64, 2 ** (max(n_rows - 1, 1).bit_length() - 3))
    return -(-max(n_rows, 1) // step) * step


def chunks(rows: Any, dtype: Any = np.float32) -> Iterator[tuple[slice, np.ndarray]]:
    """Dense chunks of few different sizes, with their positions; the last is padded with zeros."""
    total = rows.shape[0]
    size = min(CHUNK, round_up(total))
    for first in range(0, total, size):
        chunk = as_dense(rows, slice(first, first + size), dtype)
        filled = np.zeros((size, chunk.shape[1]), dtype)
        filled[: len(chunk)] = chunk
        yield slice(first, first + len(chunk)), filled


def seed_of(key: Key) -> int:
    """A seed for NumPy's generators."""
    return int(jax.random.bits(key, dtype=jnp.uint32))


def scattered(
    key: Key,
    centre: np.ndarray,
    data: Data,
    n_starts: int,
    n_components: int,
    dtype: Any = np.float32,
) -> tuple[Array, Array]:
    """Initial vectors of several starts: experts around ``centre`` (O, p), gates around 0."""
    length = rms_length(data)
    centre = centre.ravel()
    # NumPy's generator: for so few numbers, compiling would take longer than the rest.
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    shape = n_starts, n_components
    gate = generator.normal(size=(*shape, data.rows.shape[1])) * (GATE_SCATTER / length)
    scatter = generator.normal(size=(*shape, centre.size)) * (EXPERT_SCATTER / length)
    return jnp.asarray(gate, dtype), jnp.asarray(centre + scatter, dtype)


def some_rows(data: Data) -> Data:
    """At most ``RIDGE_ROWS`` of the rows, evenly spaced."""
    some = slice(None, None, max(1, -(-data.rows.shape[0] // RIDGE_ROWS)))
    return Data(data.rows[some], data.targets[some], data.weights[some])


def rms_length(data: Data) -> float:
    """Weighted root mean square of the length of a row."""
    rows, weights = data.rows, np.asarray(data.weights, np.float64)
    if sp.issparse(rows):
        squares = np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
    else:
        squares = np.sum(np.square(np.asarray(rows)), axis=1)
    return float(np.sqrt(max(weights @ squares / weights.sum(), 1e-12)))


# ---- which rows count, and how much


def counted(data: Data) -> Data:
    """Distinct rows with positive weight in single precision; rejects extreme weights."""
    weights = data.weights
    check_total_weight(weights)
    live = weights.astype(np.float32) > 0
    if not np.any(live):
        raise ValueError(
            "sample_weight: all rows have weight 0 (or less than 1e-45, which is 0 in single "
            "precision); give some a positive one."
        )
    # Rows of weight 0 are dropped, so that they do not affect the scaling of columns.
    return merged(data if np.all(live) else Data(*(part[live] for part in data)))


def merged(data: Data) -> Data:
    """Duplicate rows become one with the sum of their weights.

    A fit then does not depend on how the data are written down: a weight of three and three equal
    rows give the same arrays, and so do rows in any order. Fits are equal to the last bit, which
    sums over rows in single precision could not guarantee.

    Rows are sorted by a hash of all their numbers, so neighbours have nothing in common: every
    n-th of them is a random sample.
    """
    codes = _codes(data.rows, np.asarray(data.targets, np.float64))
    # Equal codes are sorted by weight, so that sums of weights are equal to the last bit, too.
    order = np.lexsort((data.weights, codes))
    first = np.append(True, codes[order[1:]] != codes[order[:-1]])
    maybe = np.flatnonzero(~first)
    first[maybe] = ~_equal(data, order[maybe - 1], order[maybe])
    starts = np.flatnonzero(first)
    kept = order[starts]
    return Data(data.rows[kept], data.targets[kept], np.add.reduceat(data.weights[order], starts))


def _equal(data: Data, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Whether pairs of rows are the same, targets included."""
    if sp.issparse(data.rows):
        same = np.diff((data.rows[one] != data.rows[other]).tocsr().indptr) == 0
    else:
        same = np.all(data.rows[one] == data.rows[other], axis=1)
    return same & (data.targets[one] == data.targets[other])


def _codes(rows: Any, targets: np.ndarray) -> np.ndarray:
    """A hash of each row, (N,); zeros, stored or not, do not change it."""
    n_rows, p = rows.shape
    factors = np.random.default_rng(SEED).integers(0, 2**63, p + 1, np.uint64) * 2 + 1
    codes = _mixed(targets) * factors[-1]
    if sp.issparse(rows):
        parts = _mixed(np.asarray(rows.data, np.float64)) * factors[rows.indices]
        ends = np.append(np.uint64(0), np.cumsum(parts))[rows.indptr]
        return codes + ends[1:] - ends[:-1]
    size = max(HASHED // max(p, 1), 1)
    for first in range(0, n_rows, size):
        part = _mixed(np.asarray(rows[first : first + size], np.float64)) * factors[:-1]
        codes[first : first + size] += part.sum(axis=1, dtype=np.uint64)
    return codes


def _mixed(values: np.ndarray) -> np.ndarray:
    """The bits of numbers, mixed over all positions; 0 and -0 give 0."""
    bits = (values + 0.0).view(np.uint64) * ODD
    return (bits ^ (bits >> TURN)) * ODD
