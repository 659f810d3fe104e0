r"""Mean-field factors: the variational family in which the type II prior is tractable.

.. math:: q(A) = \prod_k \mathrm{vMF}(\tilde a_k;\hat a_k,\hat\kappa_k)
          \,\mathrm{Gamma}(g_k; r_k, s_k)
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import random
from jax.scipy.special import digamma, gammaln

from wideangle.sphere import vmf
from wideangle.sphere.vmf import mean_resultant
from wideangle.types import Array, Components, Key


class VmfGammaFactors(NamedTuple):
    r"""One vMF and one Gamma factor per component; a pytree that optimisers can move.

    Concentrations should scale with the dimension: at :math:`\hat\kappa \ll p` the factor
    carries no direction at all (its mean resultant is about :math:`\hat\kappa/p`).
    """

    mean_directions: Array
    r"""Unit vectors :math:`\hat a_k`, shape (..., K, p)."""
    concentrations: Array
    r""":math:`\hat\kappa_k \ge 0`, shape (..., K); learned per component."""
    shapes: Array
    """Gamma shapes r, shape (..., K)."""
    rates: Array
    """Gamma rates s, shape (..., K)."""

    @property
    def dim(self) -> int:
        """Dimension p."""
        return self.mean_directions.shape[-1]

    @property
    def resultants(self) -> Array:
        r"""Lengths :math:`A_p(\hat\kappa_k)` of the expected directions, shape (..., K)."""
        return mean_resultant(self.concentrations, self.dim)

    @property
    def expected_directions(self) -> Array:
        r""":math:`E\tilde a_k = A_p(\hat\kappa_k)\hat a_k`, shape (..., K, p)."""
        return self.resultants[..., None] * self.mean_directions

    @property
    def expected_magnitudes(self) -> Array:
        """E g = r / s."""
        return self.shapes / self.rates

    @property
    def expected_log_magnitudes(self) -> Array:
        r""":math:`E\log g = \psi(r) - \log s`."""
        return digamma(self.shapes) - jnp.log(self.rates)

    @property
    def expected_square_magnitudes(self) -> Array:
        r""":math:`E g^2 = r(r+1)/s^2`."""
        return self.shapes * (self.shapes + 1.0) / self.rates**2

    def entropy_to_uniform(self) -> Array:
        """Entropy, with that of the directions relative to uniform ones (see `vmf.entropy`).

        The constant K log area(p) is left out here and in :func:`expected_log_prior`: it cancels in
        their difference, and is so large that float32 would lose the digits of the rest.
        """
        angular = vmf.entropy_to_uniform(self.concentrations, self.dim)
        radial = (
            self.shapes
            - jnp.log(self.rates)
            + gammaln(self.shapes)
            + (1.0 - self.shapes) * digamma(self.shapes)
        )
        return jnp.sum(angular + radial, axis=-1)

    def sample(self, key: Key, sample_shape: tuple[int, ...] = ()) -> Components:
        """Draw components in polar form (no gradient through the draw)."""
        key_direction, key_length = random.split(key)
        natural = self.concentrations[..., None] * self.mean_directions
        directions = vmf.sample(key_direction, natural, sample_shape)
        outer = sample_shape + self.shapes.shape
        unit = random.gamma(key_length, self.shapes, outer, self.shapes.dtype)
        return Components(directions, jnp.maximum(unit / self.rates, jnp.finfo(unit.dtype).tiny))

    def log_prob_polar(self, components: Components) -> Array:
        """Log q relative to uniform directions and dg, as for a prior."""
        natural = self.concentrations[..., None] * self.mean_directions
        angular = vmf.log_ratio_to_uniform(natural, components.directions)
        r, s, g = self.shapes, self.rates, components.magnitudes
        radial = r * jnp.log(s) - gammaln(r) + (r - 1.0) * jnp.log(g) - s * g
        return jnp.sum(angular + radial, axis=-1)
