"""Redrawing assignments row by row: the CPU form of ``latent_features/sampler/assignments.py``.

Rows are independent given the features, except through the last active feature, so every column
before it can be visited row by row: a row's products with the features stay in cache and change
only when an assignment flips. The few columns from the last active one on are then visited column
by column. The random numbers are those of the column form, made where they are used (JAX's threefry
generator, a function of key and counter), so both forms give the same assignments.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numba import types
from numba.extending import intrinsic

from wideangle.latent_features.rows.parallel import over_rows
from wideangle.latent_features.sampler.assignments import Noise

CERTAIN = 23.0
"""Log-odds beyond which the smallest uniform, 2^-33, decides: no exponential is needed."""
SAFELY_ONE = 1.0 + 1e-9
"""So far above 1 that no rounding of the exponential could change a decision."""


def sweep_rows(
    noise: Noise,
    assignments: np.ndarray,
    products: np.ndarray,
    inner: np.ndarray,
    weights: np.ndarray,
    n_live: int,
    variance: float,
) -> np.ndarray:
    """Redraw every assignment; arguments and result as for ``assignments.sweep_columns``."""
    assignments = np.array(assignments, np.uint8)
    n_rows, _ = assignments.shape
    n_live = int(n_live)
    if n_live == 0 or n_rows == 0:
        return assignments
    products = np.asarray(products)
    dtype = products.dtype
    used = np.flatnonzero(assignments.any(axis=0))
    last = int(used[-1]) if used.size else 0  # columns from here on are coupled
    live_weights = np.asarray(weights)[:n_live].astype(np.float64)
    log_odds = (np.log(live_weights) - np.log1p(-live_weights)).astype(dtype)
    inner = np.ascontiguousarray(np.asarray(inner)[:n_live, :n_live], dtype)
    keys = np.ascontiguousarray(np.asarray(noise.keys)[:n_live].T)
    rest = np.empty((n_rows, n_live - last), dtype)
    precision = dtype.type(1.0 / float(variance))

    def block(start: int, stop: int) -> None:
        rows_before(
            start, stop, 0, keys, assignments, products, inner, log_odds, precision, last, n_live,
            rest,
        )  # fmt: skip

    over_rows(block, n_rows, n_rows * n_live)
    any_row, first_row = (np.asarray(part, np.float64) for part in noise[1:])
    _tail(
        keys, any_row, first_row, assignments, rest, inner, log_odds, live_weights, precision, last
    )
    return assignments


@intrinsic
def _rotate(_typing, _word, _count):
    """Rotate 32 bits to the left. Numba's own shifts have 64 bits, twice the work."""

    def generate(_context, builder, _signature, arguments):
        word, count = arguments
        rest = builder.sub(count.type(32), count)
        return builder.or_(builder.shl(word, count), builder.lshr(word, rest))

    return types.uint32(types.uint32, types.uint32), generate


@numba.njit(cache=True, nogil=True, inline="always")
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


@numba.njit(cache=True, nogil=True)
def site_bits(keys, row):
    """Random bits of one row, one per column; ``keys`` is (2, K)."""
    bits = np.empty(keys.shape[1], np.uint32)
    _fill_bits(keys[0], keys[1], row, bits)
    return bits


@numba.njit(cache=True, nogil=True)
def _fill_bits(first_words, second_words, row, bits):
    """The same into an array that is there, from the two words of each key."""
    high, low = np.uint32(row >> 32), np.uint32(row & 0xFFFFFFFF)
    for k in range(len(bits)):
        bits[k] = threefry(first_words[k], second_words[k], high, low)


@numba.njit(cache=True, nogil=True, inline="always")
def decide_site(logit, bits):
    """See ``assignments.decide``."""
    if logit > CERTAIN:
        return True
    if logit < -CERTAIN:
        return False
    uniform = (np.float64(bits) + 0.5) * 2.0**-32
    size = abs(np.float64(logit))
    # exp(size) > 1 + size + size^2 / 2 settles most sites without an exponential.
    if uniform * (2.0 + size * (1.0 + 0.5 * size)) > SAFELY_ONE:
        return logit > 0
    flip = uniform < 1.0 / (1.0 + math.exp(size))
    return (logit > 0) != flip


@numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc"})
def rows_before(
    start,
    stop,
    offset,
    keys,
    used,
    products,
    inner,
    log_odds,
    precision,
    last,
    n_live,
    rest,
):
    """Columns before ``last``, row by row; leaves what the later columns need in ``rest``.

    Row ``n`` of the arrays is row ``n + offset`` of all.
    """
    pull = np.empty(n_live, products.dtype)
    bits = np.empty(last, np.uint32)
    half = products.dtype.type(0.5)
    for n in range(start, stop):
        for k in range(n_live):
            pull[k] = products[n, k]
        for j in range(n_live):
            if used[n, j]:
                for k in range(n_live):
                    pull[k] -= inner[j, k]
        _fill_bits(keys[0], keys[1], n + offset, bits)
        for k in range(last):
            own = inner[k, k]
            gain = pull[k] - half * own
            if used[n, k]:
                gain += own
            one = decide_site(log_odds[k] + gain * precision, bits[k])
            if one and not used[n, k]:
                used[n, k] = 1
                for j in range(n_live):
                    pull[j] -= inner[k, j]
            elif not one and used[n, k]:
                used[n, k] = 0
                for j in range(n_live):
                    pull[j] += inner[k, j]
        for k in range(last, n_live):
            rest[n, k - last] = pull[k]


@numba.njit(cache=True, nogil=True)
def _tail(
    keys,
    any_row,
    first_row,
    used,
    rest,
    inner,
    log_odds,
    weights,
    precision,
    last,
):
    """Columns from ``last`` on: nothing later is active, so the rows are coupled."""
    n_rows = used.shape[0]
    n_live = log_odds.shape[0]
    ceiling = 1.0 / n_rows
    bound = ceiling
    for k in range(last):
        for n in range(n_rows):
            if used[n, k]:
                bound = min(weights[k], ceiling)
                break
    logit = np.empty(n_rows)
    log_unused = np.empty(n_rows)
    for k in range(last, n_live):
        own = inner[k, k]
        total = 0.0
        for n in range(n_rows):
            gain = rest[n, k - last] - 0.5 * own
            if used[n, k]:
                gain += own
            logit[n] = log_odds[k] + gain * precision
            total -= max(logit[n], 0.0) + math.log1p(math.exp(-abs(logit[n])))
            log_unused[n] = total
        column = np.zeros(n_rows, np.uint8)
        with_it = min(weights[k], ceiling)
        if not nobody(total, bound, with_it, any_row[k]):
            _given_any(keys[:, k], logit, log_unused, first_row[k], column)
            bound = with_it
        for n in range(n_rows):
            change = np.int64(column[n]) - np.int64(used[n, k])
            if change != 0:
                used[n, k] = column[n]
                for j in range(k + 1, n_live):
                    rest[n, j - last] -= change * inner[k, j]


@numba.njit(cache=True, nogil=True)
def nobody(log_none, without, with_it, uniform):
    """Whether no row uses a feature after which nothing is active."""
    any_probability = -math.expm1(log_none)
    if any_probability <= 0.0:
        return True
    difference = log_none - math.log(without) - math.log(any_probability) + math.log(with_it)
    return uniform < 1.0 / (1.0 + math.exp(min(-difference, 700.0)))


@numba.njit(cache=True, nogil=True)
def _given_any(key, logit, log_unused, uniform, column):
    """Rows that use the feature, given that at least one does: the first one, then the others."""
    n_rows = column.shape[0]
    target = uniform * -math.expm1(log_unused[n_rows - 1])
    first = 0
    while first < n_rows - 1 and -math.expm1(log_unused[first]) < target:
        first += 1
    column[first] = 1
    for n in range(first + 1, n_rows):
        bits = threefry(key[0], key[1], np.uint32(n >> 32), np.uint32(n & 0xFFFFFFFF))
        column[n] = decide_site(logit[n], bits)
