r"""The paper's Eq. (7), a bound on log Z with two free parameters, kept for comparison.

Its first step is Bouchard's inequality for sums applied to an integral, where it holds only while
the area of the sphere is large. For p >= 17 the result is not a bound, and optimised it tends to
minus infinity from p = 18 on. The library uses :mod:`wideangle.priors.expected` instead.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from wideangle.sphere.vmf import log_area
from wideangle.types import Array


@partial(jax.jit, static_argnums=1)
def printed_log_normaliser(square: Array, dim: int) -> Array:
    r"""The paper's bound on :math:`E\log Z_p(\kappa|S|)` at its best, minus the log area.

    .. math:: \gamma + a\Bigl[\log(1+e^{-\xi}) + \tfrac{\xi-\gamma}{2}
              + \lambda(\xi)(\gamma^2 + \kappa^2u - \xi^2)\Bigr], \qquad
              \lambda(\xi) = \frac{\tanh(\xi/2)}{4\xi}

    minimised over both parameters, with the paper's a (the area of the sphere one dimension up).
    """
    area = jnp.exp(log_area(dim + 1))

    def improve(_: int, shift: Array) -> Array:
        split = jnp.sqrt(shift**2 + square)
        return (0.5 * area - 1.0) / (2.0 * area * _jj(split))

    # Coordinate minimisation, each step exact; by the envelope theorem no gradient is needed.
    shift = lax.stop_gradient(lax.fori_loop(0, 200, improve, jnp.zeros_like(square)))
    split = lax.stop_gradient(jnp.sqrt(shift**2 + square))
    inner = jax.nn.softplus(-split) + 0.5 * (split - shift)
    return shift + area * (inner + _jj(split) * (shift**2 + square - split**2)) - log_area(dim)


def _jj(x: Array) -> Array:
    """tanh(x/2) / (4x), 1/8 at 0."""
    safe = jnp.where(x > 1e-4, x, 1.0)  # noqa: PLR2004
    return jnp.where(x > 1e-4, jnp.tanh(0.5 * safe) / (4.0 * safe), 0.125)  # noqa: PLR2004
