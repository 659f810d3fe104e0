r"""Coordinate updates of vMF x Gamma factors: each raises the family objective, or keeps it.

Paper: Appendices A, B and D, which leave all updates to the reader. The objective is F of
:mod:`wideangle_lab.paper.coordinate_ascent.factor_objective`, whose letters are used here.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import digamma, gammaln

from wideangle.mixture_of_experts.likelihood import GRAM_ROWS, over_blocks
from wideangle.priors.components import GaussianComponents
from wideangle.sphere.geometry import angular_spread, geodesic, normalise, safe_norm, tangent
from wideangle.sphere.vmf import mean_resultant, mean_resultant_slope
from wideangle.types import Array, Scalar
from wideangle_lab.paper.coordinate_ascent.factor_objective import (
    Evidence,
    Family,
    Sums,
    angular_moments,
    climb,
    family_objective,
    prior_pull,
    project,
    summarise,
)


def direction_gradient(family: Family, evidence: Evidence) -> Array:
    r"""Gradient of F in :math:`\hat a_k`, (K, p); its tangent part is the Riemannian one."""
    factors = family.factors
    ratio, _, beta, _ = family.angular
    first = (factors.expected_magnitudes * ratio)[:, None] * evidence.linear
    second = (2.0 * factors.expected_square_magnitudes * beta)[:, None] * evidence.quadratic
    weights = first - second * family.along

    def product(block: tuple[Array, Array]) -> Array:
        return jnp.einsum("nk,np->kp", *block, precision=lax.Precision.HIGHEST)

    data = over_blocks(product, (weights.T, evidence.rows), GRAM_ROWS)
    return data + ratio[:, None] * prior_pull(family)[0]


def update_directions(family: Family, evidence: Evidence) -> Family:
    r"""One minorise-maximise step for all directions: no step size, never downhill.

    .. math:: \hat a_k \leftarrow \mathrm{normalise}(\nabla_k + 2L_k\hat a_k)

    raises F whenever :math:`L_k` is at least the curvature of its quadratic along the step. The
    trace of the data's quadratic always is, but can be p times too large; so a smaller value is
    tried first, checked against the step it led to (the products with the rows are needed anyway),
    and where the check fails that component stays and its value is doubled.
    """
    factors = family.factors
    scale = factors.expected_square_magnitudes * family.angular.beta
    trace = scale * summarise(family, evidence).size
    gradient, tightness = direction_gradient(family, evidence), family.tightness
    curvature = tightness * trace + prior_pull(family)[1]
    new = normalise(gradient + 2.0 * curvature[:, None] * factors.mean_directions)
    along = project(new, evidence.rows)
    bend = scale * jnp.sum(evidence.quadratic * (along - family.along) ** 2, axis=-1)
    step = jnp.sum((new - factors.mean_directions) ** 2, axis=-1)
    moves = jnp.any(new != 0, axis=-1)  # a zero gradient leaves nothing to normalise
    good = ((bend <= tightness * trace * step) | (tightness >= 1.0)) & moves
    chosen = jnp.where(good[:, None], new, factors.mean_directions)
    return family._replace(
        factors=factors._replace(mean_directions=chosen),
        along=jnp.where(good[:, None], along, family.along),
        tightness=jnp.clip(tightness * jnp.where(good, 0.8, 2.0), 1e-6, 1.0),
    )


def update_regularised_directions(
    family: Family, evidence: Evidence, strength: Any, gamma: Any
) -> Family:
    r"""As :func:`update_directions` for F with :math:`\lambda\,\Omega`, by line search.

    The minorise-maximise step is kept if the regularised F does not fall; then the gradient of the
    whole is followed along great circles, halving the step until F rises.

    Paper: Appendix D. Omega has kinks at right angles, where its gradient is no guide: progress can
    stop there before the maximum is reached.
    """

    def objective(candidate: Family) -> Scalar:
        return family_objective(candidate, summarise(candidate, evidence), strength, gamma)

    stepped = update_directions(family, evidence)
    better = objective(stepped) >= objective(family)
    family = jax.tree.map(lambda new, old: jnp.where(better, new, old), stepped, family)
    factors, start = family.factors, family.factors.mean_directions
    pull = strength * jax.grad(angular_spread)(start, gamma)
    gradient = tangent(start, direction_gradient(family, evidence) + pull)
    across = factors.expected_square_magnitudes * summarise(family, evidence).size
    curvature = family.tightness * across + prior_pull(family)[1] + jnp.abs(strength)
    velocity = gradient / (2.0 * curvature[:, None])
    speed = safe_norm(velocity)
    sideways = project(normalise(velocity), evidence.rows)  # products along the whole circle

    def move(time: Array) -> Family:
        angle = (time * speed)[:, None]
        along = jnp.cos(angle) * family.along + jnp.sin(angle) * sideways
        directions = geodesic(start, velocity, time)[0]
        return family._replace(factors=factors._replace(mean_directions=directions), along=along)

    moved = climb(move, objective, family, jnp.sum(gradient * velocity))
    return moved._replace(along=project(moved.factors.mean_directions, evidence.rows))


def radial_prior(prior: Any) -> tuple[Array, Array, Array]:
    r"""Shape, rate and quadratic coefficient of :math:`\log p(g)` up to constants.

    A Gaussian vector has :math:`\log p(g) = (p-1)\log g - g^2/(2\sigma^2)`: shape p, rate 0.
    """
    if isinstance(prior, GaussianComponents):
        zero = jnp.zeros_like(prior.scale)
        return zero + prior.dim, zero, 0.5 / prior.scale**2
    return prior.magnitude_shape, prior.magnitude_rate, jnp.zeros_like(prior.magnitude_rate)


def update_magnitudes(family: Family, sums: Sums) -> Family:
    r"""The best Gamma factors, shape and rate together.

    With :math:`\mu = r/s`, :math:`l = A\sum\ell P - \alpha_2`, :math:`Q = \sum q E(\tilde a\cdot
    x)^2`, F is, up to constants,

    .. math:: \alpha_1\log\mu + l\mu - Q\mu^2(1 + 1/r)
              + (\alpha_1 - r)\psi(r) - \alpha_1\log r + r + \log\Gamma(r).

    Given r, :math:`\mu` is the positive root of :math:`2Q(1+1/r)\mu^2 - l\mu - \alpha_1`; the
    derivative in r vanishes where :math:`(r - \alpha_1)\rho(r) = Q\mu^2`, with
    :math:`\rho(r) = r(r\psi'(r) - 1)` between 1/2 and 1. Hence
    :math:`\alpha_1 \le r \le \alpha_1 + 2Q\mu_\infty^2`, and bisection finds it. (A Gamma factor is
    not conjugate to a quadratic, so r has no closed form.)
    """
    factors = family.factors
    shape, rate, extra = radial_prior(family.prior)
    angular = family.angular
    linear = angular.resultant * sums.pull - rate
    square = angular.across * sums.size + angular.beta * sums.square + extra

    def best_mean(r: Array) -> Array:
        bend = 2.0 * square * (1.0 + 1.0 / r)
        root = jnp.sqrt(linear**2 + 4.0 * bend * shape)
        tiny = jnp.finfo(root.dtype).tiny
        down = 2.0 * shape / jnp.maximum(root - linear, tiny)  # each form where it does not cancel
        return jnp.where(linear > 0, (linear + root) / jnp.maximum(2.0 * bend, tiny), down)

    def halve(_: int, bracket: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = bracket
        middle = jnp.sqrt(low) * jnp.sqrt(high)
        short = (middle - shape) * _trigamma_excess(middle) < square * best_mean(middle) ** 2
        return jnp.where(short, middle, low), jnp.where(short, high, middle)

    def value(r: Array, mean: Array) -> Array:
        radial = (shape - r) * digamma(r) - shape * jnp.log(r) + r + gammaln(r)
        return shape * jnp.log(mean) + linear * mean - square * mean**2 * (1.0 + 1.0 / r) + radial

    low = jnp.broadcast_to(shape, linear.shape).astype(linear.dtype)
    high = low + 2.0 * square * best_mean(jnp.full_like(low, jnp.inf)) ** 2
    low, high = lax.fori_loop(0, 50, halve, (low, high))
    r = jnp.sqrt(low) * jnp.sqrt(high)
    mean = best_mean(r)
    # Rounding, and the unproved case of a second maximum, must not lower the bound.
    better = value(r, mean) >= value(factors.shapes, factors.expected_magnitudes)
    new = factors._replace(
        shapes=jnp.where(better, r, factors.shapes),
        rates=jnp.where(better, r / mean, factors.rates),
    )
    return family._replace(factors=new)


def _trigamma_excess(r: Array) -> Array:
    r""":math:`r(r\psi'(r) - 1)`: by its series where the difference would cancel.

    Below that, ten terms of :math:`\psi'(r) = \sum_i (r+i)^{-2}` and the series for the rest; the
    general polygamma function takes seconds to compile.
    """

    def series(x: Array) -> Array:  # x (x psi'(x) - 1)
        y = 1.0 / x
        return 0.5 + y * (
            1 / 6 - y**2 * (1 / 30 - y**2 * (1 / 42 - y**2 * (1 / 30 - y**2 * 5 / 66)))
        )

    large = r > 30.0  # noqa: PLR2004
    small, far = jnp.where(large, 1.0, r), jnp.where(large, r, 30.0)
    shifted = small + 10.0
    trigamma = (1.0 + series(shifted) / shifted) / shifted
    trigamma += sum(1.0 / (small + i) ** 2 for i in range(10))
    return jnp.where(large, series(far), small * (small * trigamma - 1.0))


def concentration_gradient(family: Family, sums: Sums) -> Array:
    r"""Gradient of F in :math:`\hat\kappa_k`, (K,).

    .. math:: A'\bigl[Eg\textstyle\sum\ell P - \hat\kappa + \hat a_k\cdot\nabla_{e_k}E\log p\bigr]
              - Eg^2\,\alpha'\sum q(|x|^2 - pP^2)

    Differs from the paper: its entropy leaves out :math:`\log C_p`, so that the concentration
    could not be learned.
    """
    factors = family.factors
    kappa, dim = factors.concentrations, factors.dim
    ratio, _, _, slope = family.angular
    # alpha' = -beta'/p with beta = A_p A_{p+2}: the textbook (A' - alpha)/kappa cancels.
    up, up_slope = mean_resultant(kappa, dim + 2), mean_resultant_slope(kappa, dim + 2)
    across_slope = -(slope * up + ratio * up_slope) / dim
    angular = jnp.sum(prior_pull(family)[0] * factors.mean_directions, axis=-1)
    linear = factors.expected_magnitudes * sums.pull - kappa + angular
    quadratic = factors.expected_square_magnitudes * (sums.size - dim * sums.square)
    return slope * linear - across_slope * quadratic


def update_concentrations(family: Family, sums: Sums) -> Family:
    r"""Natural-gradient step on :math:`\log\hat\kappa`, all components, with backtracking.

    The Fisher information of :math:`\log\hat\kappa` is :math:`\hat\kappa^2A'`; with it the step is
    exact where F is linear in A. Limited to a factor e, and to :math:`\hat\kappa\ge 10^{-3}p`,
    below which the factor is uniform up to :math:`10^{-6}p` nats.
    """
    factors = family.factors
    kappa, dim = factors.concentrations, factors.dim
    gradient = concentration_gradient(family, sums)
    low, high = math.log(1e-3 * dim), math.log(1e7 * dim)
    step = jnp.clip(gradient / (kappa * family.angular.slope), -1.0, 1.0)
    step = jnp.clip(jnp.log(kappa) + step, low, high) - jnp.log(kappa)

    def move(time: Array) -> Family:
        new = kappa * jnp.exp(time * step)
        changed = factors._replace(concentrations=new)
        return family._replace(factors=changed, angular=angular_moments(new, dim))

    slope = jnp.maximum(jnp.sum(gradient * kappa * step), 0.0)
    return climb(move, lambda f: family_objective(f, sums), family, slope)
