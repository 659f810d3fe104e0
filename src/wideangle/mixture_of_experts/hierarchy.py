r"""A prior whose scales are part of the posterior, with a common vector if asked.

.. math:: a_k = s\,b + \tau\,d_k,\qquad b, d_k \sim N(0, I),\qquad
          \tau, s \sim \text{half-normal}(2)

and the directions of the deviations :math:`d_k` may repel each other. Experts have a common vector:
where one rule is enough :math:`\tau` shrinks and the mixture becomes that rule. Gates have none,
since one vector added to all of them changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from wideangle.priors.mutual_angular import MutualAngular
from wideangle.types import Array, Components, Key, Scalar

WIDTH = 2.0
"""Scale of the half-normal distribution of the scales."""


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["directions", "scale", "common_scale"],
    meta_fields=["n_components", "dim", "common"],
)
@dataclass(frozen=True)
class HierarchicalComponents:
    """K vectors in p dimensions around a common one, or around 0."""

    n_components: int
    dim: int
    common: bool
    """Whether there is a common vector."""
    directions: MutualAngular | None = None
    """How directions of deviations repel each other; None for independent ones."""
    scale: Any = None
    r""":math:`\tau` where it is fixed; None makes it part of the posterior."""
    common_scale: Any = None
    """The same of the common vector."""

    @property
    def n_scales(self) -> int:
        """Scales that are part of the posterior, those of deviations first."""
        return (self.scale is None) + (self.common and self.common_scale is None)

    def scales(self, log_scales: Array | None) -> tuple[Any, Any]:
        """Scale of the deviations and of the common vector."""
        free = iter(() if log_scales is None else jnp.exp(log_scales))
        scale = next(free) if self.scale is None else self.scale
        if not self.common:
            return scale, None
        return scale, next(free) if self.common_scale is None else self.common_scale

    def fixed(self, scale: Any, common_scale: Any) -> HierarchicalComponents:
        """The prior with scales that are given."""
        common_scale = common_scale if self.common else None
        return HierarchicalComponents(
            self.n_components, self.dim, self.common, self.directions, scale, common_scale
        )

    def vectors(self, deviations: Array, common: Array | None, log_scales: Array | None) -> Array:
        """The components (K, p)."""
        scale, common_scale = self.scales(log_scales)
        found = scale * deviations
        return found if common is None else found + common_scale * common

    def log_ratio_to_gaussian(self, deviations: Array) -> Scalar:
        """Log density of the deviations relative to independent standard normals."""
        if self.directions is None:
            return jnp.zeros((), deviations.dtype)
        return self.directions.log_ratio_to_uniform(Components.from_vectors(deviations).directions)

    def draw(self, key: Key, dtype: Any = jnp.float32) -> tuple[Array, Array | None, Array | None]:
        """Deviations, common vector and log scales from the prior."""
        keys = jax.random.split(key, 4)
        shape = (self.n_components, self.dim)
        deviations = jax.random.normal(keys[0], shape, dtype)
        if self.directions is not None:
            # Lengths do not depend on directions.
            lengths = jnp.linalg.norm(deviations, axis=-1, keepdims=True)
            deviations = lengths * self.directions.sample(keys[1]).astype(dtype)
        common = jax.random.normal(keys[2], (self.dim,), dtype) if self.common else None
        scales = jnp.abs(WIDTH * jax.random.normal(keys[3], (self.n_scales,), dtype))
        return deviations, common, jnp.log(scales) if self.n_scales else None


def log_half_normal(log_scales: Array) -> Scalar:
    """Log density of the logarithms of half-normal scales, up to a constant."""
    return jnp.sum(log_scales - 0.5 * jnp.exp(2.0 * log_scales) / WIDTH**2)
