r"""The part of a variational bound that K vMF x Gamma factors see, and what its updates share.

For K vectors :math:`a_k = g_k\tilde a_k` with factors vMF(:math:`\hat a_k,\hat\kappa_k`) and
Gamma(:math:`r_k, s_k`), a bound whose data term is quadratic depends on the factors as

.. math:: F = \sum_{kn}\bigl[\ell_{kn} E(a_k\cdot x_n) - q_{kn} E(a_k\cdot x_n)^2\bigr]
          + E\log p(A) + H(q) + \lambda\,\Omega(\{\hat a_k\}), \qquad q_{kn} \ge 0,

with the Jensen bound inside :math:`E\log p(A)` for the type II prior. Since
:math:`E(\tilde a\cdot x)^2 = \alpha|x|^2 + \beta(\hat a\cdot x)^2`, F needs N x K products and
three sums per component, never a p x p matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wideangle.priors.expected import expected_log_prior
from wideangle.priors.factors import VmfGammaFactors
from wideangle.sphere.geometry import angular_spread
from wideangle.sphere.vmf import mean_resultant, mean_resultant_slope, scatter_weights
from wideangle.types import Array, Scalar

HALVINGS = 25


class Angular(NamedTuple):
    r"""Moments of the directions, each (K,): :math:`A, \alpha, \beta, A'`."""

    resultant: Array
    across: Array
    beta: Array
    slope: Array


class Family(NamedTuple):
    r"""K vectors under q, with the quantities that every update needs."""

    factors: VmfGammaFactors
    prior: Any
    angular: Angular
    """Kept, since a compiler that sees how they come about evaluates them once per row."""
    along: Array
    r""":math:`\hat a_k\cdot x_n`, (K, N)."""
    tightness: Array
    """Curvature of the data term over its trace, as the last steps found it, (K,)."""


class Evidence(NamedTuple):
    """The data term: coefficients (K, N) over rows (N, p)."""

    linear: Array
    quadratic: Array
    rows: Array


class Sums(NamedTuple):
    r"""What magnitudes and concentrations need of the data, each (K,)."""

    pull: Array
    r""":math:`\sum_n \ell\,\hat a\cdot x_n`"""
    size: Array
    r""":math:`\sum_n q|x_n|^2`"""
    square: Array
    r""":math:`\sum_n q(\hat a\cdot x_n)^2`"""


def project(directions: Array, rows: Array) -> Array:
    """All inner products, (K, N), at full precision also on a GPU."""
    return jnp.einsum("kp,np->kn", directions, rows, precision=lax.Precision.HIGHEST)


def angular_moments(concentrations: Array, dim: int) -> Angular:
    """The moments at given concentrations."""
    ratio, slope = mean_resultant(concentrations, dim), mean_resultant_slope(concentrations, dim)
    return lax.optimization_barrier(Angular(ratio, *scatter_weights(concentrations, dim), slope))


def projection_moments(family: Family, squares: Array) -> tuple[Array, Array]:
    r"""Mean and variance of :math:`a_k\cdot x_n`, each (K, N); a sum of positive terms.

    .. math:: v = (Eg)^2\bigl[\alpha(|x|^2 - P^2) + A'P^2 + (\alpha|x|^2 + \beta P^2)/r\bigr]
    """
    factors, along = family.factors, family.along
    ratio, across, beta, slope = (moment[:, None] for moment in family.angular)
    size, length = along**2, factors.expected_magnitudes[:, None]
    turn = across * jnp.maximum(squares - size, 0.0) + slope * size
    stretch = (across * squares + beta * size) / factors.shapes[:, None]
    return length * ratio * along, length**2 * (turn + stretch)


def summarise(family: Family, evidence: Evidence) -> Sums:
    """Sums of the evidence over rows."""
    squares = jnp.sum(evidence.rows**2, axis=-1)
    return Sums(
        jnp.sum(evidence.linear * family.along, axis=-1),
        jnp.sum(evidence.quadratic * squares, axis=-1),
        jnp.sum(evidence.quadratic * family.along**2, axis=-1),
    )


def family_objective(family: Family, sums: Sums, strength: Any = 0.0, gamma: Any = 1.0) -> Scalar:
    """F of the module: the part of the bound that depends on these factors."""
    factors, angular = family.factors, family.angular
    mean = factors.expected_magnitudes * angular.resultant * sums.pull
    square = angular.across * sums.size + angular.beta * sums.square
    second = factors.expected_square_magnitudes * square
    return jnp.sum(mean - second) + divergence_terms(family, strength, gamma)


def divergence_terms(family: Family, strength: Any = 0.0, gamma: Any = 1.0) -> Scalar:
    r"""Bound on minus the KL divergence from the prior, plus :math:`\lambda\,\Omega`."""
    factors = family.factors
    value = expected_log_prior(factors, family.prior) + factors.entropy_to_uniform()
    value = value + strength * angular_spread(factors.mean_directions, gamma)
    return value.astype(factors.rates.dtype)


def prior_pull(family: Family) -> tuple[Array, Array]:
    r"""Gradient of :math:`E\log p(A)` in :math:`e_k = A_k\hat a_k`, (K, p), and a curvature (K,).

    With :math:`C_i = \sum_{j\le i}e_j` and :math:`w_i = \frac{\kappa^2}{2}A_p(t_i)/t_i`,
    :math:`t_i^2 = \kappa^2E|S_{i-1}|^2`, the derivative of the Jensen term,

    .. math:: \kappa\mu_0[k=1] - \kappa\sum_{j\ne k}e_j - 2\sum_{i>k}w_i(C_{i-1} - e_k).

    In the directions together the prior term is minorised (tangent in :math:`E|S|^2`, of which
    -log Z is convex) by a quadratic form with weights
    :math:`A_kA_j(\kappa/2 + \sum_{i>\max(k,j)}w_i)` between components. They are positive, so the
    row sums, returned second, dominate it and all components can move at once.
    """
    factors, directions = family.factors, getattr(family.prior, "directions", None)
    lengths = family.angular.resultant
    means = lengths[:, None] * factors.mean_directions
    nothing = jnp.zeros_like(lengths)
    if directions is None:
        return jnp.zeros_like(means), nothing
    kappa = directions.concentration
    start = jnp.zeros_like(means[0]) if directions.first is None else kappa * directions.first
    if directions.kind == "independent":
        return jnp.broadcast_to(start, means.shape), nothing
    sums = jnp.cumsum(means, axis=0)
    scatter = jnp.cumsum(1.0 - lengths**2) - (1.0 - lengths**2)
    t = kappa * jnp.sqrt(jnp.sum((sums - means) ** 2, axis=-1) + jnp.maximum(scatter, 0.0))
    w = (0.5 * kappa**2 * scatter_weights(t, factors.dim)[0]).at[0].set(0.0)
    weighted = w[:, None] * (sums - means)
    later = jnp.sum(weighted, axis=0) - jnp.cumsum(weighted, axis=0)
    tail = jnp.maximum(jnp.sum(w) - jnp.cumsum(w), 0.0)
    pull = -kappa * (sums[-1] - means) - 2.0 * (later - tail[:, None] * means)
    before = jnp.cumsum(lengths) - lengths
    after = jnp.sum(lengths * tail) - jnp.cumsum(lengths * tail)
    curvature = 0.5 * kappa * (jnp.sum(lengths) - lengths) + tail * before + after
    return pull.at[0].add(start), lengths * jnp.maximum(curvature, 0.0)


def climb(
    move: Callable[[Array], Family],
    objective: Callable[[Family], Scalar],
    family: Family,
    slope: Array,
) -> Family:
    """Halve a full step until the objective rises enough; if it never does, stay."""

    def attempt(state: tuple[Array, ...]) -> tuple[Array, ...]:
        count, before, _, _ = state
        # Turn 0 evaluates the start itself: one copy of the objective compiles in half the time
        # of two, and rounds alike before and after.
        time = jnp.where(count == 0, 0.0, 0.5 ** (count - 1.0)).astype(slope.dtype)
        value = objective(move(time))
        before = jnp.where(count == 0, value, before)
        done = (count > 0) & (value >= before + 1e-4 * time * slope)
        return count + 1, before, time, done

    start = (
        jnp.zeros((), jnp.int32),
        jnp.zeros_like(slope),
        jnp.zeros_like(slope),
        jnp.bool_(False),
    )
    *_, time, done = lax.while_loop(lambda s: ~s[3] & (s[0] <= HALVINGS), attempt, start)
    return jax.tree.map(lambda new, old: jnp.where(done, new, old), move(time), family)
