"""The von Mises-Fisher distribution as a NumPyro distribution."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from multipledispatch import dispatch
from numpyro.distributions import constraints

from wideangle.checks import check_count, check_range, check_shape, check_unit
from wideangle.priors.components import SortedFields
from wideangle.priors.support import unit_vector
from wideangle.sphere import vmf
from wideangle.sphere.vmf import mean_resultant_slope
from wideangle.types import Array, Key, as_floating


class VonMisesFisher(SortedFields):
    r"""Unit vectors around a mean direction: :math:`f(x) = C_p(\kappa)\,e^{\kappa\mu\cdot x}`.

    Parameters
    ----------
    mean_direction : array, shape (..., p)
        Unit vector :math:`\mu`, p at least 2.
    concentration : array, shape (...)
        :math:`\kappa \ge 0`; 0 is the uniform distribution. Densities stay finite for every
        dimension up to 1e6 and concentration up to 1e8.

    Examples
    --------
    >>> import jax
    >>> from wideangle import VonMisesFisher
    >>> north = VonMisesFisher([0.0, 0.0, 1.0], 10.0)
    >>> north.sample(jax.random.key(0), (5,)).shape
    (5, 3)
    >>> bool(abs(north.mean[2] - 0.9) < 1e-6)
    True
    """

    arg_constraints = {
        "mean_direction": unit_vector,
        "concentration": constraints.nonnegative,
    }
    support = unit_vector  # pyright: ignore[reportAssignmentType]

    def __init__(
        self, mean_direction: Any, concentration: Any, *, validate_args: bool | None = None
    ) -> None:
        check_range("concentration", concentration, 0.0)
        mean_direction = as_floating(mean_direction)
        concentration = as_floating(concentration, like=mean_direction)
        check_shape("mean_direction", mean_direction.shape, ("p",))
        check_count("mean_direction.shape[-1]", mean_direction.shape[-1], 2)
        check_unit("mean_direction", mean_direction)
        batch = jax.lax.broadcast_shapes(mean_direction.shape[:-1], concentration.shape)
        self.concentration = jnp.broadcast_to(concentration, batch)
        self.mean_direction = jnp.broadcast_to(mean_direction, batch + mean_direction.shape[-1:])
        super().__init__(batch, mean_direction.shape[-1:], validate_args=validate_args)

    @property
    def natural(self) -> Array:
        r"""The natural parameter :math:`\kappa\mu`."""
        return self.concentration[..., None] * self.mean_direction

    def sample(self, key: Key | None, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw exactly; see :func:`wideangle.sphere.vmf.sample`."""
        assert key is not None
        return vmf.sample(key, self.natural, sample_shape)

    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        """Log density with respect to surface measure."""
        return vmf.log_prob(self.natural, self._checked(value))

    def log_ratio_to_uniform(self, value: Any) -> Array:
        """Log density relative to uniform directions: safe in float32 and in high dimension."""
        return vmf.log_ratio_to_uniform(self.natural, self._checked(value))

    def _checked(self, value: Any) -> Array:
        value = as_floating(value)
        check_shape("value", value.shape, self.event_shape)
        check_unit("value", value)
        return value

    @property
    def mean(self) -> Array:
        r"""Expected vector :math:`A_p(\kappa)\mu`, inside the ball."""
        return vmf.mean(self.natural)

    @property
    def mode(self) -> Array:
        """The mean direction."""
        return self.mean_direction

    @property
    def variance(self) -> Array:
        """Variance of each coordinate."""
        dim = self.event_shape[-1]
        across, _ = vmf.scatter_weights(self.concentration, dim)
        along = mean_resultant_slope(self.concentration, dim)
        # Not E[x^2] - E[x]^2: near the mean direction that is a difference of ones.
        sideways = (1.0 - self.mean_direction) * (1.0 + self.mean_direction)
        return across[..., None] * sideways + along[..., None] * self.mean_direction**2

    @property
    def covariance_matrix(self) -> Array:
        """Covariance, shape (..., p, p)."""
        return vmf.covariance(self.natural)

    def entropy(self) -> Array:
        """Differential entropy with respect to surface measure."""
        return vmf.entropy(self.concentration, self.event_shape[-1])

    @staticmethod
    def infer_shapes(mean_direction: tuple[int, ...], concentration: tuple[int, ...] = ()) -> Any:
        """Batch and event shape from the shapes of the parameters."""
        return (
            jax.lax.broadcast_shapes(mean_direction[:-1], concentration),
            mean_direction[-1:],
        )


@dispatch(VonMisesFisher, VonMisesFisher)
def kl_divergence(p: VonMisesFisher, q: VonMisesFisher) -> Array:  # noqa: D103
    # Registered with NumPyro's dispatch, so numpyro.distributions.kl_divergence(p, q) finds it.
    return vmf.kl_divergence(p.natural, q.natural)
