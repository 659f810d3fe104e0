"""The log-likelihood of Gaussian experts on rows of a CSR matrix, as machine code.

Shares the layout and the loops over entries of ``sparse_kernel.py``. Exponentials are taken
twice: of gate and noise, and then of the densities relative to the largest.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from wideangle.machine_code import njit
from wideangle.mixture_of_experts.quantities import CEILING, FARTHEST, HALF_LOG_TWO_PI
from wideangle.mixture_of_experts.sparse_kernel import (
    LOOSE,
    OPTIONS,
    ROWS,
    exp_in_place,
    largest,
    score_row,
    spread_row,
)


@njit(fastmath=LOOSE, **OPTIONS)
def _gate_and_noise(scores: Any, row: int, n: int, powers: Any) -> None:
    """Arguments of the first exponentials, none positive. Gate scores become relative."""
    top = largest(scores, row, n)
    farthest = scores.dtype.type(FARTHEST)
    for k in range(n):
        relative = scores[row, k] - top
        scores[row, k] = relative
        powers[row, k] = relative
        powers[row, n + k] = -min(abs(scores[row, 2 * n + k]), farthest)


@njit(fastmath=LOOSE, **OPTIONS)
def _densities(
    scores: Any, powers: Any, row: int, target: Any, floor: Any, precision: Any, exponent: Any
) -> float:
    """Exponents of gate and density relative to the largest, which is returned.

    The scores of mean and noise become the slopes of the log density in them.
    """
    n, one, half = exponent.shape[1], floor.dtype.type(1.0), floor.dtype.type(0.5)
    inverse_ceiling = floor.dtype.type(CEILING**-2)
    for k in range(n):
        small = powers[row, n + k]
        inverse = small if scores[row, 2 * n + k] > 0 else one / small
        free = one / (inverse + inverse_ceiling)
        certain = one / (floor[0] * floor[0] + free)
        away = target - scores[row, n + k]
        square = away * away * certain
        precision[row, k] = certain
        exponent[row, k] = scores[row, k] - half * square
        scores[row, n + k] = away * certain
        scores[row, 2 * n + k] = half * (square - one) * free * (inverse * free) * certain
    top = largest(exponent, row, n)
    for k in range(n):
        exponent[row, k] -= top
    return top


@njit(fastmath=LOOSE, **OPTIONS)
def _mix(
    scores: Any, powers: Any, row: int, weight: Any, floor: Any, precision: Any, joint: Any
) -> float:
    """Sum out the choice of expert: the row's value; scores become slopes of the scores."""
    n, nothing = joint.shape[1], scores.dtype.type(0.0)
    total, evidence = nothing, nothing
    for k in range(n):
        joint[row, k] *= floor[0] * math.sqrt(precision[row, k])
        total += powers[row, k]
        evidence += joint[row, k]
    after, before = weight / evidence, weight / total
    for k in range(n):
        posterior = joint[row, k] * after
        scores[row, k] = posterior - powers[row, k] * before
        scores[row, n + k] *= posterior
        scores[row, 2 * n + k] *= posterior
    return math.log(evidence) - math.log(total)


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
    floor: Any,
) -> float:
    """Like ``sparse_kernel.accumulate``; ``floor`` (1,) is the smallest noise."""
    dtype, width = vectors.dtype, vectors.shape[1]
    scores, powers = np.empty((ROWS, width), dtype), np.empty((ROWS, 2 * n), dtype)
    precision, joint = np.empty((ROWS, n), dtype), np.empty((ROWS, n), dtype)
    tops = np.empty(ROWS, np.float64)
    constant, value = -math.log(floor[0]) - HALF_LOG_TWO_PI, 0.0
    for start in range(part[0], part[1], ROWS):
        count = min(ROWS, part[1] - start)
        for row in range(count):
            score_row(rows, start + row, vectors, blank, scores, row)
            _gate_and_noise(scores, row, n, powers)
        exp_in_place(powers.reshape(-1), count * 2 * n)
        for row in range(count):
            tops[row] = _densities(
                scores, powers, row, targets[start + row], floor, precision, joint
            )
        exp_in_place(joint.reshape(-1), count * n)
        for row in range(count):
            here = start + row
            found = _mix(scores, powers, row, weights[here], floor, precision, joint)
            value += weights[here] * (found + tops[row] + constant)
            if gradient.shape[0] > 0:
                spread_row(rows, here, scores, row, gradient)
    return value
