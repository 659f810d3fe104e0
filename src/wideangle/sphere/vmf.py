r"""The von Mises-Fisher distribution, by its natural parameter :math:`\eta = \kappa\mu`.

.. math:: f(x) = C_p(|\eta|)\, e^{\eta\cdot x}, \qquad |x| = 1.

The natural parameter has no singular point: :math:`\eta = 0` is the uniform distribution, so
the mutual-angular priors, chains of such distributions, need no special case where a resultant
vanishes.
"""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
from jax import jit, lax, random

from wideangle.sphere.bessel import (
    log_area,
    log_mean_exp,
    mean_resultant,
    mean_resultant_slope,
)
from wideangle.sphere.geometry import normalise, safe_norm, tangent
from wideangle.types import Array, Key

MAX_ROUNDS = 32
"""Rejection rounds: each accepts with probability above 0.65, so a miss has odds below 3e-15."""


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
def sample(key: Key, natural: Array, shape: tuple[int, ...] = ()) -> Array:
    r"""Draw exactly from the distribution, ``shape + natural.shape`` values at once.

    A cosine :math:`w` to the mean direction (:func:`sample_cosine`), then a uniform tangent
    direction from a projected Gaussian: O(p) per draw, no Householder matrix.
    """
    natural = jnp.asarray(natural)
    natural = lax.stop_gradient(natural.astype(jnp.promote_types(natural.dtype, jnp.float32)))
    concentration = safe_norm(natural)
    pole = jnp.zeros(natural.shape[-1], natural.dtype).at[0].set(1.0)
    mean = jnp.where(concentration[..., None] > 0, normalise(natural), pole)
    key_cosine, key_side = random.split(key)
    batch = shape + natural.shape[:-1]
    cosine, sine = sample_cosine(key_cosine, concentration, natural.shape[-1], batch)
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
