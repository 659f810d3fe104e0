r"""Experts that predict a quantity: a mean and a noise, both linear in the row.

.. math:: p_k(y\mid x) = N\bigl(y;\ \beta_{k1}\cdot x,\ s_k(x)^2\bigr),\qquad
          s_k(x)^2 = f^2 + \bigl(e^{-v} + c^{-2}\bigr)^{-1},\quad v = \beta_{k2}\cdot x

Targets are in units of their standard deviation. Between its two bounds the variance of the noise
is :math:`e^v`. Weights of mean and noise share one prior, and columns are less informative about
the noise than about the mean: with the log standard deviation in place of the log variance, all
weights were shrunk too much if columns are weak. The floor f keeps the posterior proper: an expert
that fits rows of one value exactly, such as the zeros of a quantity that is often 0, would gain
without limit from ever smaller noise. The ceiling c keeps the noise of rows far outside the data
finite.

In one draw the predictive distribution of a row is a mixture of K Gaussians, and over S draws one
of S K. All of it is in the model's units, standard deviations of the targets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from scipy.special import ndtr, ndtri
from threadpoolctl import threadpool_limits

from wideangle.mixture_of_experts.data import Data, some_rows
from wideangle.mixture_of_experts.likelihood import ExpertTerms, Weights, softmax
from wideangle.mixture_of_experts.predict import (
    chosen_draws,
    in_blocks,
    log_lik_of_rows,
    over_draws,
    score,
)
from wideangle.posterior import Draws

FLOOR, CEILING = 0.01, 10.0
"""Bounds of the noise, in standard deviations of the targets."""
FARTHEST = 20.0
"""Scores of the noise are clipped here, beyond both bounds: exponentials stay finite."""
HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
LEAST_NOISE = 0.02
"""Smallest initial noise of experts, in standard deviations of the targets."""
DECIMALS = 3
"""Rounding of predictions that are watched, in standard deviations of the targets."""
MOST_STEPS, CLOSE = 100, 1e-9
"""Search for a quantile: most steps, and the size of the last in standard deviations of a row."""
BLOCK_PARTS = 2**17
"""Gaussians of a block of rows, in all draws, whose distribution functions are summed at once."""


class Noise(NamedTuple):
    """Variance at each score, and the derivative of the log standard deviation."""

    variance: Any
    slope: Any


@jax.tree_util.register_static
@dataclass(frozen=True)
class GaussianExperts:
    """A quantity: output 0 is its mean, output 1 the logarithm of its variance."""

    floor: float = FLOOR
    """Smallest standard deviation of the noise."""
    alike: ClassVar[bool] = False
    needed: ClassVar[tuple[str, ...]] = ("prediction", "spread")

    n_outputs: ClassVar[int] = 2

    def noise(self, scores: Any) -> Noise:
        """The noise at scores of any shape."""
        xp = scores.__array_namespace__()
        inverse = xp.exp(-xp.clip(scores, -FARTHEST, FARTHEST))
        free = 1.0 / (inverse + CEILING**-2)
        variance = self.floor**2 + free
        return Noise(variance, 0.5 * free * (inverse * free) / variance)

    def terms(self, scores: Any, targets: Any) -> ExpertTerms:
        """Targets are standardised."""
        xp, noise = scores.__array_namespace__(), self.noise(scores[..., 1, :])
        precision = 1.0 / noise.variance
        away = targets - scores[..., 0, :]
        square = away * away * precision
        # Relative to the floor, which has the largest possible density.
        factor = self.floor * xp.sqrt(precision)
        exponent = -0.5 * square - (math.log(self.floor) + HALF_LOG_TWO_PI)
        slope = xp.stack([away * precision, (square - 1.0) * noise.slope], axis=-2)
        return ExpertTerms(exponent, factor, slope)

    def mean(self, scores: Any) -> Any:
        """Expected target."""
        return scores[..., :1, :]

    def information(self, scores: Any) -> Any:
        """Information of mean and noise, which are independent."""
        noise = self.noise(scores[:, 1])
        return jnp.stack([1.0 / noise.variance, 2.0 * noise.slope**2], axis=1)

    def start(self, data: Data) -> np.ndarray:
        """Ridge regression, and its residual noise."""
        return _linear_start(data)

    def watch(self, weights: Weights, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Mean and standard deviation at each row, (S, n), rounded."""
        mean, variance = _by_draw(parts_of(self, weights, rows))
        rounded = (np.round(one, DECIMALS).astype(np.float32) for one in (mean, np.sqrt(variance)))
        return dict(zip(("prediction", "spread"), rounded, strict=True))

    def draw(self, rng: np.random.Generator, weights: Weights, rows: Any) -> np.ndarray:
        """A target of each row from each draw, (S, n)."""
        every = np.tile(np.arange(len(weights.gate)), (rows.shape[0], 1))
        return draw_from(rng, parts_of(self, weights, rows), every).T

    def moments(self, gate: Any, scores: Any, shares: Any) -> Any:
        """Mean, and variances within and between draws of these weights, (n, 3)."""
        by_draw, variance = _by_draw(self._parts(gate, scores))
        mean = shares @ by_draw
        parts = mean, shares @ variance, shares @ (by_draw - mean) ** 2
        return gate.__array_namespace__().stack(parts, axis=1)

    def _parts(self, gate: Any, scores: Any) -> Parts:
        variance = self.noise(scores[..., 1, :]).variance
        return Parts(softmax(gate), scores[..., 0, :], variance)


def _linear_start(data: Data) -> np.ndarray:
    """Ridge regressions, (2, p), of the targets and of a constant, their log variance."""
    from sklearn.linear_model import Ridge

    host = (x if sp.issparse(x) else np.asarray(x) for x in some_rows(data))
    rows, targets, weights = (x.astype(np.float64) for x in host)
    live = weights > 0
    rows, targets, weights = rows[live], targets[live], weights[live]
    model = Ridge(fit_intercept=False)
    with threadpool_limits(1, "blas"):  # same for any thread count
        means = model.fit(rows, targets, sample_weight=weights).coef_
        square = np.average((targets - model.predict(rows)) ** 2, weights=weights)
        noise = np.full(len(targets), np.log(max(square, LEAST_NOISE**2)))
        return np.stack([means, model.fit(rows, noise, sample_weight=weights).coef_])


# ---- predictions


class Moments(NamedTuple):
    """Moments of the predictive distribution of each row, (N,)."""

    mean: np.ndarray
    within: np.ndarray
    """Mean variance of single draws: noise that more data would not remove."""
    between: np.ndarray
    """Variance of their means: disagreement between draws."""


class Parts(NamedTuple):
    """The Gaussians of each draw, axes (S, K, n)."""

    gate: np.ndarray
    mean: np.ndarray
    variance: np.ndarray


def parts_of(expert: GaussianExperts, weights: Weights, rows: Any) -> Parts:
    """Predictions of every expert for some rows, in double precision."""
    found = expert._parts(*score(weights, rows, np.float64))
    return Parts(*(part[..., : rows.shape[0]] for part in found))


def _by_draw(parts: Parts) -> tuple[Any, Any]:
    """Mean and variance of each row in each draw, (S, n)."""
    mean = (parts.gate * parts.mean).sum(axis=1)
    apart = parts.mean - mean[:, None]
    return mean, (parts.gate * (parts.variance + apart**2)).sum(axis=1)


def moments(
    expert: GaussianExperts, draws: Draws, rows: Any, chain_weights: np.ndarray | None = None
) -> Moments:
    """Mean and variances over draws; ``chain_weights`` are equal by default."""
    return Moments(*over_draws(expert.moments, draws, rows, chain_weights, np.float64).T)


def quantiles(
    expert: GaussianExperts,
    draws: Draws,
    rows: Any,
    levels: np.ndarray,
    chain_weights: np.ndarray | None = None,
) -> np.ndarray:
    """Quantiles of the predictive distribution, (N, Q): roots of its distribution function."""
    weights, shares = chosen_draws(draws, chain_weights)
    answer = partial(_quantiles, expert, weights, shares, np.asarray(levels, np.float64))
    return in_blocks(answer, _rows_of(weights), rows)


def _rows_of(weights: Weights) -> int:
    """Rows of a block whose Gaussians fit the cache."""
    return max(BLOCK_PARTS // (weights.gate.shape[0] * weights.gate.shape[1]), 1)


def _joined(parts: Parts, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, means and deviations of all Gaussians of each row, (n, S K)."""
    gate = parts.gate * shares[:, None, None]
    flat = (gate, parts.mean, np.sqrt(parts.variance))
    return tuple(np.ascontiguousarray(part.reshape(-1, part.shape[2]).T) for part in flat)  # pyright: ignore[reportReturnType]


def _quantiles(
    expert: GaussianExperts, weights: Weights, shares: np.ndarray, levels: np.ndarray, rows: Any
) -> np.ndarray:
    gaussians = _joined(parts_of(expert, weights, rows), shares)
    return np.stack([_quantile(*gaussians, level) for level in levels], axis=1)


def _quantile(
    weight: np.ndarray, mean: np.ndarray, deviation: np.ndarray, level: float
) -> np.ndarray:
    """Newton's method within shrinking bounds, for all rows at once.

    The quantile of a mixture lies between those of its parts.
    """
    place = ndtri(level)
    ends = mean + place * deviation
    low, high = ends.min(axis=1), ends.max(axis=1)
    centre = np.sum(weight * mean, axis=1)
    size = np.sqrt(np.sum(weight * (deviation**2 + (mean - centre[:, None]) ** 2), axis=1))
    x = np.clip(centre + place * size, low, high)
    step = high - low
    for _ in range(MOST_STEPS):
        z = (x[:, None] - mean) / deviation
        error = np.sum(weight * ndtr(z), axis=1) - level
        slope = np.sum(weight * np.exp(-0.5 * z * z) / deviation, axis=1) * np.exp(-HALF_LOG_TWO_PI)
        low, high = np.where(error < 0, x, low), np.where(error < 0, high, x)
        newton = error / np.maximum(slope, 1e-300)
        inside = (x - newton >= low) & (x - newton <= high)
        # Newton's step is taken if it stays inside and is at most half as long as the one before.
        good = inside & (np.abs(newton) <= 0.5 * np.abs(step))
        step = np.where(good, newton, x - 0.5 * (low + high))
        x = x - step
        if np.all(np.abs(step) <= CLOSE * size):
            break
    return x


def log_density(
    expert: GaussianExperts,
    draws: Draws,
    rows: Any,
    targets: np.ndarray,
    chain_weights: np.ndarray | None = None,
) -> np.ndarray:
    """Log predictive density of the target of each row, (N,)."""
    weights, shares = chosen_draws(draws, chain_weights)
    with np.errstate(divide="ignore"):
        log_shares = np.log(shares)[:, None]

    def answer(rows: Any, targets: np.ndarray) -> np.ndarray:
        by_draw = log_lik_of_rows(expert, weights, rows, targets)
        return np.logaddexp.reduce(by_draw + log_shares, axis=0)

    return in_blocks(answer, _rows_of(weights), rows, targets)


def draw_from(rng: np.random.Generator, parts: Parts, which: np.ndarray) -> np.ndarray:
    """Targets of rows, (n, m), from the draws ``which`` (n, m)."""
    row = np.arange(len(which))[:, None]
    below = np.cumsum(parts.gate, axis=1)[which, :, row]  # (n, m, K)
    level = rng.random((*which.shape, 1)) * below[..., -1:]
    expert = np.sum(below[..., :-1] < level, axis=2)
    mean, variance = (part[which, expert, row] for part in (parts.mean, parts.variance))
    return mean + np.sqrt(variance) * rng.standard_normal(which.shape)
