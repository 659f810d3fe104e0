r"""The mixture's log-likelihood and its gradient on rows of a CSR matrix, as machine code.

A row with m entries costs O(m K): its scores are m scaled additions of the weights of its columns,
which are contiguous for all components, and its part of the gradient is m more. The scores of a few
rows stay in the first cache; exponentials are taken of all of them in one long loop of polynomials,
which the compiler turns into vector instructions. Functions take an array and a row index rather
than the row, since making a view would count references each time.

Layout of a row of scores, and of the weights of a column: the gate's n numbers, then n for each
output of the experts. If K is not a multiple of ``WIDTH``, fillers follow, with such a low gate
score that they are never picked.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic, overload

from wideangle.machine_code import njit

WIDTH = 8
"""Components are padded to a multiple of this."""
ROWS = 32
"""Rows whose scores are kept at once."""
NEVER = -1e30
"""Gate score of a filler."""
LOG2_E = 1.0 / math.log(2.0)
OPTIONS: dict[str, Any] = {"error_model": "numpy"}
"""A check for division by 0 would forbid vector instructions."""
IN_ORDER = {"contract"}
"""Fast-math of the exponential: multiply and add may be joined, nothing else."""
LOOSE = {"contract", "reassoc", "nsz", "arcp"}
"""Fast-math of sums. Infinities and NaN are kept: a sampler rejects by them."""


def _reinterpret(source: Any, target: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(signature.return_type))

    return target(source), generate


@intrinsic
def _bits(typing_context: Any, value: Any) -> Any:
    """The bits of a float32."""
    return _reinterpret(types.float32, types.int32)


@intrinsic
def _float(typing_context: Any, bits: Any) -> Any:
    """The float32 with these bits."""
    return _reinterpret(types.int32, types.float32)


def exp_in_place(x: Any, count: int) -> None:
    """Exponentials of the first numbers of a vector, none of them positive."""
    raise NotImplementedError("for compiled code only")


@overload(exp_in_place, jit_options={"fastmath": IN_ORDER, "error_model": "numpy"})
def _exp_in_place(x: Any, count: int) -> Any:
    return _exp_single if x.dtype == types.float32 else _exp_double


def _exp_double(x: Any, count: int) -> None:
    for i in range(count):
        x[i] = math.exp(x[i])


def _exp_single(x: Any, count: int) -> None:
    r""":math:`e^x = 2^n e^r` with :math:`|r|\le\log(2)/2`; never below e^-87, the last normal one.

    Adding 1.5 * 2^23 rounds to an integer in the last bits, which a shift moves to the exponent.
    """
    one, magic, least = np.float32(1.0), np.float32(12582912.0), np.float32(-87.0)
    # log(2) in two parts, the first so short that its multiples are exact
    per_log, high, low = np.float32(LOG2_E), np.float32(0.693359375), np.float32(-2.12194440e-4)
    c2, c3, c4 = np.float32(1 / 2), np.float32(1 / 6), np.float32(1 / 24)
    c5, c6, c7 = np.float32(1 / 120), np.float32(1 / 720), np.float32(1 / 5040)
    for i in range(count):
        v = least if x[i] < least else x[i]  # NaN stays
        shifted = v * per_log + magic
        n = shifted - magic
        r = (v - n * high) - n * low
        power = one + r * (one + r * (c2 + r * (c3 + r * (c4 + r * (c5 + r * (c6 + r * c7))))))
        scale = _float((_bits(shifted) << np.int32(23)) + _bits(one))  # pyright: ignore[reportCallIssue]
        x[i] = power * scale


@njit(fastmath=LOOSE | {"nnan"}, **OPTIONS)
def largest(x: Any, row: int, count: int) -> Any:
    """Largest of the first numbers of a row; a NaN may be missed, and shows elsewhere."""
    top = x[row, 0]
    for k in range(1, count):
        top = max(top, x[row, k])
    return top


@njit(fastmath=LOOSE, **OPTIONS)
def score_row(rows: Any, index: int, vectors: Any, blank: Any, scores: Any, row: int) -> None:
    """Scores of one row: four entries at a time, so that sums are loaded and stored less often."""
    indptr, columns, entries = rows
    width, last = vectors.shape[1], indptr[index + 1]
    nothing = entries.dtype.type(0.0)
    for t in range(width):
        scores[row, t] = blank[t]
    for place in range(indptr[index], last, 4):
        a, i = entries[place], columns[place]
        b, j = (entries[place + 1], columns[place + 1]) if place + 1 < last else (nothing, i)
        c, k = (entries[place + 2], columns[place + 2]) if place + 2 < last else (nothing, i)
        d, m = (entries[place + 3], columns[place + 3]) if place + 3 < last else (nothing, i)
        for t in range(width):
            scores[row, t] += (
                a * vectors[i, t] + b * vectors[j, t] + c * vectors[k, t] + d * vectors[m, t]
            )


@njit(fastmath=LOOSE, **OPTIONS)
def spread_row(rows: Any, index: int, slopes: Any, row: int, gradient: Any) -> None:
    """Add a row's part to the gradient: its slopes, times the entry, to each of its columns."""
    indptr, columns, entries = rows
    for place in range(indptr[index], indptr[index + 1]):
        entry, column = entries[place], columns[place]
        for t in range(gradient.shape[1]):
            gradient[column, t] += entry * slopes[row, t]


@njit(fastmath=LOOSE, **OPTIONS)
def _exponents(scores: Any, row: int, target: int, n: int, powers: Any) -> None:
    """Arguments of the exponentials, none positive. Gate scores become relative."""
    top = largest(scores, row, n)
    for k in range(n):
        relative = scores[row, k] - top
        scores[row, k] = relative
        powers[row, k] = relative
    if powers.shape[1] == 2 * n:
        sign = scores.dtype.type(2 * target - 1)
        for k in range(n, 2 * n):
            margin = sign * scores[row, k]
            scores[row, k] = margin
            powers[row, k] = -abs(margin)
        return
    for k in range(n, 2 * n):  # the first output temporarily holds the largest score
        powers[row, k] = scores[row, k]
    for first in range(2 * n, powers.shape[1], n):
        for k in range(n):
            powers[row, n + k] = max(powers[row, n + k], scores[row, first + k])
    for first in range(powers.shape[1] - n, 0, -n):
        for k in range(n):
            powers[row, first + k] = scores[row, first + k] - powers[row, n + k]


@njit(fastmath=LOOSE, **OPTIONS)
def _logistic(scores: Any, powers: Any, row: int, target: int, likelihood: Any) -> None:
    """Likelihood of each expert; powers of its margin become the slopes of its logarithm."""
    one, n = powers.dtype.type(1.0), likelihood.shape[0]
    sign = powers.dtype.type(2 * target - 1)
    for k in range(n):
        small = powers[row, n + k]
        larger = one / (one + small)
        smaller = small * larger
        right = scores[row, n + k] > 0
        likelihood[k] = larger if right else smaller
        powers[row, n + k] = sign * (smaller if right else larger)


@njit(fastmath=LOOSE, **OPTIONS)
def _softmax(powers: Any, row: int, target: int, likelihood: Any) -> None:
    """Like :func:`_logistic`, for three classes or more."""
    one, n = powers.dtype.type(1.0), likelihood.shape[0]
    for k in range(n):
        likelihood[k] = powers[row, n + k]
    for first in range(2 * n, powers.shape[1], n):
        for k in range(n):
            likelihood[k] += powers[row, first + k]
    for k in range(n):
        likelihood[k] = one / likelihood[k]
    for first in range(n, powers.shape[1], n):
        for k in range(n):
            powers[row, first + k] *= -likelihood[k]
    chosen = (target + 1) * n
    for k in range(n):
        likelihood[k] = -powers[row, chosen + k]
        powers[row, chosen + k] += one


@njit(**OPTIONS)
def _log_likelihood(scores: Any, row: int, target: int, n: int, k: int) -> float:
    """Log-likelihood of expert k, without underflow."""
    if scores.shape[1] == 2 * n:
        margin = float(scores[row, n + k])
        return min(margin, 0.0) - math.log1p(math.exp(-abs(margin)))
    top = -math.inf
    for t in range(n + k, scores.shape[1], n):
        top = max(top, float(scores[row, t]))
    total = 0.0
    for t in range(n + k, scores.shape[1], n):
        total += math.exp(scores[row, t] - top)
    return scores[row, (target + 1) * n + k] - top - math.log(total)


@njit(**OPTIONS)
def _rescue(scores: Any, row: int, target: int, joint: Any) -> float:
    """Joint probabilities over the largest one, for a row where all underflow; its logarithm."""
    n = joint.shape[0]
    top = -math.inf
    for k in range(n):
        top = max(top, scores[row, k] + _log_likelihood(scores, row, target, n, k))
    for k in range(n):
        joint[k] = math.exp(scores[row, k] + _log_likelihood(scores, row, target, n, k) - top)
    return top


@njit(fastmath=LOOSE, **OPTIONS)
def _mix(scores: Any, powers: Any, row: int, target: int, weight: Any, joint: Any) -> float:
    """Sum out the choice of expert: the row's value; powers become slopes of its scores."""
    n, nothing = joint.shape[0], powers.dtype.type(0.0)
    if powers.shape[1] == 2 * n:
        _logistic(scores, powers, row, target, joint)
    else:
        _softmax(powers, row, target, joint)
    total, evidence, shift = nothing, nothing, 0.0
    for k in range(n):
        joint[k] *= powers[row, k]
        total += powers[row, k]
        evidence += joint[k]
    if evidence < 1e-20:  # noqa: PLR2004 - what has underflowed could matter here
        shift = _rescue(scores, row, target, joint)
        evidence = nothing
        for k in range(n):
            evidence += joint[k]
    after, before = weight / evidence, weight / total
    for k in range(n):
        posterior = joint[k] * after
        powers[row, k] = posterior - powers[row, k] * before
        joint[k] = posterior
    for first in range(n, powers.shape[1], n):
        for k in range(n):
            powers[row, first + k] *= joint[k]
    return weight * (math.log(evidence) - math.log(total) + shift)


@njit(fastmath=LOOSE, **OPTIONS)
def accumulate(
    rows: Any,
    targets: Any,
    weights: Any,
    vectors: Any,
    blank: Any,
    n: int,
    part: Any,
    gradient: Any,
) -> float:
    """Log-likelihood of some rows; adds its gradient to ``gradient`` unless that is empty.

    Parameters
    ----------
    rows
        CSR parts ``(indptr, indices, data)``.
    targets, weights
        Classes 0, 1, ..., and positive weights of all rows.
    vectors
        Weights by column, (p, (1 + O) n), see the top of this file.
    blank
        Scores of an empty row: 0, and ``NEVER`` at the gates of fillers.
    n
        Components, fillers included.
    part
        First row and the one after the last.
    gradient
        Array like ``vectors``, or (0, ...) to compute the value only.
    """
    dtype, width = vectors.dtype, vectors.shape[1]
    scores, powers = np.empty((ROWS, width), dtype), np.empty((ROWS, width), dtype)
    flat = powers.reshape(-1)
    joint, value = np.empty(n, dtype), 0.0
    for start in range(part[0], part[1], ROWS):
        count = min(ROWS, part[1] - start)
        for row in range(count):
            score_row(rows, start + row, vectors, blank, scores, row)
            _exponents(scores, row, targets[start + row], n, powers)
        exp_in_place(flat, count * width)
        for row in range(count):
            here = start + row
            value += _mix(scores, powers, row, targets[here], weights[here], joint)
            if gradient.shape[0] > 0:
                spread_row(rows, here, powers, row, gradient)
    return value
