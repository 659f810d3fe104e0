r"""Priors over whole components :math:`a_k = g_k\tilde a_k`: direction and length together.

Every prior here but the last is a NumPyro distribution over K vectors (event shape ``(K, p)``), so
``numpyro.sample("experts", prior)`` works in any model and NUTS samples it as it is. Samplers of
this package work in polar coordinates instead, through :meth:`ComponentPrior.log_prob_polar`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.scipy.special import digamma, gammaln, polygamma
from numpyro.distributions import Distribution, constraints

from wideangle.checks import check_count, check_range, check_shape
from wideangle.priors.support import nonzero_vectors
from wideangle.sphere.vmf import log_area
from wideangle.types import Array, Components, Key, Scalar, as_floating

if TYPE_CHECKING:
    from wideangle.priors.mutual_angular import MutualAngular

MEAN_SCALE = 0.7
"""Usual mean of the exponential distribution of the scales of a hierarchy. Near 0 it has more mass
than a half-normal one, so that weak data are not overfitted. A half-Cauchy one predicts strong
effects even better, but with its tail chains take ten times as long if classes are separable."""


class SortedFields(Distribution):
    """A NumPyro distribution whose leaves are sorted by name.

    NumPyro collects the names in a set, whose order changes from process to process. Leaves saved
    in order would be read back in another, kappa in place of a rate.
    """

    @classmethod
    def gather_pytree_data_fields(cls) -> tuple[str, ...]:
        """Names of the fields that are leaves."""
        return tuple(sorted(super().gather_pytree_data_fields()))

    @classmethod
    def gather_pytree_aux_fields(cls) -> tuple[str, ...]:
        """Names of the fields that are part of the structure."""
        return tuple(sorted(super().gather_pytree_aux_fields()))


class ComponentPrior(SortedFields):
    """A distribution over K component vectors in p dimensions: the interface of a prior."""

    @property
    def n_components(self) -> int:
        """Number of components K."""
        return self.event_shape[0]

    @property
    def dim(self) -> int:
        """Dimension p of a component."""
        return self.event_shape[1]

    def log_prob_polar(self, components: Components) -> Array:
        r"""Log density in polar coordinates, relative to uniform directions and :math:`dg`.

        .. math:: \log p(a) + \sum_k\bigl[(p-1)\log g_k + \log\mathrm{area}(p)\bigr]

        The measure has no singular point and no large constant, so this is what geodesic
        samplers use, in float32 too.
        """
        per_component = (self.dim - 1) * jnp.log(components.magnitudes) + log_area(self.dim)
        return self.log_prob(components.vectors) + jnp.sum(per_component, axis=-1)

    def sample_polar(self, key: Key, sample_shape: tuple[int, ...] = ()) -> Components:
        """Draw components in polar form."""
        return Components.from_vectors(self.sample(key, sample_shape))

    def _checked(self, value: Any) -> Array:
        value = as_floating(value)
        check_shape("value", value.shape, self.event_shape)
        check_range("value", value)
        return value


class PolarComponents(ComponentPrior):
    r"""Directions from any distribution on the sphere, lengths independent Gamma(shape, rate).

    Parameters
    ----------
    directions : distribution over K unit vectors
        Such as :class:`~wideangle.MutualAngular` (its kind ``"independent"`` gives independent
        vMF components).
    magnitude_shape, magnitude_rate : array
        :math:`\alpha_1, \alpha_2 > 0` of the lengths.

    Notes
    -----
    Paper: Eq. (2), which is a density in (direction, length). A density of the *vector* needs the
    Jacobian :math:`\prod_k g_k^{-(p-1)}`, and ``log_prob`` has it; :meth:`log_prob_polar` is the
    paper's form, relative to uniform directions.

    Examples
    --------
    >>> import jax, numpyro
    >>> from wideangle import MutualAngular, PolarComponents
    >>> prior = PolarComponents(MutualAngular.from_cosine(3, 5, 0.6), 2.0, 1.0)
    >>> prior.sample(jax.random.key(0)).shape
    (3, 5)
    """

    arg_constraints = {
        "magnitude_shape": constraints.positive,
        "magnitude_rate": constraints.positive,
    }
    pytree_data_fields = ("directions", "magnitude_shape", "magnitude_rate")

    def __init__(
        self,
        directions: MutualAngular,
        magnitude_shape: Any = 2.0,
        magnitude_rate: Any = 1.0,
        *,
        validate_args: bool | None = None,
    ) -> None:
        if not hasattr(directions, "log_ratio_to_uniform"):
            raise ValueError(
                f"directions={directions!r}: must be a prior over unit vectors with "
                "log_ratio_to_uniform, such as wideangle.MutualAngular."
            )
        check_range("magnitude_shape", magnitude_shape, 0.0, open_low=True)
        check_range("magnitude_rate", magnitude_rate, 0.0, open_low=True)
        self.directions = directions
        self.magnitude_shape = as_floating(magnitude_shape)
        self.magnitude_rate = as_floating(magnitude_rate)
        batch = lax.broadcast_shapes(
            directions.batch_shape, self.magnitude_shape.shape, self.magnitude_rate.shape
        )
        super().__init__(batch, directions.event_shape, validate_args=validate_args)

    @property
    def support(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        """All vectors but 0, in coordinates scaled to the lengths (see ``support.py``)."""
        centre = digamma(self.magnitude_shape) - jnp.log(self.magnitude_rate)
        spread = jnp.sqrt(polygamma(1, self.magnitude_shape))
        return nonzero_vectors(centre[..., None], jnp.broadcast_to(spread, centre.shape)[..., None])

    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        """Log density of the K vectors with respect to Lebesgue measure."""
        components = Components.from_vectors(self._checked(value))
        lengths = (self.dim - 1) * jnp.log(components.magnitudes) + log_area(self.dim)
        return self.log_prob_polar(components) - jnp.sum(lengths, axis=-1)

    def log_prob_polar(self, components: Components) -> Array:
        """See :meth:`ComponentPrior.log_prob_polar`; here it needs no Jacobian at all."""
        angular = self.directions.log_ratio_to_uniform(components.directions)
        return angular + self.log_prob_magnitudes(components.magnitudes)

    def log_prob_magnitudes(self, magnitudes: Array) -> Array:
        """Log density of the K lengths; a length of 0 (padding) adds nothing."""
        shape, rate = self.magnitude_shape[..., None], self.magnitude_rate[..., None]
        live = magnitudes > 0
        safe = jnp.where(live, magnitudes, 1.0)
        terms = shape * jnp.log(rate) - gammaln(shape) + (shape - 1) * jnp.log(safe) - rate * safe
        return jnp.sum(jnp.where(live, terms, 0.0), axis=-1)

    def sample(self, key: Key | None, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw K vectors."""
        assert key is not None
        return self.sample_polar(key, sample_shape).vectors

    def sample_polar(self, key: Key, sample_shape: tuple[int, ...] = ()) -> Components:
        """Draw directions and lengths."""
        key_direction, key_length = random.split(key)
        inner = self.directions.batch_shape
        outer = lax.broadcast_shapes(inner, self.magnitude_shape.shape, self.magnitude_rate.shape)
        # Batch axes that only the lengths have still need separate directions.
        extra = outer[: len(outer) - len(inner)]
        if outer[len(extra) :] == inner:
            directions = self.directions.sample(key_direction, sample_shape + extra)
        else:
            directions = self.directions.expand(outer).sample(key_direction, sample_shape)
        lengths = (*sample_shape, *outer, self.n_components)
        return Components(directions, self._draw_lengths(key_length, lengths))

    def _draw_lengths(self, key: Key, shape: tuple[int, ...]) -> Array:
        shape_parameter = self.magnitude_shape[..., None]
        unit = random.gamma(key, shape_parameter, shape, shape_parameter.dtype)
        # With a shape far below 1, draws underflow to 0, which is not a length.
        return jnp.maximum(unit / self.magnitude_rate[..., None], jnp.finfo(unit.dtype).tiny)

    def draw_next(self, key: Key, components: Components) -> Components:
        """Draw one more component given the existing ones (the infinite prior)."""
        key_direction, key_length = random.split(key)
        direction = self.directions.draw_next(key_direction, components.directions)
        length = self._draw_lengths(key_length, (*direction.shape[:-1], 1))[..., 0]
        return Components(direction, length)


class GaussianComponents(ComponentPrior):
    r"""Independent Gaussian components, :math:`a_k \sim N(0, \sigma^2 I)`: the usual baseline.

    Parameters
    ----------
    n_components, dim : int
        K and p.
    scale : array
        Standard deviation :math:`\sigma > 0` of every entry.
    """

    arg_constraints = {"scale": constraints.positive}
    support = constraints.real_matrix  # pyright: ignore[reportAssignmentType]

    def __init__(
        self, n_components: int, dim: int, scale: Any = 1.0, *, validate_args: bool | None = None
    ) -> None:
        shape = (check_count("n_components", n_components, 1), check_count("dim", dim, 1))
        check_range("scale", scale, 0.0, open_low=True)
        self.scale = as_floating(scale)
        super().__init__(self.scale.shape, shape, validate_args=validate_args)

    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        """Log density of the K vectors."""
        return self._log_gaussian(jnp.sum(self._checked(value) ** 2, axis=(-2, -1)))

    def log_prob_polar(self, components: Components) -> Array:
        """See :meth:`ComponentPrior.log_prob_polar`: the lengths are scaled chi variables."""
        square = jnp.sum(components.magnitudes**2, axis=-1)
        logs = jnp.sum(jnp.log(components.magnitudes / self.scale[..., None]), axis=-1)
        n, p = self.event_shape
        # Constants are combined on the host: separately they are large and opposite.
        constant = n * (log_area(p) - 0.5 * p * math.log(2.0 * math.pi))
        return constant - 0.5 * square / self.scale**2 + (p - 1) * logs - n * jnp.log(self.scale)

    def _log_gaussian(self, square: Array) -> Array:
        size = self.n_components * self.dim
        constant = 0.5 * size * math.log(2.0 * math.pi)
        return -0.5 * square / self.scale**2 - size * jnp.log(self.scale) - constant

    def sample(self, key: Key | None, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw K vectors."""
        assert key is not None
        shape = sample_shape + self.scale.shape + self.event_shape
        return self.scale[..., None, None] * random.normal(key, shape, self.scale.dtype)

    def draw_next(self, key: Key, components: Components) -> Components:
        """Draw one more component; it does not depend on the others."""
        shape = (*components.directions.shape[:-2], self.dim)
        vector = self.scale[..., None] * random.normal(key, shape, self.scale.dtype)
        return Components.from_vectors(vector)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["directions", "scale", "common_scale"],
    meta_fields=["n_components", "dim", "common", "mean_scale"],
)
@dataclass(frozen=True)
class HierarchicalComponents:
    r"""K vectors in p dimensions around a common one, or around 0, with unknown scales.

    .. math:: a_k = s\,b + \tau\,d_k,\qquad b, d_k \sim N(0, I),\qquad
              \tau \sim \text{Exp, of mean } m,\qquad s \sim \text{Exp, of mean } 0.7

    and the directions of the deviations :math:`d_k` may repel each other. If one vector is enough,
    :math:`\tau` shrinks and all become that vector. Not a NumPyro distribution: its unknowns are
    deviations, common vector and scales.
    """

    n_components: int
    dim: int
    common: bool
    """Whether there is a common vector."""
    directions: MutualAngular | None = None
    """How directions of deviations repel each other; None for independent ones."""
    scale: Any = None
    r""":math:`\tau` if it is fixed; None makes it part of the posterior."""
    common_scale: Any = None
    """The same for the common vector."""
    mean_scale: float = MEAN_SCALE
    r"""Prior mean of :math:`\tau`."""

    @property
    def n_scales(self) -> int:
        """Number of scales that are part of the posterior, those of deviations first."""
        return (self.scale is None) + (self.common and self.common_scale is None)

    def scales(self, log_scales: Array | None) -> tuple[Any, Any]:
        """Scale of the deviations and of the common vector."""
        free = iter(() if log_scales is None else jnp.exp(log_scales))
        scale = next(free) if self.scale is None else self.scale
        if not self.common:
            return scale, None
        return scale, next(free) if self.common_scale is None else self.common_scale

    @property
    def mean_scales(self) -> np.ndarray:
        """Prior means of the scales that are part of the posterior."""
        means = [self.mean_scale] * (self.scale is None)
        return np.asarray(means + [MEAN_SCALE] * (self.n_scales - len(means)), np.float32)

    def fixed(self, scale: Any, common_scale: Any) -> HierarchicalComponents:
        """The prior with fixed scales."""
        return replace(self, scale=scale, common_scale=common_scale if self.common else None)

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
        keys = random.split(key, 4)
        shape = (self.n_components, self.dim)
        deviations = random.normal(keys[0], shape, dtype)
        if self.directions is not None:
            # Lengths do not depend on directions.
            lengths = jnp.linalg.norm(deviations, axis=-1, keepdims=True)
            deviations = lengths * self.directions.sample(keys[1]).astype(dtype)
        common = random.normal(keys[2], (self.dim,), dtype) if self.common else None
        scales = self.mean_scales * random.exponential(keys[3], (self.n_scales,), dtype)
        return deviations, common, jnp.log(scales) if self.n_scales else None


def log_exponential(log_scales: Array, means: Any) -> Scalar:
    """Log density of logarithms of exponential variables of these means, up to a constant."""
    return jnp.sum(log_scales - jnp.exp(log_scales) / means)
