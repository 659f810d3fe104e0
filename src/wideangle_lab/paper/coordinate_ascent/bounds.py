r"""Quadratic lower bounds that make logistic and softmax terms tractable under a factor.

Both take the mean :math:`m` and the variance :math:`v` of a score under q, never its second moment:
:math:`v + (m-c)^2` keeps its digits where :math:`E x^2 - 2cm + c^2` cancels.

Paper: inequalities VI and VII of Appendix A (:cite:`jaakkola2000,bouchard2007`). Components are the
first axis, rows the last.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from wideangle.types import Array


def logistic_curvature(split: Array) -> Array:
    r""":math:`\lambda(\xi) = \tanh(\xi/2)/(4\xi)`, which is 1/8 at 0 and positive everywhere."""
    live = split > 1e-4  # noqa: PLR2004  below it the error of 1/8 is under 1e-9
    safe = jnp.where(live, split, 1.0)
    return jnp.where(live, jnp.tanh(0.5 * safe) / (4.0 * safe), 0.125)


def logistic_bound(mean: Array, variance: Array, split: Array) -> Array:
    r"""Lower bound on :math:`E\log\sigma(x)`, for any split :math:`\xi \ge 0`.

    .. math:: \log\sigma(\xi) + \frac{m - \xi}{2} - \lambda(\xi)\,(v + m^2 - \xi^2)

    Paper: inequality VII. Differs from the paper: for a target in {0, 1} the mean must be that of
    :math:`(2y-1)\,\beta\cdot x`; the expectation in Appendix B drops the sign, and is then not a
    bound.
    """
    excess = variance + (mean - split) * (mean + split)
    return jax.nn.log_sigmoid(split) + 0.5 * (mean - split) - logistic_curvature(split) * excess


def logistic_split(mean: Array, variance: Array) -> Array:
    r"""The split that makes :func:`logistic_bound` tightest, :math:`\xi^2 = v + m^2`."""
    return jnp.sqrt(variance + mean**2)


def softmax_bound(means: Array, variances: Array, shift: Array, splits: Array) -> Array:
    r"""Lower bound on :math:`-E\log\sum_k e^{x_k}`, for any shift c and splits d; (K, N) to (N,).

    .. math:: -c + \sum_k \mathrm{logistic\_bound}(c - m_k, v_k, d_k)

    With one component the sum is a single exponential and the value :math:`-m` exact; the bound
    only reaches it as c goes to minus infinity.

    Paper: inequalities VI and VII. Differs from the paper: the equality sign of the gate's
    expectation is an inequality, and c is subtracted once per row, not once per row and component.
    """
    if means.shape[0] == 1:
        return -means[0]
    return jnp.sum(logistic_bound(shift - means, variances, splits), axis=0) - shift


def softmax_splits(means: Array, variances: Array, shift: Array) -> Array:
    """The splits that make :func:`softmax_bound` tightest for a given shift."""
    return logistic_split(shift - means, variances)


def softmax_shift(means: Array, splits: Array) -> Array:
    r"""The shift that makes :func:`softmax_bound` tightest for given splits.

    .. math:: c = \frac{K/2 - 1 + 2\sum_k\lambda(d_k) m_k}{2\sum_k\lambda(d_k)}

    Alternated with :func:`softmax_splits` it ends where :func:`solve_softmax_shift` does, but from
    a cold start six rounds leave many nats on the table.
    """
    weights = logistic_curvature(splits)
    target = 0.5 * means.shape[0] - 1.0
    return (target + 2.0 * jnp.sum(weights * means, axis=0)) / (2.0 * jnp.sum(weights, axis=0))


def solve_softmax_shift(means: Array, variances: Array, start: Array | None = None) -> Array:
    r"""The shift that is best together with its splits, (K, N) to (N,).

    Solves the increasing equation :math:`2\sum_k (c - m_k)\lambda(d_k) = K/2 - 1`, where
    :math:`d_k^2 = v_k + (c - m_k)^2`, by Newton steps kept inside a shrinking bracket and replaced
    by its midpoint where they leave it. The bracket is certain: at the smallest mean every term is
    below 0, at :math:`\max_k[m_k + \max(\log(2K-1), \sqrt{v_k}(K-1)/\sqrt{2K-1})]` every term is
    above its share.
    """
    n = means.shape[0]
    if n == 1:
        return means[0]
    root = math.sqrt(2 * n - 1)
    reach = jnp.maximum(math.log(2 * n - 1), jnp.sqrt(variances) * ((n - 1) / root))
    low, high = jnp.min(means, axis=0), jnp.max(means + reach, axis=0)
    eps = jnp.finfo(means.dtype).eps

    def improve(state: tuple[Array, ...]) -> tuple[Array, ...]:
        count, shift, low, high, _ = state
        away = shift - means
        square = variances + away**2
        weights = logistic_curvature(jnp.sqrt(square))
        value = 2.0 * jnp.sum(away * weights, axis=0) - (0.5 * n - 1.0)
        share = away**2 / jnp.maximum(square, jnp.finfo(means.dtype).tiny)
        flat = 0.125 - 2.0 * square * weights**2  # sech^2(d/2) / 8
        slope = 2.0 * jnp.sum((1.0 - share) * weights + share * flat, axis=0)
        low, high = jnp.where(value < 0, shift, low), jnp.where(value > 0, shift, high)
        new = shift - value / jnp.maximum(slope, jnp.finfo(means.dtype).tiny)
        new = jnp.where((new >= low) & (new <= high), new, 0.5 * (low + high))
        moved = jnp.abs(new - shift) > 4.0 * eps * (1.0 + jnp.abs(shift))
        return count + 1, new, low, high, jnp.any(moved)

    shift = 0.5 * (low + high) if start is None else jnp.clip(start, low, high)
    state = (jnp.zeros((), jnp.int32), shift, low, high, jnp.ones((), bool))
    # 60 halvings exhaust any bracket; from the last sweep's shift three Newton steps are usual.
    return lax.while_loop(lambda s: s[-1] & (s[0] < 60), improve, state)[1]  # noqa: PLR2004
