r"""Redrawing which row uses which feature.

Given everything else, with :math:`r_n = x_n - \sum_{j\ne k} z_{nj}w_j`,

.. math:: \mathrm{logit}_n = \log\frac{\mu_k}{1-\mu_k}
          + \frac{r_n\cdot w_k - |w_k|^2/2}{\sigma^2},

and the density of the slice level, :math:`1/b(\mu^*)` with :math:`\mu^*` the weight of the last
active feature and :math:`b(\mu) = \min(\mu, 1/N)`, couples the rows: where no later feature is
active, whether *any* row uses feature k decides :math:`\mu^*`. So that bit is drawn first,

.. math:: P(\text{none}) \propto \prod_n(1-p_n)/b(\mu_{L'}), \qquad
          P(\text{any}) \propto \bigl(1 - \prod_n(1-p_n)\bigr)/b(\mu_k),

(L' the last active feature among the others, :math:`\mu_0 = 1`), and, if any, the rows given that
there is at least one. The products :math:`XW^\top` and :math:`WW^\top` are computed once per sweep.

This file redraws the assignments row by row, for the CPU. Rows are independent given the features,
except through the last active feature, so every column before it can be visited row by row: a row's
products with the features stay in cache and change only when an assignment flips. The few columns
from the last active one on are *coupled* and visited column by column. Rows may come in blocks, as
they do from disk. ``columns.py`` has the version for devices, with the same random numbers (JAX's
threefry generator, a function of key and counter), so both give the same assignments.

Differs from the paper: its sampler treats :math:`\mu^*` as a constant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numba import types
from numba.extending import intrinsic

from wideangle.machine_code import njit, over_rows
from wideangle.types import Array, Key

CERTAIN = 23.0
"""Log-odds beyond which even the smallest uniform, 2^-33, is decided without an exponential."""
SAFELY_ONE = 1.0 + 1e-9
"""Slightly above 1, so that rounding of the exponential cannot change a decision."""


class Randomness(NamedTuple):
    """Random numbers of one sweep over assignments."""

    keys: Array
    """(K, 2) uint32: the threefry key of each column; row n takes its n-th number."""
    any_row: Array
    """(K,) uniform: does any row use the feature?"""
    first_row: Array
    """(K,) uniform: which is the first?"""


def draw_randomness(key: Key, room: int, dtype: jnp.dtype) -> Randomness:
    """Random numbers for ``room`` features; those of a feature do not depend on ``room``."""
    key_sites, key_any, key_first = jax.random.split(key, 3)
    keys = jax.vmap(lambda k: jax.random.fold_in(key_sites, k))(jnp.arange(room))
    return Randomness(
        jax.random.key_data(keys).astype(jnp.uint32),
        jax.random.uniform(key_any, (room,), dtype),
        jax.random.uniform(key_first, (room,), dtype),
    )


def site_uniforms(key_data: Array, n_rows: int, dtype: jnp.dtype) -> Array:
    """Uniforms of one column, from all 32 bits: small ones are exact to 1e-10."""
    key = jax.random.wrap_key_data(key_data, impl="threefry2x32")
    bits = jax.random.bits(key, (n_rows,), jnp.uint32)
    return (bits.astype(dtype) + 0.5) * 2.0**-32


def decide(logit: Array, uniform: Array) -> Array:
    """One with probability sigmoid(logit), by comparing with the smaller of the two odds.

    Comparing ``uniform < sigmoid(logit)`` would in float32 switch off a certain feature once in 3e7
    sites, because uniforms above 1 - 3e-8 are rounded to 1.
    """
    return (logit > 0) ^ (uniform < jax.nn.sigmoid(-jnp.abs(logit)))


class Blocks(NamedTuple):
    """Blocks of rows while coupled columns are redrawn: here one, with all rows."""

    assignments: np.ndarray
    left: np.ndarray
    """Products of the residuals with the coupled columns."""

    def read(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Index of the first row, assignments, and products of every block."""
        yield 0, self.assignments, self.left

    def write(self, first: int, assignments: np.ndarray, left: np.ndarray) -> None:
        """Write back a changed block; here the arrays themselves were changed."""

    def place(self, log_unused: float) -> tuple[float, float]:
        """The sum of such numbers over the processes with earlier rows, and over all.

        ``log_unused`` is the log probability that none of the rows of this process uses a feature.
        """
        return 0.0, log_unused


class Conditionals(NamedTuple):
    """What assignments depend on apart from the rows, live features only."""

    keys: np.ndarray
    """(2, K) words of the random keys of the columns."""
    any_row: np.ndarray
    first_row: np.ndarray
    inner: np.ndarray
    weights: np.ndarray
    log_odds: np.ndarray
    precision: Any
    last: int
    """The last active feature; columns from here on are coupled."""

    @property
    def n_live(self) -> int:
        """Number of features."""
        return len(self.weights)


def conditionals(
    randomness: Randomness,
    inner: Any,
    weights: Any,
    active: Any,
    n_live: int,
    noise_variance: float,
    dtype: Any,
) -> Conditionals:
    """From what a sweep draws before it reads the rows; ``active`` may be counts."""
    live = np.asarray(weights)[:n_live].astype(np.float64)
    in_use = np.flatnonzero(np.asarray(active)[:n_live])
    return Conditionals(
        np.ascontiguousarray(np.asarray(randomness.keys)[:n_live].T),
        np.asarray(randomness.any_row, np.float64),
        np.asarray(randomness.first_row, np.float64),
        np.ascontiguousarray(np.asarray(inner)[:n_live, :n_live], dtype),
        live,
        (np.log(live) - np.log1p(-live)).astype(dtype),
        np.dtype(dtype).type(1.0 / float(noise_variance)),
        int(in_use[-1]) if in_use.size else 0,
    )


def sweep_rows(
    randomness: Randomness,
    assignments: np.ndarray,
    products: np.ndarray,
    inner: np.ndarray,
    weights: np.ndarray,
    n_live: int,
    noise_variance: float,
) -> np.ndarray:
    """Redraw every assignment of rows in memory; arguments as for ``columns.sweep_columns``."""
    assignments = np.array(assignments, np.uint8)
    n_rows, n_live = len(assignments), int(n_live)
    if n_live == 0 or n_rows == 0:
        return assignments
    given = conditionals(
        randomness, inner, weights, assignments.any(axis=0), n_live, noise_variance, products.dtype
    )
    left = sweep_block(given, 0, assignments, products)
    in_use = assignments[:, : given.last].any(axis=0)
    sweep_coupled(given, Blocks(assignments, left), in_use, n_rows)
    return assignments


def sweep_block(
    given: Conditionals, first: int, assignments: np.ndarray, products: np.ndarray
) -> np.ndarray:
    """Redraw the columns before the last active one of a block of rows, in place.

    Returns the products of the residuals with the coupled columns.
    """
    left = np.empty((len(assignments), given.n_live - given.last), products.dtype)

    def part(start: int, stop: int) -> None:
        _rows_before(
            start, stop, first, given.keys, assignments, products, given.inner, given.log_odds,
            given.precision, given.last, given.n_live, left,
        )  # fmt: skip

    over_rows(part, len(assignments), len(assignments) * given.n_live)
    return left


def sweep_coupled(given: Conditionals, blocks: Any, before_in_use: np.ndarray, n_rows: int) -> None:
    """Redraw the columns from the last active one on: nothing later is active, so rows are coupled.

    ``blocks`` are as :class:`Blocks`; ``before_in_use`` says which of the earlier columns any row
    uses.
    """
    ceiling = 1.0 / n_rows
    earlier = np.flatnonzero(before_in_use)
    bound = min(given.weights[earlier[-1]], ceiling) if earlier.size else ceiling
    for k in range(given.last, given.n_live):
        column = _CoupledColumn(given, k)
        ends = [column.add(*block[1:]) for block in blocks.read()]
        before, whole = blocks.place(ends[-1])
        ends = [before + end for end in ends]
        with_it = min(given.weights[k], ceiling)
        none = _nobody(whole, bound, with_it, given.any_row[k])
        if not none:
            bound = with_it
        target = given.first_row[k] * _used_by(whole)
        found = before < 0.0 and _used_by(before) >= target
        for place, (first, assignments, left) in enumerate(blocks.read()):
            drawn = np.zeros(len(assignments), np.uint8)
            # The last block of all reaches it: its end is the whole, to the last bit.
            if not none and (found or _used_by(ends[place]) >= target):
                if len(ends) > 1 or before:
                    column.log_unused = ends[place - 1] if place else before
                    column.add(assignments, left)
                column.draw(first, found, target, drawn)
                found = True
            if _change_column(k, given.last, drawn, assignments, left, given.inner):
                blocks.write(first, assignments, left)


class _CoupledColumn:
    """One coupled column, processed block by block."""

    def __init__(self, given: Conditionals, k: int) -> None:
        self.given, self.k = given, k
        self.log_unused = 0.0
        """Log probability that no row so far uses the feature."""
        self._logits = self._by_row = np.empty(0)

    def add(self, assignments: np.ndarray, left: np.ndarray) -> float:
        """Add a block of rows; returns the log probability that no row so far uses the feature."""
        given, k = self.given, self.k
        self._logits, self._by_row = np.empty(len(left)), np.empty(len(left))
        self.log_unused = _fill_logits(
            k, given.last, assignments, left, given.inner[k, k], given.log_odds[k],
            given.precision, self.log_unused, self._logits, self._by_row,
        )  # fmt: skip
        return self.log_unused

    def draw(self, first: int, found: bool, target: float, drawn: np.ndarray) -> None:
        """Draw the block added last, given that some row uses the feature."""
        key = self.given.keys[:, self.k]
        _given_any(key, self._logits, self._by_row, target, found, first, drawn)


@intrinsic
def _rotate(_typing, _word, _count):
    """Rotate 32 bits to the left. Numba's own shifts have 64 bits, twice the work."""

    def generate(_context, builder, _signature, arguments):
        word, count = arguments
        rest = builder.sub(count.type(32), count)
        return builder.or_(builder.shl(word, count), builder.lshr(word, rest))

    return types.uint32(types.uint32, types.uint32), generate


@njit(inline="always")
def threefry(key0, key1, counter_high, counter_low):
    """Xor of the two words of threefry-2x32 with 20 rounds: what ``jax.random.bits`` gives."""
    u = np.uint32
    key2 = u(key0 ^ key1 ^ u(0x1BD11BDA))
    x = u(counter_high + key0)
    y = u(counter_low + key1)
    for rotation in (13, 15, 26, 6):
        x = u(x + y)
        y = _rotate(y, u(rotation)) ^ x  # pyright: ignore[reportCallIssue]
    x = u(x + key1)
    y = u(y + key2 + u(1))
    for rotation in (17, 29, 16, 24):
        x = u(x + y)
        y = _rotate(y, u(rotation)) ^ x
    x = u(x + key2)
    y = u(y + key0 + u(2))
    for rotation in (13, 15, 26, 6):
        x = u(x + y)
        y = _rotate(y, u(rotation)) ^ x
    x = u(x + key0)
    y = u(y + key1 + u(3))
    for rotation in (17, 29, 16, 24):
        x = u(x + y)
        y = _rotate(y, u(rotation)) ^ x
    x = u(x + key1)
    y = u(y + key2 + u(4))
    for rotation in (13, 15, 26, 6):
        x = u(x + y)
        y = _rotate(y, u(rotation)) ^ x
    x = u(x + key2)
    y = u(y + key0 + u(5))
    return u(x ^ y)


@njit()
def _fill_bits(first_words, second_words, row, bits):
    """Random bits of one row, one per column, from the two words of each column's key."""
    high, low = np.uint32(row >> 32), np.uint32(row & 0xFFFFFFFF)
    for k in range(len(bits)):
        bits[k] = threefry(first_words[k], second_words[k], high, low)


@njit(inline="always")
def decide_site(logit, bits):
    """As :func:`decide`, from random bits."""
    if logit > CERTAIN:
        return True
    if logit < -CERTAIN:
        return False
    uniform = (np.float64(bits) + 0.5) * 2.0**-32
    size = abs(np.float64(logit))
    # exp(size) > 1 + size + size^2 / 2 decides most sites without an exponential.
    if uniform * (2.0 + size * (1.0 + 0.5 * size)) > SAFELY_ONE:
        return logit > 0
    flip = uniform < 1.0 / (1.0 + math.exp(size))
    return (logit > 0) != flip


@njit(fastmath={"contract", "reassoc"})
def _rows_before(
    start,
    stop,
    offset,
    keys,
    assignments,
    products,
    inner,
    log_odds,
    precision,
    last,
    n_live,
    left,
):
    """Columns before ``last``, row by row; writes what the later columns need to ``left``.

    Row ``n`` of the arrays is row ``n + offset`` of all.
    """
    pull = np.empty(n_live, products.dtype)
    bits = np.empty(last, np.uint32)
    half = products.dtype.type(0.5)
    for n in range(start, stop):
        for k in range(n_live):
            pull[k] = products[n, k]
        for j in range(n_live):
            if assignments[n, j]:
                for k in range(n_live):
                    pull[k] -= inner[j, k]
        _fill_bits(keys[0], keys[1], n + offset, bits)
        for k in range(last):
            square = inner[k, k]
            gain = pull[k] - half * square
            if assignments[n, k]:
                gain += square
            one = decide_site(log_odds[k] + gain * precision, bits[k])
            if one and not assignments[n, k]:
                assignments[n, k] = 1
                for j in range(n_live):
                    pull[j] -= inner[k, j]
            elif not one and assignments[n, k]:
                assignments[n, k] = 0
                for j in range(n_live):
                    pull[j] += inner[k, j]
        for k in range(last, n_live):
            left[n, k - last] = pull[k]


@njit()
def _fill_logits(
    k, last, assignments, left, square, log_odds, precision, log_unused, logits, by_row
):
    """Logits of a column, and the log probability that no row up to each one uses it."""
    for n in range(len(logits)):
        gain = left[n, k - last] - 0.5 * square
        if assignments[n, k]:
            gain += square
        logits[n] = log_odds + gain * precision
        log_unused -= max(logits[n], 0.0) + math.log1p(math.exp(-abs(logits[n])))
        by_row[n] = log_unused
    return log_unused


@njit()
def _used_by(log_unused):
    """Probability that some row uses a feature."""
    return -math.expm1(log_unused)


def _nobody(log_none: float, without: float, with_it: float, uniform: float) -> bool:
    """Whether no row uses a feature after which nothing is active."""
    any_probability = -math.expm1(log_none)
    if any_probability <= 0.0:
        return True
    difference = log_none - math.log(without) - math.log(any_probability) + math.log(with_it)
    return uniform < 1.0 / (1.0 + math.exp(min(-difference, 700.0)))


@njit()
def _given_any(key, logits, by_row, target, found, offset, drawn):
    """Rows that use the feature, given that at least one does: the first one, then the others.

    Row ``n`` of the block is row ``n + offset`` of all; with ``found`` an earlier block had the
    first one.
    """
    n_rows = len(drawn)
    begin = 0
    if not found:
        while begin < n_rows - 1 and _used_by(by_row[begin]) < target:
            begin += 1
        drawn[begin] = 1
        begin += 1
    for n in range(begin, n_rows):
        row = n + offset
        bits = threefry(key[0], key[1], np.uint32(row >> 32), np.uint32(row & 0xFFFFFFFF))
        drawn[n] = decide_site(logits[n], bits)


@njit()
def _change_column(k, last, drawn, assignments, left, inner):
    """Replace a column and update the later ones; returns whether anything changed."""
    changed = False
    for n in range(len(drawn)):
        change = np.int64(drawn[n]) - np.int64(assignments[n, k])
        if change != 0:
            changed = True
            assignments[n, k] = drawn[n]
            for j in range(k + 1, inner.shape[0]):
                left[n, j - last] -= change * inner[k, j]
    return changed
