r"""Learning the parameters of the prior: the M step of EM, from posterior draws or from q.

Paper: Appendix C learns :math:`\mu_0, \alpha_1, \alpha_2` and tunes :math:`\kappa` by hand. Every
update maximises :math:`E\log p(A;\theta)` over its own parameter.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import digamma, polygamma

from wideangle.checks import check_range
from wideangle.priors.components import PolarComponents
from wideangle.priors.factors import VmfGammaFactors
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.sphere.geometry import normalise
from wideangle.types import Array, Components


def update_prior(
    prior: PolarComponents, posterior: Components | VmfGammaFactors, *, max_shape: float = 1e3
) -> PolarComponents:
    r"""One M step: :math:`\mu_0` (if the prior has one) and Gamma lengths that fit best.

    Parameters
    ----------
    prior : PolarComponents
        Current prior; its concentration is kept.
    posterior : Components or VmfGammaFactors
        Posterior draws, with any leading axes (chains, draws), or the variational factors. Rows of
        zeros at the end of a draw are padding.
    max_shape : float
        Cap on the Gamma shape. With one component, or equal lengths, the likelihood of the shape
        increases without limit.
    """
    check_range("max_shape", max_shape, 0.0, open_low=True)
    old: Any = prior.directions
    first = None if old.first is None else _update_first(old, posterior)
    directions = MutualAngular(old.n_components, old.dim, old.concentration, old.kind, first)
    return PolarComponents(directions, *update_magnitudes(posterior, max_shape))


def _update_first(prior: MutualAngular, posterior: Components | VmfGammaFactors) -> Array:
    r""":math:`\mu_0`: the mean direction of the first component (of all, if independent)."""
    factors = isinstance(posterior, VmfGammaFactors)
    rows = posterior.expected_directions if factors else posterior.directions
    rows = jnp.mean(rows.reshape(-1, *rows.shape[-2:]), axis=0)
    total = jnp.sum(rows, axis=0) if prior.kind == "independent" else rows[0]
    return normalise(total)


@jax.jit
def update_magnitudes(
    posterior: Components | VmfGammaFactors, max_shape: float = 1e3
) -> tuple[Array, Array]:
    r"""Gamma shape and rate that fit the lengths best.

    The rate is :math:`\alpha_2=\alpha_1/E g`, and the shape solves

    .. math:: \log\alpha - \psi(\alpha) = \log E g - E\log g

    by Newton's method in :math:`1/\alpha`, which converges in about six steps from
    :math:`0.5/(\log E g - E\log g)` (:cite:`minka2002`).
    """
    if isinstance(posterior, VmfGammaFactors):
        mean = jnp.mean(posterior.expected_magnitudes)
        mean_log = jnp.mean(posterior.expected_log_magnitudes)
    else:
        live = posterior.magnitudes > 0  # zeros are padding
        mean = jnp.mean(posterior.magnitudes, where=live)
        mean_log = jnp.mean(jnp.log(jnp.where(live, posterior.magnitudes, 1.0)), where=live)
    gap = jnp.maximum(jnp.log(mean) - mean_log, 0.25 / max_shape)

    def newton(_: int, shape: Array) -> Array:
        error = -gap + jnp.log(shape) - digamma(shape)
        inverse = 1.0 / shape + error / (shape**2 * (1.0 / shape - polygamma(1, shape)))
        return jnp.clip(1.0 / inverse, 1e-6, max_shape)

    shape = lax.fori_loop(0, 12, newton, jnp.minimum(0.5 / gap, max_shape))
    return shape, shape / mean
