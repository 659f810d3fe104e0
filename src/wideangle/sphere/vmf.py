r"""The von Mises-Fisher distribution, by its natural parameter :math:`\eta = \kappa\mu`.

.. math:: f(x) = C_p(|\eta|)\, e^{\eta\cdot x}, \qquad |x| = 1.

The natural parameter has no singular point: :math:`\eta = 0` is the uniform distribution, so
the mutual-angular priors, chains of such distributions, need no special case where a resultant
vanishes.

**The normaliser.** With :math:`\nu = p/2 - 1` the two functions everything else needs are

.. math::
    G_p(\kappa) = \log E_{\text{uniform}} e^{\kappa u} = \log {}_0F_1(; p/2; \kappa^2/4), \qquad
    A_p(\kappa) = G_p'(\kappa) = I_{\nu+1}(\kappa) / I_\nu(\kappa),

so that :math:`\log Z_p(\kappa) = \log\mathrm{area}(p) + G_p(\kappa)`. SciPy's scaled Bessel
functions underflow for p beyond a few hundred and cancel for small concentration; here both come
from one branch-free formula, a Debye expansion at the raised order :math:`m = \nu + M`

.. math::
    G = m\Bigl[(w-1) - \log\tfrac{1+w}{2}\Bigr] - \tfrac12\log w
        + \log\frac{\sum_k u_k(t) m^{-k}}{\sum_k u_k(1) m^{-k}},
    \qquad w = \sqrt{1 + (\kappa/m)^2},\; t = 1/w,

followed by M downward steps :math:`R_{j-1} = \kappa / (2j + \kappa R_j)`, each of which adds
:math:`\log(1 + \kappa R_j / 2j)`. Raising the order makes the expansion converge even at p = 2;
every term is positive, so nothing cancels, and zero concentration needs no special case.
Relative error is about 1e-15 in float64 and 4e-7 in float32 (:cite:`debye`).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import jit, lax, random

from wideangle.sphere.geometry import normalise, safe_norm, tangent
from wideangle.types import Array, Key

MAX_ROUNDS = 32
"""Rejection rounds: each accepts with probability above 0.65, so a miss has odds below 3e-15."""


def log_area(dim: int) -> float:
    r"""Log of the surface area of the unit sphere in :math:`R^p`, :math:`2\pi^{p/2}/\Gamma(p/2)`.

    A host float64: at p = 1e6 it is about -5.5e6, where float32 has no decimals left.

    Differs from the paper: Eq. (7) and Appendix A (VIII) print the area one dimension up.
    """
    return math.log(2.0) + 0.5 * dim * math.log(math.pi) - math.lgamma(0.5 * dim)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
@partial(jax.jit, static_argnums=1)
def log_mean_exp(concentration: Array, dim: int) -> Array:
    r"""Log of the mean of :math:`e^{\kappa u}` over the sphere: :math:`G_p(\kappa) \ge 0`.

    This is the log normaliser against the *uniform* distribution; add :func:`log_area` for surface
    measure. Its derivative is :func:`mean_resultant`, used directly because autodiff of a float32
    normaliser is wrong by 20 % at p = 5000.
    """
    return _descend(concentration, dim).log_mean


@log_mean_exp.defjvp
def _(dim: int, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (concentration,), (change,) = primals, tangents
    return log_mean_exp(concentration, dim), mean_resultant(concentration, dim) * change


@partial(jax.custom_jvp, nondiff_argnums=(1,))
@partial(jax.jit, static_argnums=1)
def mean_resultant(concentration: Array, dim: int) -> Array:
    r"""Expected cosine to the mean direction, :math:`A_p(\kappa) = I_{p/2} / I_{p/2-1}`."""
    return _descend(concentration, dim).ratio


@mean_resultant.defjvp
def _(dim: int, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (concentration,), (change,) = primals, tangents
    slope = mean_resultant_slope(concentration, dim)
    return mean_resultant(concentration, dim), slope * change


@partial(jax.jit, static_argnums=1)
def mean_resultant_slope(concentration: Array, dim: int) -> Array:
    r"""Derivative :math:`A_p'(\kappa)`, the variance of the cosine to the mean direction.

    The textbook :math:`1 - A^2 - (p-1)A/\kappa` loses every digit for :math:`\kappa \ll p` and for
    :math:`\kappa \gg p`; differentiating the downward recursion loses none.
    """
    return _descend(concentration, dim).slope


@partial(jax.jit, static_argnums=1)
def inverse_mean_resultant(cosine: Array, dim: int) -> Array:
    r"""Concentration whose expected cosine is ``cosine``: solves :math:`A_p(\kappa) = \rho`.

    Starts from :math:`\kappa_0 = \rho(p - \rho^2)/(1 - \rho^2)` :cite:`banerjee2005`, then a fixed
    number of Newton steps in :math:`\log\kappa`, in which the problem is almost linear at both
    ends. Differentiable; 0 maps to 0 and 1 to infinity.
    """
    cosine = jnp.asarray(cosine)
    inside = (cosine > 0) & (cosine < 1)
    target = jnp.where(inside, cosine, 0.5)

    fixed = lax.stop_gradient(target)  # also spares the compiler the derivative of the loop

    def newton(_: int, concentration: Array) -> Array:
        value = _descend(concentration, dim)
        step = (fixed - value.ratio) / (concentration * value.slope)
        return concentration * jnp.exp(jnp.clip(step, -1.0, 1.0))

    start = fixed * (dim - fixed**2) / ((1 - fixed) * (1 + fixed))
    solved = lax.stop_gradient(lax.fori_loop(0, 8, newton, start))
    # One more step, with gradient: its derivative at the root is exactly 1 / A'.
    value = _descend(solved, dim)
    solved = solved + (target - value.ratio) / value.slope
    return jnp.where(inside, solved, jnp.where(cosine >= 1, jnp.inf, 0.0))


def log_ratio_to_uniform(natural: Array, value: Array) -> Array:
    r"""Log density against the uniform distribution, :math:`\eta\cdot x - G_p(|\eta|)`.

    Free of the area constant, and therefore what samplers should use: in float32 at p = 5000 the
    constant is -14,000 per vector and leaves no digits for the part that matters.
    """
    dim = natural.shape[-1]
    return jnp.sum(natural * value, axis=-1) - log_mean_exp(safe_norm(natural), dim)


def log_prob(natural: Array, value: Array) -> Array:
    """Log density with respect to the surface measure of the sphere."""
    return log_ratio_to_uniform(natural, value) - log_area(natural.shape[-1])


# Compiled here: called outside jit, the loop inside would be compiled again at every call.
@partial(jit, static_argnames="shape")
def sample(
    key: Key, natural: Array, shape: tuple[int, ...] = (), *, gaussian: Array | None = None
) -> Array:
    r"""Draw exactly from the distribution, ``shape + natural.shape`` values at once.

    A cosine :math:`w` to the mean direction (:func:`sample_cosine`), then a uniform tangent
    direction from a projected Gaussian, which may be given: O(p) per draw, no Householder matrix.
    """
    natural = jnp.asarray(natural)
    natural = lax.stop_gradient(natural.astype(jnp.promote_types(natural.dtype, jnp.float32)))
    concentration = safe_norm(natural)
    pole = jnp.zeros(natural.shape[-1], natural.dtype).at[0].set(1.0)
    mean = jnp.where(concentration[..., None] > 0, normalise(natural), pole)
    key_cosine, key_side = random.split(key)
    batch = shape + natural.shape[:-1]
    cosine, sine = sample_cosine(key_cosine, concentration, natural.shape[-1], batch)
    if gaussian is None:
        gaussian = random.normal(key_side, shape + natural.shape, natural.dtype)
    return place_around(mean, cosine, sine, gaussian)


def place_around(mean: Array, cosine: Array, sine: Array, gaussian: Array) -> Array:
    """The point at a given cosine to the mean direction, sideways along a Gaussian vector."""
    # Projected twice: a draw almost along the mean leaves mostly rounding the first time, which in
    # float32 at p = 2 put one draw in 1e5 off the sphere by a per cent.
    side = tangent(mean, tangent(mean, gaussian))
    scale = sine / jnp.maximum(safe_norm(side), jnp.finfo(gaussian.dtype).tiny)
    return cosine[..., None] * mean + scale[..., None] * side


def sample_cosine(
    key: Key, concentration: Array, dim: int, shape: tuple[int, ...]
) -> tuple[Array, Array]:
    r"""Draw the cosine :math:`w` to the mean direction, and its sine.

    Ulrich's envelope with Wood's correction :cite:`ulrich1984,wood1994`: with :math:`n = p-1`,
    :math:`b = n / (2\kappa + \sqrt{4\kappa^2 + n^2})`, :math:`x_0 = (1-b)/(1+b)` and a symmetric
    Beta(n/2, n/2) variable :math:`z`, :math:`w = (1-(1+b)z)/(1-(1-b)z)` is accepted if

    .. math:: \kappa(w - x_0) + n\log\frac{1 - x_0 w}{1 - x_0^2} \ge \log U.

    :math:`2z-1` is one coordinate of a uniform point on a sphere, so it is drawn in closed form as
    :math:`\sqrt{1 - U^{2/(n-1)}}\cos 2\pi V`: two uniforms, no inner rejection loop.
    """
    dtype = concentration.dtype
    n = dim - 1.0
    kappa = jnp.broadcast_to(concentration, shape)
    b = n / (2.0 * kappa + jnp.sqrt(4.0 * kappa**2 + n**2))
    peak = (1.0 - b) / (1.0 + b)
    peak_drop = 2.0 * b / (1.0 + b)  # 1 - peak

    def propose(key: Key) -> tuple[Array, Array, Array]:
        u, v, log_u = random.uniform(key, (3, *shape), dtype, minval=jnp.finfo(dtype).tiny)
        # exponent is -inf at p = 2, where the coordinate is simply cos(2 pi v)
        exponent = jnp.log(u) * (2.0 / (n - 1.0)) if dim > 2 else jnp.full_like(u, -jnp.inf)  # noqa: PLR2004
        radius_square = -jnp.expm1(exponent)
        turn, sideways = jnp.cos(2.0 * jnp.pi * v), jnp.sin(2.0 * jnp.pi * v)
        coordinate = jnp.sqrt(radius_square) * turn
        below = 1.0 - coordinate + b * (1.0 + coordinate)  # 2 (1 - (1-b) z)
        drop = 2.0 * b * (1.0 + coordinate) / below  # 1 - w, without cancellation
        rest = jnp.exp(exponent) + radius_square * sideways**2  # 1 - coordinate^2
        sine = 2.0 * jnp.sqrt(b * rest) / below
        # Differences of drops, not of cosines: those are all 1 in float32 at high concentration.
        ratio = peak * (drop - peak_drop) * (1.0 + b) ** 2 / (4.0 * b)
        accept = kappa * (peak_drop - drop) + n * jnp.log1p(ratio) >= jnp.log(log_u)
        return 1.0 - drop, sine, accept

    def pending(state: tuple[Array, Array, Array, Array]) -> Array:
        rounds, _, _, done = state
        return (rounds < MAX_ROUNDS) & ~jnp.all(done)

    def attempt(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        rounds, cosine, sine, done = state
        new_cosine, new_sine, accept = propose(random.fold_in(key, rounds))
        cosine = jnp.where(done, cosine, new_cosine)
        return rounds + 1, cosine, jnp.where(done, sine, new_sine), done | accept

    blank = jnp.zeros(shape, dtype)
    start = (jnp.zeros((), jnp.int32), blank, blank, jnp.zeros(shape, bool))
    _, cosine, sine, _ = lax.while_loop(pending, attempt, start)
    return cosine, sine


def mean(natural: Array) -> Array:
    r"""Expected value :math:`A_p(\kappa)\mu`."""
    concentration = safe_norm(natural)
    return mean_resultant(concentration, natural.shape[-1])[..., None] * normalise(natural)


def scatter_weights(concentration: Array, dim: int) -> tuple[Array, Array]:
    r"""Weights of :math:`E[x x^\top] = \alpha I + \beta\,\mu\mu^\top`.

    :math:`\alpha = A_p/\kappa` (1/p at zero), and :math:`\beta = 1 - p\alpha`, written as the
    product :math:`A_p A_{p+2}` so that it does not cancel. A quadratic form therefore costs one
    inner product and never a p x p matrix.
    """
    safe = jnp.where(concentration > 0, concentration, 1.0)
    ratio = mean_resultant(concentration, dim)
    across = jnp.where(concentration > 0, ratio / safe, 1.0 / dim)
    along = ratio * mean_resultant(concentration, dim + 2)
    return across, along


def covariance(natural: Array) -> Array:
    r"""Covariance :math:`\frac{A}{\kappa}(I - \mu\mu^\top) + A'\mu\mu^\top`, as a matrix."""
    dim = natural.shape[-1]
    concentration = safe_norm(natural)
    across, _ = scatter_weights(concentration, dim)
    unit = normalise(natural)
    outer = unit[..., :, None] * unit[..., None, :]
    slope = mean_resultant_slope(concentration, dim)
    identity = jnp.eye(dim, dtype=unit.dtype)
    return across[..., None, None] * identity + (slope - across)[..., None, None] * outer


def entropy_to_uniform(concentration: Array, dim: int) -> Array:
    r"""Entropy minus that at 0, :math:`G_p(\kappa) - \kappa A_p(\kappa) \le 0`."""
    ratio = mean_resultant(concentration, dim)
    return log_mean_exp(concentration, dim) - concentration * ratio


def entropy(concentration: Array, dim: int) -> Array:
    r"""Differential entropy :math:`\log Z_p(\kappa) - \kappa A_p(\kappa)`.

    Differs from the paper: the last equation of Appendix A leaves out :math:`\log C_p`, which is
    harmless only while the concentration is fixed.
    """
    return entropy_to_uniform(concentration, dim) + log_area(dim)


def kl_divergence(natural: Array, other: Array) -> Array:
    r"""KL of the distribution at ``natural`` from the distribution at ``other``.

    .. math:: A_p(\kappa)\,\mu\cdot(\eta - \eta') - G_p(\kappa) + G_p(\kappa')
    """
    dim = natural.shape[-1]
    gain = jnp.sum(mean(natural) * (natural - other), axis=-1)
    return gain - log_mean_exp(safe_norm(natural), dim) + log_mean_exp(safe_norm(other), dim)


# ---------------------------------------------------------------- the normaliser, evaluated


class Values(NamedTuple):
    """G, A and its derivative."""

    log_mean: Any
    ratio: Any
    slope: Any


def values_on_host(concentration: Any, dim: int) -> Values:
    """G, A and A' in NumPy and double precision: for few numbers there is nothing to compile."""
    return _descend(np.asarray(concentration, np.float64), dim, np)


def inverse_on_host(cosine: Any, dim: int) -> np.ndarray:
    """The same of :func:`inverse_mean_resultant`, for cosines in [0, 1)."""
    cosine = np.asarray(cosine, np.float64)
    target = np.where(cosine > 0, cosine, 0.5)
    found = target * (dim - target**2) / ((1 - target) * (1 + target))
    for _ in range(9):
        value = values_on_host(found, dim)
        step = (target - value.ratio) / (found * value.slope)
        found = found * np.exp(np.clip(step, -1.0, 1.0))
    return np.where(cosine > 0, found, 0.0)


def _descend(concentration: Any, dim: int, xp: Any = jnp) -> Values:
    """Evaluate G, A and A' together: expansion at the raised order, then down to the wanted one."""
    x = xp.asarray(concentration)
    x = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    raised, terms = (24, 9) if x.dtype == jnp.float64 else (8, 4)
    order = 0.5 * dim - 1.0
    log_mean, ratio, slope = _expansion(x, order + raised, terms, xp)
    for j in (order + n for n in range(raised, 0, -1)):
        down = 1.0 / (2.0 * j + x * ratio)
        log_mean = log_mean + xp.log1p(x * ratio / (2.0 * j))
        ratio, slope = x * down, (2.0 * j - (x * x) * slope) * down * down
    return Values(log_mean, ratio, slope)


def _expansion(x: Any, order: float, terms: int, xp: Any) -> Values:
    """Debye expansion of G and its two derivatives in x at a (large) order."""
    z = x / order
    w = xp.sqrt(1.0 + z * z)
    t = 1.0 / w
    rise = z * (z / (1.0 + w))  # w - 1, without cancellation
    value, first, second, quotient = (_horner(c, t, xp) for c in _tables(order, terms))
    bend = first / value
    log_mean = (
        order * (rise - xp.log1p(0.5 * rise))
        - 0.5 * xp.log1p(rise)
        - xp.log1p(rise * t * quotient / value)  # see _tables: S(1)/S(t) = 1 + (1-t) Q(t)/S(t)
    )
    ratio = z * (1.0 / (1.0 + w) - t * t * (0.5 + t * bend) / order)
    fall = (1.0 - t) * (1.0 + t)
    curvature = second / value - bend * bend
    slope = (
        t / (1.0 + w)
        - t * t * (t * t - 0.5) / order
        - t**3 * (bend * (3.0 * t * t - 2.0) - t * fall * curvature) / order
    ) / order
    return Values(log_mean, ratio, slope)


def _horner(coefficients: np.ndarray, t: Any, xp: Any) -> Any:
    total = xp.full_like(t, coefficients[-1])
    for c in coefficients[-2::-1]:
        total = total * t + float(c)
    return total


@cache
def _tables(order: float, terms: int) -> tuple[np.ndarray, ...]:
    r"""Coefficients in t of :math:`S(t)=\sum_{k\le n} u_k(t)/m^k`, S', S'' and the quotient Q.

    :math:`Q(t) = (S(1) - S(t)) / (1 - t)` is divided out as a polynomial, so that the logarithm
    of S(t)/S(1) keeps its relative accuracy as the concentration goes to zero.
    """
    exact = [Fraction(0)] * (3 * terms + 1)
    scale = Fraction(order)
    for k, polynomial in enumerate(_debye_polynomials(terms)):
        for power, c in enumerate(polynomial):
            exact[power] += c / scale**k
    first = [power * c for power, c in enumerate(exact)][1:]
    second = [power * c for power, c in enumerate(first)][1:]
    # (1 - t^i) / (1 - t) = 1 + t + ... + t^(i-1): coefficient j collects every power above j.
    quotient = [sum(exact[j + 1 :], Fraction(0)) for j in range(len(exact) - 1)]
    return tuple(np.array([float(c) for c in cs]) for cs in (exact, first, second, quotient))


@cache
def _debye_polynomials(terms: int) -> list[list[Fraction]]:
    r"""Rational coefficients of :math:`u_0, \dots, u_n` (Abramowitz & Stegun 9.3.10).

    .. math:: u_{k+1}(t) = \tfrac12 t^2(1-t^2)u_k'(t) + \tfrac18\int_0^t (1 - 5s^2)u_k(s)\,ds
    """
    polynomials = [[Fraction(1)]]
    for _ in range(terms):
        last = polynomials[-1]
        new = [Fraction(0)] * (len(last) + 3)
        for power, c in enumerate(last):
            new[power + 1] += c * (Fraction(power, 2) + Fraction(1, 8 * (power + 1)))
            new[power + 3] -= c * (Fraction(power, 2) + Fraction(5, 8 * (power + 3)))
        polynomials.append(new)
    return polynomials
