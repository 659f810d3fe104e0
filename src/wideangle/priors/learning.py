r"""Learning the prior's own parameters: the M step of EM, from posterior draws or from q.

Paper: Appendix C learns :math:`\mu_0, \alpha_1, \alpha_2` and tunes :math:`\kappa` by hand; here
:math:`\kappa` can be learned too. Every update maximises :math:`E\log p(A;\theta)` over its own
parameter.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import digamma, polygamma

from wideangle.checks import check_choice, check_range
from wideangle.priors.components import PolarComponents
from wideangle.priors.expected import expected_square_resultants
from wideangle.priors.factors import VmfGammaFactors
from wideangle.priors.mutual_angular import VANISHING, MutualAngular, prefix_products
from wideangle.sphere.geometry import normalise
from wideangle.sphere.vmf import inverse_mean_resultant, mean_resultant
from wideangle.types import Array, Components

LEARNABLE = ("first", "magnitudes", "concentration")


def update_prior(
    prior: PolarComponents,
    posterior: Components | VmfGammaFactors,
    learn: Collection[str] = ("first", "magnitudes"),
    *,
    max_shape: float = 1e3,
    max_cosine: float = 0.99,
) -> PolarComponents:
    r"""One M step: the prior whose parameters fit the posterior best.

    Parameters
    ----------
    prior : PolarComponents
        Current prior; parameters not learned are kept.
    posterior : Components or VmfGammaFactors
        Posterior draws, with any leading axes (chains, draws), or the variational factors. Rows of
        zeros at the end of a draw are padding.
    learn : collection of {"first", "magnitudes", "concentration"}
        ``"first"`` is :math:`\mu_0` (only if the prior has one), ``"magnitudes"`` the Gamma shape
        and rate, ``"concentration"`` :math:`\kappa`.
    max_shape : float
        Cap on the Gamma shape. With one component, or equal lengths, the likelihood of the shape
        increases without end.
    max_cosine : float
        Cap on the expected cosine that the learned concentration stands for, for the same reason.
    """
    for name in learn:
        check_choice("learn", name, LEARNABLE)
    check_range("max_shape", max_shape, 0.0, open_low=True)
    check_range("max_cosine", max_cosine, 0.0, 1.0, open_low=True)
    directions: Any = prior.directions
    first, concentration = directions.first, directions.concentration
    if "first" in learn and first is not None:
        first = update_first(directions, posterior)
    updated = MutualAngular(
        directions.n_components, directions.dim, concentration, directions.kind, first
    )
    if "concentration" in learn:
        cap = inverse_mean_resultant(jnp.asarray(max_cosine, concentration.dtype), updated.dim)
        kappa = jnp.minimum(update_concentration(updated, posterior), cap)
        updated = MutualAngular(updated.n_components, updated.dim, kappa, updated.kind, first)
    shape, rate = prior.magnitude_shape, prior.magnitude_rate
    if "magnitudes" in learn:
        shape, rate = update_magnitudes(posterior, max_shape)
    return PolarComponents(updated, shape, rate)


def update_first(prior: MutualAngular, posterior: Components | VmfGammaFactors) -> Array:
    r""":math:`\mu_0`: the mean direction of the first component (of all, if independent)."""
    rows = _mean_rows(posterior)
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


@jax.jit
def update_concentration(prior: MutualAngular, posterior: Components | VmfGammaFactors) -> Array:
    r""":math:`\kappa` (beyond the paper).

    The objective is concave, and its maximum solves
    :math:`\sum_i\bar c_i = \sum_i E\,\rho_i A_p(\kappa\rho_i)`, where :math:`c_i` is the pull on
    component i at unit strength and :math:`\rho_i` the length of what pulls: 1 for type I, where
    the equation is inverted directly, :math:`|S_{i-1}|` for type II. From q the length is
    :math:`\sqrt{E|S|^2}`, the Jensen bound again.
    """
    pull, length = _pulls(prior, posterior)
    dim = prior.dim
    live = length > 0
    n = jnp.maximum(jnp.sum(live), 1)
    if prior.kind != "II":
        cosine = jnp.sum(jnp.where(live, pull, 0.0)) / n
        return inverse_mean_resultant(jnp.clip(cosine, 0.0, 1.0 - 1e-6), dim)
    wanted = jnp.sum(pull)

    def excess(log_kappa: Array) -> Array:
        return jnp.sum(length * mean_resultant(jnp.exp(log_kappa) * length, dim)) - wanted

    def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = 0.5 * (low + high)
        above = excess(middle) > 0
        return jnp.where(above, low, middle), jnp.where(above, middle, high)

    ends = (jnp.log(jnp.asarray(1e-8, pull.dtype)), jnp.log(jnp.asarray(1e8, pull.dtype)))
    low, high = lax.fori_loop(0, 60, halve, ends)
    return jnp.where(wanted > 0, jnp.exp(0.5 * (low + high)), 0.0)


def _mean_rows(posterior: Components | VmfGammaFactors) -> Array:
    """Posterior mean of every direction, shape (K, p)."""
    factors = isinstance(posterior, VmfGammaFactors)
    rows = posterior.expected_directions if factors else posterior.directions
    return jnp.mean(rows.reshape(-1, *rows.shape[-2:]), axis=0)


def _pulls(prior: MutualAngular, posterior: Components | VmfGammaFactors) -> tuple[Array, Array]:
    """Pull on each component at unit concentration, and the length of what pulls."""
    if isinstance(posterior, VmfGammaFactors):
        if prior.kind == "I":
            raise ValueError(
                "kind='I': the pull has no closed form under q. Pass draws instead, such as "
                "factors.sample(key, (1000,))."
            )
        rows = posterior.expected_directions
        before = jnp.cumsum(rows, axis=-2) - rows
        cross = jnp.sum(before * rows, axis=-1)
        square, live = expected_square_resultants(posterior), jnp.asarray(True)
    else:
        rows = posterior.directions.reshape(-1, *posterior.directions.shape[-2:])
        square, cross, live = prefix_products(rows)
    if prior.first is None:
        towards, start = jnp.zeros(rows.shape[:-1]), 0.0
    else:
        towards, start = jnp.sum(prior.first * rows, axis=-1), 1.0
    if prior.kind == "independent":
        return towards, jnp.where(live, start, 0.0) * jnp.ones_like(towards)
    known = live & (square > VANISHING)
    length = jnp.where(known, jnp.sqrt(jnp.where(known, square, 1.0)), 0.0)
    pull = -cross
    if prior.kind == "I":
        pull = jnp.where(known, pull / jnp.where(known, length, 1.0), 0.0)
        length = jnp.where(known, 1.0, 0.0)
    return pull.at[..., 0].set(towards[..., 0]), length.at[..., 0].set(start)
