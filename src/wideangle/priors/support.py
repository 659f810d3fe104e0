"""Supports on and around the sphere, with the maps that let NUTS and guides work on them.

NumPyro has a sphere constraint but no bijection for it, so sampling such a site raises. These
supports are subclasses and new types: nothing in NumPyro's registry is replaced.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from numpyro.distributions import constraints
from numpyro.distributions.transforms import Transform, biject_to

from wideangle.sphere.geometry import normalise, safe_norm
from wideangle.sphere.vmf import log_area
from wideangle.types import Array


class _UnitVector(type(constraints.sphere)):  # pyright: ignore[reportGeneralTypeIssues]
    """Unit vectors along the last axis; NumPyro's sphere, but one that NUTS can sample."""


unit_vector = _UnitVector()
unit_vectors = constraints.independent(unit_vector, 1)
"""A set of unit vectors: the rows of the last two axes."""


class _OfLengths:
    """Typical log-length of vectors and its spread, as the data of a support or a map."""

    def __init__(self, log_length: Array, spread: Array) -> None:
        self.log_length = log_length
        self.spread = spread

    def tree_flatten(self) -> Any:
        return (self.log_length, self.spread), (("log_length", "spread"), {})

    def eq(self, other: object, static: bool = False) -> Any:
        """Whether ``other`` is the same."""
        if not isinstance(other, type(self)):
            return False
        same = jnp.array_equal(self.log_length, other.log_length)
        same &= jnp.array_equal(self.spread, other.spread)
        return bool(same) if static else same


class _NonzeroVector(_OfLengths, constraints.Constraint):
    r"""Vectors other than 0, with the typical log-length and its spread as a hint for the map.

    Mathematically all of :math:`R^p` up to a null set. The two numbers only choose coordinates in
    which a vector with uniform direction and such a length looks like a standard Gaussian.
    """

    event_dim = 1

    def __call__(self, x: Array) -> Array:
        return jnp.all(jnp.isfinite(x), axis=-1) & jnp.any(x != 0, axis=-1)

    def feasible_like(self, prototype: Array) -> Array:
        return jnp.full_like(prototype, 1.0)


def nonzero_vectors(log_length: Array, spread: Array) -> constraints.Constraint:
    """Support of a set of component vectors (rows of the last two axes)."""
    return constraints.independent(_NonzeroVector(log_length, spread), 1)


class DirectionTransform(Transform):
    r"""The direction of a Gaussian vector, :math:`x \mapsto x/|x|`.

    Not one-to-one: the length of x is arbitrary and chi distributed, so that x is standard Gaussian
    when the direction is uniform. The "Jacobian" returned is what makes the density of x integrate
    to the density of its direction, :math:`\log\mathrm{area}(p) - \tfrac{p}{2}\log 2\pi - |x|^2/2`.
    """

    domain = constraints.real_vector  # pyright: ignore
    codomain = unit_vector  # pyright: ignore

    def __call__(self, x: Array) -> Array:
        """Divide by the length."""
        return normalise(x)

    def _inverse(self, y: Array) -> Array:
        return y * math.sqrt(y.shape[-1])

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: Any = None) -> Array:
        """Log density of a standard Gaussian given its direction; see the class."""
        dim = x.shape[-1]
        constant = log_area(dim) - 0.5 * dim * math.log(2.0 * math.pi)
        return constant - 0.5 * jnp.sum(x * x, axis=-1)

    def tree_flatten(self) -> Any:
        """Nothing to flatten."""
        return (), ((), {})

    def eq(self, other: object, static: bool = False) -> bool:
        """Whether ``other`` is the same map."""
        return isinstance(other, DirectionTransform)


class PolarTransform(_OfLengths, Transform):
    r"""A vector from a Gaussian direction and a standardised log-length.

    .. math:: (x, t) \in R^{p+1} \;\mapsto\; a = e^{c + st}\, x/|x|

    One coordinate more than the vector has: as in :class:`DirectionTransform` the length of x is
    arbitrary. In these coordinates a vector with uniform direction looks like a standard Gaussian.
    Cartesian coordinates would put an infinite peak at the origin (the factor :math:`g^{-(p-1)}`),
    where Hamiltonian trajectories get lost; so does any map that keeps p coordinates and only
    rescales the length, unless it matches the Gamma distribution's lower tail.
    """

    domain = constraints.real_vector  # pyright: ignore
    codomain = constraints.real_vector  # pyright: ignore

    def forward_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """One coordinate fewer."""
        return (*shape[:-1], shape[-1] - 1)

    def inverse_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """One coordinate more."""
        return (*shape[:-1], shape[-1] + 1)

    def __call__(self, x: Array) -> Array:
        """Join direction and length."""
        return normalise(x[..., :-1]) * jnp.exp(self._log_magnitude(x))[..., None]

    def _inverse(self, y: Array) -> Array:
        standard = (jnp.log(safe_norm(y)) - self.log_length) / self.spread
        direction = normalise(y) * math.sqrt(y.shape[-1])
        return jnp.concatenate([direction, standard[..., None]], axis=-1)

    def _log_magnitude(self, x: Array) -> Array:
        return self.log_length + self.spread * x[..., -1]

    def log_abs_det_jacobian(self, x: Array, y: Array, intermediates: Any = None) -> Array:
        """Density of (x, t) over that of the vector, with the distribution of the length of x."""
        passenger = DirectionTransform().log_abs_det_jacobian(x[..., :-1], y)
        # g^(p-1) from the vector to polar form, g s from the length to its standardised log
        return passenger + y.shape[-1] * self._log_magnitude(x) + jnp.log(self.spread)


@biject_to.register(_UnitVector)
def _(constraint: _UnitVector) -> DirectionTransform:
    return DirectionTransform()


@biject_to.register(_NonzeroVector)
def _(constraint: _NonzeroVector) -> PolarTransform:
    return PolarTransform(constraint.log_length, constraint.spread)
