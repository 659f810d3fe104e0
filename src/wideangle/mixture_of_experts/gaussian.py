r"""Gaussian experts: a mean and a noise, both linear in the row.

.. math:: p_k(y\mid x) = N\bigl(y;\ \beta_{k1}\cdot x,\ s_k(x)^2\bigr),\qquad
          s_k(x)^2 = f^2 + \bigl(e^{-2t} + c^{-2}\bigr)^{-1},\quad t = \beta_{k2}\cdot x

Targets are in units of their standard deviation. Between its two ends the noise is :math:`e^t`. The
floor f keeps the posterior proper: an expert that passes through rows of one value exactly, such as
the zeros of a quantity that is often 0, would gain without end from ever smaller noise. The ceiling
c keeps rows far outside from an infinite one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.mixture_of_experts.data import Data, linear_start
from wideangle.mixture_of_experts.likelihood import ExpertTerms
from wideangle.types import Array

FLOOR, CEILING = 0.01, 10.0
"""Least and most noise, in standard deviations of the targets."""
FARTHEST = 20.0
"""Scores of the noise are cut off here, far beyond both ends: exponentials stay finite."""
HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class Noise(NamedTuple):
    """Variance at each score, and the derivative of the log standard deviation."""

    variance: Any
    slope: Any


@jax.tree_util.register_static
@dataclass(frozen=True)
class GaussianExperts:
    """A quantity: output 0 is its mean, output 1 the logarithm of its noise."""

    floor: float = FLOOR
    """Least standard deviation of the noise."""
    alike: ClassVar[bool] = False

    @property
    def n_outputs(self) -> int:
        """Mean and noise."""
        return 2

    def noise(self, scores: Any, numpy: Any = jnp) -> Noise:
        """The noise at scores of any shape, by JAX or by NumPy."""
        inverse = numpy.exp(-2.0 * numpy.clip(scores, -FARTHEST, FARTHEST))
        free = 1.0 / (inverse + CEILING**-2)
        variance = self.floor**2 + free
        return Noise(variance, free * (inverse * free) / variance)

    def terms(self, scores: Array, targets: Array) -> ExpertTerms:
        """Targets are standardised."""
        noise = self.noise(scores[:, 1])
        precision = 1.0 / noise.variance
        away = targets - scores[:, 0]
        square = away * away * precision
        # Relative to the floor, whose density is the largest there is.
        factor = self.floor * jnp.sqrt(precision)
        exponent = -0.5 * square - (math.log(self.floor) + HALF_LOG_TWO_PI)
        slope = jnp.stack([away * precision, (square - 1.0) * noise.slope], axis=1)
        return ExpertTerms(exponent, factor, slope)

    def mean(self, scores: Array) -> Array:
        """Expected target."""
        return scores[:, :1]

    def information(self, scores: Array) -> Array:
        """Of mean and noise, which are independent."""
        noise = self.noise(scores[:, 1])
        diagonal = jnp.stack([1.0 / noise.variance, 2.0 * noise.slope**2], axis=1)
        return jnp.eye(2, dtype=scores.dtype)[:, :, None] * diagonal[:, :, None]

    def start(self, data: Data) -> np.ndarray:
        """Ridge regression, and the noise that it leaves."""
        return linear_start(data)
