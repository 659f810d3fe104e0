r"""Weights of infinitely many features: the Indian buffet and its power-law extension.

Feature weights :math:`\mu_k` are the points of a Poisson process on (0, 1) with the rate

.. math:: \rho(u) = C\,u^{-d-1}(1-u)^{c+d-1}, \qquad
          C = \alpha\,\frac{\Gamma(1+c)}{\Gamma(1-d)\,\Gamma(c+d)},

with mass :math:`\alpha`, discount :math:`0 \le d < 1` and strength :math:`c > -d`;
:math:`d = 0, c = 1` is the Indian buffet, whose points in falling order are the sticks of the
stick-breaking construction. A feature that N rows do not use is *inactive*; given that, the rate of
inactive points is :math:`\rho(u)(1-u)^N`, which is finite above every positive level.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import betaln, gammaln

from wideangle.types import Array, Key, Scalar

NO_DISCOUNT = 1e-5
"""Discounts below this count as zero, where the two formulas agree to rounding."""
MAX_ROUNDS = 32
"""Rounds of :func:`draw_gamma`: each accepts with probability above 0.95, so a miss has odds below
1e-41."""


class Buffet(NamedTuple):
    """Parameters of the process of feature weights."""

    mass: Scalar
    """:math:`\\alpha`: expected number of features of one row."""
    discount: Scalar
    """:math:`d`: 0 for the Indian buffet; larger means more rare features (a power law)."""
    strength: Scalar
    """:math:`c`: 1 for the Indian buffet."""


class Atoms(NamedTuple):
    """Points of the process, in falling order, zeros after the last one."""

    weights: Array
    n_atoms: Array
    overflow: Array
    """True if there was no room for all of them: call again with more room and the same key."""


def log_constant(buffet: Buffet) -> Scalar:
    """Log of the constant C of the rate."""
    mass, discount, strength = buffet
    gammas = gammaln(1 + strength) - gammaln(1 - discount) - gammaln(strength + discount)
    return jnp.log(mass) + gammas


def draw_inactive(
    key: Key, buffet: Buffet, n_rows: Scalar | int, low: Scalar, high: Scalar, room: int
) -> Atoms:
    r"""Draw the inactive points between ``low`` and ``high``, exactly.

    Candidates of rate :math:`C u^{-d-1}` come from unit-rate arrivals by inverting the integrated
    rate; each is kept with probability :math:`(1-u)^{N+c+d-1}`. The i-th candidate depends on the
    key and i alone, so calling again with more room gives the same points.
    """
    key_arrivals, key_keep = jax.random.split(key)
    dtype = jnp.result_type(low, high)
    arrivals = jnp.cumsum(jax.random.exponential(key_arrivals, (room,), dtype))
    weights = jnp.exp(-_log_depth(buffet, -jnp.log(high), arrivals))
    exponent = n_rows + buffet.strength + buffet.discount - 1
    keep = jnp.log(jax.random.uniform(key_keep, (room,), dtype)) < exponent * jnp.log1p(-weights)
    inside = weights > low
    keep &= inside
    kept = -jnp.sort(-jnp.where(keep, weights, 0.0))
    return Atoms(kept, jnp.sum(keep), inside[-1])


def _log_depth(buffet: Buffet, above: Scalar, arrivals: Array) -> Array:
    r"""Solve :math:`C\int_u^{e^{-a}} v^{-d-1}dv = t` for :math:`-\log u`."""
    d = jnp.where(buffet.discount > NO_DISCOUNT, buffet.discount, 1.0)
    scaled = arrivals / jnp.exp(log_constant(buffet))
    with_discount = above + jnp.log1p(d * jnp.exp(-d * above) * scaled) / d
    return jnp.where(buffet.discount > NO_DISCOUNT, with_discount, above + scaled)


def log_total_rate(buffet: Buffet, low: Scalar, high: Scalar | float = 1.0) -> Scalar:
    r"""Log of :math:`C\int_{low}^{high} u^{-d-1}du`, what :func:`place_weight` draws from."""
    d = jnp.where(buffet.discount > NO_DISCOUNT, buffet.discount, 1.0)
    above = -jnp.log(jnp.asarray(high, jnp.result_type(low)))
    depth = -jnp.log(low) - above
    with_discount = jnp.exp(d * above) * jnp.expm1(d * depth) / d
    length = jnp.where(buffet.discount > NO_DISCOUNT, with_discount, depth)
    return log_constant(buffet) + jnp.log(length)


def place_weight(share: Array, buffet: Buffet, low: Scalar, high: Scalar | float = 1.0) -> Array:
    r"""Points on (low, high) with density proportional to :math:`u^{-d-1}`, from uniform ones."""
    total = jnp.exp(log_total_rate(buffet, low, high))
    above = -jnp.log(jnp.asarray(high, jnp.result_type(low)))
    return jnp.exp(-_log_depth(buffet, above, share * total))


def log_rate(buffet: Buffet, weight: Array) -> Array:
    r"""Log of the rate :math:`\rho` at a weight."""
    power = -(buffet.discount + 1) * jnp.log(weight)
    return log_constant(buffet) + power + log_tilt(buffet, weight)


def log_tilt(buffet: Buffet, weight: Array) -> Array:
    r"""Log of the part of the rate that :func:`place_weight` leaves out, :math:`(1-u)^{c+d-1}`."""
    return (buffet.strength + buffet.discount - 1) * jnp.log1p(-weight)


def expected_features(buffet: Buffet, n_rows: int) -> Scalar:
    r"""Expected number of features that N rows use; :math:`\alpha H_N` for the Indian buffet."""
    mass, d, c = buffet
    n = jnp.arange(1, n_rows + 1)
    new = gammaln(1 + c) + gammaln(n + c + d - 1) - gammaln(n + c) - gammaln(c + d)
    return mass * jnp.sum(jnp.exp(new))


def log_marginal(buffet: Buffet, counts: Array, n_rows: int) -> Scalar:
    r"""Log probability of features used ``counts`` times (zeros are padding), weights summed out.

    .. math:: K\log C - E[K] + \sum_k \log B(m_k - d,\, N - m_k + c + d),

    up to terms free of the parameters (the numbering of the features).
    """
    used = counts > 0
    safe = jnp.where(used, counts, 1)
    d, c = buffet.discount, buffet.strength
    terms = log_constant(buffet) + betaln(safe - d, n_rows - safe + c + d)
    return jnp.sum(jnp.where(used, terms, 0.0)) - expected_features(buffet, n_rows)


def draw_active(key: Key, buffet: Buffet, counts: Array, n_rows: int) -> Array:
    r"""Weights of features used m times by N rows, :math:`\mathrm{Beta}(m - d, N - m + c + d)`."""
    d, c = buffet.discount, buffet.strength
    safe = jnp.where(counts > 0, counts, 1)
    gammas = draw_gamma(key, jnp.stack([safe - d, n_rows - safe + c + d], axis=-1))
    return inside(gammas[..., 0] / jnp.sum(gammas, axis=-1))


def inside(weights: Array) -> Array:
    """Weights kept away from 0 and 1, where rounding may put them and log-odds are infinite."""
    info = jnp.finfo(weights.dtype)
    return jnp.clip(weights, info.tiny * 1e4, 1 - info.epsneg)


def log_stick(log_weight: Array, counts: Array, n_rows: int) -> Array:
    r"""Log density of one stick between its neighbours, in :math:`\log\mu`.

    :math:`\mu^{m}(1-\mu)^{N-m}` (one power of :math:`\mu` is the Jacobian); Indian buffet only.
    """
    return counts * log_weight + (n_rows - counts) * _log1mexp(log_weight)


def log_below(log_weight: Scalar, n_rows: int, mass: Scalar) -> Scalar:
    r"""What :func:`log_stick` lacks for the last active stick: all sticks below integrated out.

    .. math:: \alpha\sum_{n\le N}(1-\mu)^n/n + \alpha\log\mu

    The density is log-concave in :math:`\log\mu`. Differs from the paper: in :math:`\mu` it is not,
    so adaptive rejection sampling of :math:`\mu` as printed is not valid.
    """
    n = jnp.arange(1, n_rows + 1)
    return mass * (jnp.sum(jnp.exp(n * _log1mexp(log_weight)) / n) + log_weight)


def mass_rate(last: Scalar, n_rows: int) -> Scalar:
    r"""Information on :math:`\alpha` in the sticks down to the last active one (Indian buffet).

    .. math:: \alpha \sim \mathrm{Gamma}\Bigl(a + L,\; b - \log\mu_L
              + \sum_{n\le N}\frac{1-(1-\mu_L)^n}{n}\Bigr);

    for a prior Gamma(a, b); this is the sum added to b. With nothing active put
    :math:`\mu_L = 1`: it is then :math:`H_N`.
    """
    n = jnp.arange(1, n_rows + 1)
    seen = jnp.sum(-jnp.expm1(n * jnp.log1p(-last)) / n)
    return seen - jnp.log(last)


def _log1mexp(x: Array) -> Array:
    """Log(1 - e^x) for x < 0, accurate at both ends."""
    x = jnp.minimum(x, -jnp.finfo(x.dtype).tiny)
    return jnp.where(x > -0.693, jnp.log(-jnp.expm1(x)), jnp.log1p(-jnp.exp(x)))  # noqa: PLR2004


def draw_gamma(key: Key, shapes: Array) -> Array:
    r"""Draws of unit rate, one for each shape, by rejection (Marsaglia and Tsang, 2000).

    A few rounds, each for all draws side by side; ``jax.random.gamma`` makes one after the other on
    a CPU. A draw does not depend on how many others there are. Shapes below 1 are raised by 1, and
    the draw is multiplied by :math:`U^{1/a}`.
    """
    key_raised, key_rounds = jax.random.split(key)
    dtype = shapes.dtype
    least = jnp.finfo(dtype).tiny
    low = shapes < 1.0
    centre = jnp.where(low, shapes + 1.0, shapes) - 1.0 / 3.0
    spread = lax.rsqrt(9.0 * centre)

    def pending(state: tuple[Array, Array, Array]) -> Array:
        return (state[0] < MAX_ROUNDS) & ~jnp.all(state[2])

    def attempt(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        rounds, drawn, done = state
        keys = jax.random.split(jax.random.fold_in(key_rounds, rounds))
        normal = jax.random.normal(keys[0], shapes.shape, dtype)
        uniform = jax.random.uniform(keys[1], shapes.shape, dtype, minval=least)
        root = 1.0 + spread * normal
        cube = root**3
        bound = 0.5 * normal**2 + centre * (1.0 - cube + jnp.log(jnp.maximum(cube, least)))
        good = (root > 0) & (jnp.log(uniform) < bound)
        return rounds + 1, jnp.where(done, drawn, centre * cube), done | good

    start = (jnp.int32(0), jnp.ones_like(shapes), jnp.zeros(shapes.shape, bool))
    drawn = lax.while_loop(pending, attempt, start)[1]
    uniform = jax.random.uniform(key_raised, shapes.shape, dtype, minval=least)
    return drawn * jnp.where(low, uniform ** (1.0 / shapes), 1.0)
