r"""Baseline prior: a determinantal point process over component vectors.

.. math:: p(A) = \frac{1}{Z}\,\det L(A)\prod_k N(a_k; 0, \sigma^2 I), \qquad
          L_{ij} = e^{-|a_i-a_j|^2/2\ell^2}.

The paper's :math:`\det L` alone is improper on :math:`R^{Kp}` (its mass grows with the volume);
the Gaussian base makes it proper, since :math:`\det L \le 1`. Here it is also *normalised*: the
eigenvalues of a Gaussian kernel under a Gaussian distribution are known, and
:math:`Z = E\det L = K!\,e_K(\lambda)` with :math:`e_K` their elementary symmetric polynomial, so
the length scale can be learned and evidences compared.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random
from jax.scipy.special import betainc
from numpyro.distributions import constraints
from scipy.special import gammaln

from wideangle.checks import check_count, check_range
from wideangle.priors.components import ComponentPrior, GaussianComponents
from wideangle.types import Array, Key, as_floating

LEVELS = 256
"""Eigenvalue levels summed exactly; the rest is treated as infinitely many tiny ones."""


class DeterminantalComponents(ComponentPrior):
    r"""K vectors that repel each other: a determinantal point process (the paper's DPP).

    Parameters
    ----------
    n_components, dim : int
        K and p.
    scale : array
        Standard deviation :math:`\sigma` of the Gaussian base distribution.
    lengthscale : array, optional
        :math:`\ell` of the kernel. By default :math:`\ell^2 = 2p\sigma^2`, the typical squared
        distance of two base draws: much smaller and nothing repels, much larger and L is singular.
    n_sweeps : int
        Length of the Markov chain of :meth:`sample` (see there).
    """

    arg_constraints = {"scale": constraints.positive, "lengthscale": constraints.positive}
    pytree_data_fields = ("scale", "lengthscale", "log_normaliser")
    pytree_aux_fields = ("n_sweeps",)
    support = constraints.real_matrix  # pyright: ignore[reportAssignmentType]

    def __init__(
        self,
        n_components: int,
        dim: int,
        scale: Any = 1.0,
        lengthscale: Any = None,
        *,
        n_sweeps: int = 50,
        validate_args: bool | None = None,
    ) -> None:
        shape = (check_count("n_components", n_components, 1), check_count("dim", dim, 1))
        check_range("scale", scale, 0.0, open_low=True)
        scale = as_floating(scale)
        if lengthscale is None:
            lengthscale = scale * math.sqrt(2.0 * shape[1])
        check_range("lengthscale", lengthscale, 0.0, open_low=True)
        lengthscale = as_floating(lengthscale)
        batch = lax.broadcast_shapes(scale.shape, lengthscale.shape)
        self.scale = jnp.broadcast_to(scale, batch)
        self.lengthscale = jnp.broadcast_to(lengthscale, batch)
        self.n_sweeps = check_count("n_sweeps", n_sweeps, 0)
        self.log_normaliser = log_expected_determinant(*shape, (self.scale / self.lengthscale) ** 2)
        super().__init__(batch, shape, validate_args=validate_args)

    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        """Log density of the K vectors."""
        value = self._checked(value)
        base = GaussianComponents(self.n_components, self.dim, self.scale).log_prob(value)
        return base + self.log_determinant(value) - self.log_normaliser

    def log_determinant(self, vectors: Array) -> Array:
        """Log of det L, at most 0 up to rounding."""
        return _log_determinant(self._kernel(vectors))

    def _kernel(self, vectors: Array) -> Array:
        inner = jnp.einsum("...ip,...jp->...ij", vectors, vectors, precision=lax.Precision.HIGHEST)
        square = _diagonal(inner)
        distance = jnp.maximum(square[..., :, None] + square[..., None, :] - 2.0 * inner, 0.0)
        kernel = jnp.exp(-0.5 * distance / self.lengthscale[..., None, None] ** 2)
        # Keeps the factorisation finite when two vectors coincide: det L is then 1e-6 (float32) or
        # 1e-14 instead of 0.
        n = self.n_components
        eye = jnp.eye(n, dtype=kernel.dtype)
        return kernel * (1 - eye) + (1.0 + 10.0 * n * jnp.finfo(kernel.dtype).eps) * eye

    def sample(self, key: Key | None, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw sets of vectors by a Markov chain of ``n_sweeps`` sweeps from base draws.

        Each sweep replaces the vectors one at a time by new base draws, accepted by the ratio of
        determinants; the chain forgets its start in a few sweeps unless the kernel is nearly
        singular, which needs a larger ``n_sweeps``. Not an exact draw, unlike the other priors.
        """
        assert key is not None
        return self._run_chain(key, tuple(sample_shape))

    @partial(jax.jit, static_argnums=2)
    def _run_chain(self, key: Key, sample_shape: tuple[int, ...]) -> Array:
        shape = sample_shape + self.scale.shape
        key_start, key_chain = random.split(key)
        base = GaussianComponents(self.n_components, self.dim, self.scale)
        start = base.sample(key_start, sample_shape)

        def replace(turn: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            vectors, log_det = state
            key_new, key_accept = random.split(random.fold_in(key_chain, turn))
            row = turn % self.n_components
            new = self.scale[..., None] * random.normal(key_new, (*shape, self.dim), vectors.dtype)
            moved = vectors.at[..., row, :].set(new)
            log_det_moved = self.log_determinant(moved)
            log_u = jnp.log(random.uniform(key_accept, shape, vectors.dtype))
            accept = log_u < log_det_moved - log_det
            vectors = jnp.where(accept[..., None, None], moved, vectors)
            return vectors, jnp.where(accept, log_det_moved, log_det)

        n_moves = self.n_sweeps * self.n_components
        state = (start, self.log_determinant(start))
        return lax.fori_loop(0, n_moves, replace, state)[0]


@partial(jax.jit, static_argnums=(0, 1))
def log_expected_determinant(n_components: int, dim: int, ratio: Array) -> Array:
    r"""Log of :math:`E\det L` for K Gaussian vectors, with ``ratio`` = :math:`\sigma^2/\ell^2`.

    The kernel's eigenvalues under :math:`N(0,\sigma^2 I)` are :math:`(1-B)^p B^n`, of multiplicity
    :math:`\binom{n+p-1}{n}`, with :math:`B = 2\rho/(1+2\rho+\sqrt{1+4\rho})` (Mehler); they sum to
    1. The generating function :math:`\prod_n (1 + \lambda_n t)^{m_n}` is multiplied out in log
    space: every term is positive, unlike Newton's identities, which cancel. The error is rounding
    alone unless eigenvalues beyond ``LEVELS`` matter (p = 1 and a kernel a hundred times narrower
    than the base distribution: 1e-4).
    """
    ratio = as_floating(ratio)
    base = 2.0 * ratio / (1.0 + 2.0 * ratio + jnp.sqrt(1.0 + 4.0 * ratio))
    log_base = jnp.log(base)[..., None]
    powers = jnp.arange(n_components + 1, dtype=base.dtype)
    level, log_choose = _levels(n_components, dim)

    def multiply(series: Array, turn: tuple[Array, Array]) -> tuple[Array, None]:
        n, choose = turn
        log_value = dim * jnp.log1p(-base)[..., None] + n * log_base
        return _log_convolve(series, choose + powers * log_value), None

    one = jnp.where(powers == 0, 0.0, -jnp.inf) + 0.0 * log_base
    series, _ = lax.scan(multiply, one, (level.astype(base.dtype), log_choose.astype(base.dtype)))
    # Many tiny eigenvalues of total mass T: prod(1 + lambda t) -> exp(T t). The mass is the upper
    # tail of a negative binomial distribution; one minus the sum of the others would be rounding
    # error, for a nearly singular kernel larger than the result itself.
    tail = betainc(float(LEVELS), float(dim), base)[..., None]
    log_tail = jnp.where(tail > 0, jnp.log(jnp.where(tail > 0, tail, 1.0)), -jnp.inf)
    spread = jnp.where(powers == 0, 0.0, powers * log_tail) - jax.scipy.special.gammaln(powers + 1)
    return _log_convolve(series, spread)[..., -1] + gammaln(n_components + 1)


def _levels(n_components: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Level n, and log C(m_n, j) of its multiplicity for j = 0..K (host float64)."""
    level = np.arange(LEVELS)
    log_m = gammaln(level + dim) - gammaln(level + 1) - gammaln(dim)
    used = np.arange(n_components)
    # m - i matters only while m is small; beyond 1e13 it equals m in float64, and may overflow.
    small = np.round(np.exp(np.minimum(log_m, 30.0)))[:, None] - used
    with np.errstate(divide="ignore"):
        exact = np.log(np.maximum(small, 0.0))
    factors = np.where(log_m[:, None] < 30.0, exact, log_m[:, None])  # noqa: PLR2004
    chosen = np.concatenate([np.zeros((LEVELS, 1)), np.cumsum(factors, axis=1)], axis=1)
    return level, chosen - gammaln(np.arange(n_components + 1) + 1.0)


def _log_convolve(left: Array, right: Array) -> Array:
    """Log of the product of two power series, cut at the length of ``left``."""
    n = left.shape[-1]
    lag = np.arange(n)[:, None] - np.arange(n)
    shifted = jnp.where(lag >= 0, right[..., np.maximum(lag, 0)], -jnp.inf)
    terms = left[..., None, :] + shifted
    # Like logsumexp, but a coefficient that is still 0 has gradient 0, not 0/0.
    top = lax.stop_gradient(jnp.max(terms, axis=-1))
    live = top > -jnp.inf
    total = jnp.sum(jnp.exp(terms - jnp.where(live, top, 0.0)[..., None]), axis=-1)
    return jnp.where(live, top + jnp.log(jnp.where(live, total, 1.0)), -jnp.inf)


def _log_determinant(matrix: Array) -> Array:
    """Log determinant of positive definite matrices, by elimination.

    Not by LAPACK: on a CPU, jaxlib before 0.11 may hang in a batched factorisation, which vmapped
    chains produce.
    """

    def eliminate(i: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        total, rest = now
        row = jnp.take(rest, i, axis=-2)
        pivot = jnp.take(row, i, axis=-1)
        outer = row[..., :, None] * row[..., None, :] / pivot[..., None, None]
        return total + jnp.log(pivot), rest - outer

    start = jnp.zeros(matrix.shape[:-2], matrix.dtype), matrix
    return lax.fori_loop(0, matrix.shape[-1], eliminate, start)[0]


def _diagonal(matrix: Array) -> Array:
    return jnp.diagonal(matrix, axis1=-2, axis2=-1)
