r"""Variational factors q of K weight vectors, in unconstrained coordinates, and their starts.

Each guide draws differentiable *projections* on rows from standard normals, and exact vectors for
prediction.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from wideangle.mixture_of_experts.data import Data, rms_length, scattered
from wideangle.mixture_of_experts.likelihood import GRAM_ROWS, ExpertLikelihood, Pair, over_blocks
from wideangle.priors.components import (
    ComponentPrior,
    GaussianComponents,
    HierarchicalComponents,
    log_exponential,
)
from wideangle.priors.expected import expected_log_prior
from wideangle.priors.factors import VmfGammaFactors
from wideangle.sphere import vmf
from wideangle.sphere.geometry import normalise, safe_norm
from wideangle.sphere.vmf import log_area
from wideangle.types import Array, Components, Key, Scalar

PRIOR_PAIRS = 2
"""Number of antithetic pairs for a prior term without a closed form."""
WIDTH = 0.37
"""Initial standard deviation of scores under q, at a row of usual length."""
FIRST_SHAPE = 50.0


class Guide(Protocol):
    """Factors of K vectors in R^D, in unconstrained coordinates (a pytree)."""

    @property
    def centres(self) -> Array:
        """Vectors (K, D) along the mean of each factor."""
        ...

    @property
    def means(self) -> Array:
        """Expected vectors (K, D)."""
        ...

    def n_noise(self, n_outputs: int) -> int:
        """Standard normals per row and component."""
        ...

    def scores(self, rows: Array, noise: Array) -> Array:
        """Draw projections (K, O, N) on rows (N, p) from ``noise`` (n_noise, K, N)."""
        ...

    def negative_kl(self, key: Key, prior: ComponentPrior) -> Scalar:
        """Minus the divergence from the prior (or a bound, or an unbiased estimate)."""
        ...

    def sample(self, key: Key, n: int) -> Array:
        """Exact draws, (n, K, D)."""
        ...


Guides: TypeAlias = Pair[Any]
"""Guides of the gate (K, p) and of the experts, flattened to (K, O p)."""


class VmfGuide(NamedTuple):
    r"""vMF directions and Gamma lengths, by :math:`V = (r/s)\hat a`, log concentration, log r."""

    centres: Array
    log_concentrations: Array
    log_shapes: Array

    def n_noise(self, n_outputs: int) -> int:
        """One for the length, one per output."""
        return 1 + n_outputs

    @property
    def factors(self) -> VmfGammaFactors:
        """The factors themselves."""
        # The limits are far from any fit; they keep exp() finite in float32.
        concentrations = jnp.exp(jnp.clip(self.log_concentrations, -12.0, 25.0))
        shapes = jnp.exp(jnp.clip(self.log_shapes, -3.0, 16.0))
        lengths = jnp.maximum(safe_norm(self.centres), 1e-12)
        return VmfGammaFactors(normalise(self.centres), concentrations, shapes, shapes / lengths)

    @property
    def means(self) -> Array:
        r""":math:`E a = A_p(\hat\kappa) V`."""
        return self.factors.resultants[..., None] * self.centres

    def scores(self, rows: Array, noise: Array) -> Array:
        r"""Draw :math:`a\cdot x = g\,\tilde a\cdot x`, Gaussian given the length.

        .. math:: g \approx \frac rs\Bigl(1 - \frac1{9r} + \frac{z_1}{3\sqrt r}\Bigr)^3, \qquad
                  \tilde a\cdot x \approx N\bigl(A P,\ \alpha|x|^2 I + (\beta-A^2)PP^\top\bigr)

        with :math:`P = \hat a\cdot x` (a vector if an expert has several outputs). The length is
        Wilson and Hilferty's cube, which has a derivative; the direction keeps its two moments.
        Against exact draws the bound is off by a few nats. A single Gaussian for the product is not
        enough: the lengths of unused components are skewed, and the error is tens of nats.
        """
        factors = self.factors
        size = self.centres.shape[-1]
        ratio = factors.resultants[:, None, None]
        across, along = (
            w[:, None, None] for w in vmf.scatter_weights(factors.concentrations, size)
        )
        mean = _project(self.centres, rows)  # |V| P: the length is included
        scale = jnp.sum(self.centres**2, axis=-1)[:, None, None] * jnp.sum(rows**2, axis=-1)
        square = jnp.sum(mean**2, axis=1, keepdims=True)
        tiny = jnp.finfo(mean.dtype).tiny
        towards = jnp.sqrt(jnp.maximum(across * scale + (along - ratio**2) * square, tiny))
        side = noise[1:].swapaxes(0, 1)
        if mean.shape[1] == 1:
            spread = towards * side
        else:
            # Symmetric root of the covariance: one scale across P, another along it.
            sideways = jnp.sqrt(jnp.maximum(across * scale, tiny))
            unit = mean / jnp.sqrt(jnp.maximum(square, tiny))
            inner = jnp.sum(unit * side, axis=1, keepdims=True)
            spread = sideways * side + (towards - sideways) * inner * unit
        shape = factors.shapes[:, None]
        root = 1.0 - 1.0 / (9.0 * shape) + noise[0] / (3.0 * jnp.sqrt(shape))
        root = jnp.maximum(root, 0.02)[:, None]
        return root * root * root * (ratio * mean + spread)

    def negative_kl(self, key: Key, prior: ComponentPrior) -> Scalar:
        """Closed form; for the mutual-angular prior of type II Jensen's bound."""
        factors = self.factors
        return expected_log_prior(factors, prior) + factors.entropy_to_uniform()

    def sample(self, key: Key, n: int) -> Array:
        """Exact draws, (n, K, D)."""
        return self.factors.sample(key, (n,)).vectors


class GaussianGuide(NamedTuple):
    """Independent Gaussian weights: not isotropic, so closer to the posterior on raw columns."""

    centres: Array
    log_scales: Array

    def n_noise(self, n_outputs: int) -> int:
        """One per output."""
        return n_outputs

    @property
    def means(self) -> Array:
        """Expected vectors: the centres."""
        return self.centres

    @property
    def scales(self) -> Array:
        """Standard deviations (K, D)."""
        return jnp.exp(jnp.clip(self.log_scales, -20.0, 20.0))

    def scores(self, rows: Array, noise: Array) -> Array:
        r"""Draw :math:`a\cdot x \sim N(m\cdot x,\ \sum_j x_j^2 s_j^2)`; exact."""
        variance = _project(self.scales**2, rows**2)
        tiny = jnp.finfo(variance.dtype).tiny
        spread = jnp.sqrt(jnp.maximum(variance, tiny))
        return _project(self.centres, rows) + spread * noise.swapaxes(0, 1)

    def negative_kl(self, key: Key, prior: ComponentPrior) -> Scalar:
        """Closed form for a Gaussian prior, else antithetic Monte Carlo of the prior's density."""
        n, size = self.centres.shape
        logs = jnp.sum(jnp.log(self.scales))
        if isinstance(prior, GaussianComponents):
            square = jnp.sum(self.centres**2 + self.scales**2) / prior.scale**2
            return logs - n * size * jnp.log(prior.scale) + 0.5 * (n * size - square)
        noise = random.normal(key, (PRIOR_PAIRS, n, size), self.centres.dtype)
        draws = self.centres + self.scales * jnp.concatenate([noise, -noise])
        return (
            jnp.mean(jax.vmap(partial(log_density, prior))(draws))
            + logs
            + _gaussian_constant(n, size)
        )

    def sample(self, key: Key, n: int) -> Array:
        """Exact draws, (n, K, D)."""
        noise = random.normal(key, (n, *self.centres.shape), self.centres.dtype)
        return self.centres + self.scales * noise


class HierarchicalGuide(NamedTuple):
    """Gaussian deviations around a Gaussian common vector, with point estimates of the scales.

    Scales are not integrated over: they maximise the bound together with the factors.
    """

    deviations: GaussianGuide
    common: GaussianGuide | None
    """One vector, (1, D)."""
    log_prior_scales: Array | None

    @property
    def centres(self) -> Array:
        """Mean deviations."""
        return self.deviations.centres

    @property
    def means(self) -> Array:
        """Expected vectors."""
        return self.centres if self.common is None else self.centres + self.common.centres

    def n_noise(self, n_outputs: int) -> int:
        """One per output, and as many for the common vector."""
        return n_outputs if self.common is None else 2 * n_outputs

    def scores(self, rows: Array, noise: Array) -> Array:
        """Projections of the deviations plus those of the common vector, which all share."""
        if self.common is None:
            return self.deviations.scores(rows, noise)
        single, shared = jnp.split(noise, 2)
        return self.deviations.scores(rows, single) + self.common.scores(rows, shared[:, :1])

    def negative_kl(self, key: Key, prior: HierarchicalComponents) -> Scalar:
        """Given the scales; the repulsion of directions by antithetic Monte Carlo."""
        scale, common_scale = prior.scales(self.log_prior_scales)
        shape = self.centres.shape
        value = self.deviations.negative_kl(key, GaussianComponents(*shape, scale))
        if self.common is not None:
            gaussian = GaussianComponents(1, shape[1], common_scale)
            value += self.common.negative_kl(key, gaussian)
        if prior.directions is None:
            return value
        noise = random.normal(key, (PRIOR_PAIRS, *shape), self.centres.dtype)
        draws = self.centres + self.deviations.scales * jnp.concatenate([noise, -noise])
        return value + jnp.mean(jax.vmap(prior.log_ratio_to_gaussian)(draws))

    def log_hyperprior(self, prior: HierarchicalComponents) -> Scalar:
        """Log density of the scales."""
        logs = self.log_prior_scales
        return 0.0 if logs is None else log_exponential(logs, prior.mean_scales)

    def sample(self, key: Key, n: int) -> Array:
        """Exact draws of the vectors, (n, K, D)."""
        keys = random.split(key)
        found = self.deviations.sample(keys[0], n)
        return found if self.common is None else found + self.common.sample(keys[1], n)


def start(
    key: Key,
    guide: str,
    priors: Pair[Any],
    expert: ExpertLikelihood,
    data: Data,
    n_starts: int,
    dtype: Any = np.float32,
) -> Guides:
    r"""Initial guides: experts scattered around a single expert for all rows, gates around 0.

    Noise is measured in scores :math:`a\cdot x` at the root mean square of :math:`|x|`, so the
    start does not depend on the number and scale of the columns.
    """
    n_components = priors.gate.n_components
    vectors = scattered(key, expert.start(data), data, n_starts, n_components, dtype)
    width = WIDTH / rms_length(data)
    return Pair(*(_guide(guide, p, v, width) for p, v in zip(priors, vectors, strict=True)))


def _guide(name: str, prior: Any, centres: Array, width: float) -> Any:
    """Guides (leading axis: start) whose weights have standard deviation ``width``."""
    if isinstance(prior, HierarchicalComponents):
        return _hierarchical_guide(prior, centres, width)
    if name == "diagonal":
        return GaussianGuide(centres, jnp.full_like(centres, np.log(width)))
    concentration = jnp.sum(centres**2, axis=-1) / width**2
    # Below the dimension a vMF factor carries no direction, and its gradient vanishes.
    concentration = jnp.maximum(concentration, 2.0 * centres.shape[-1])
    shapes = jnp.full_like(concentration, np.log(FIRST_SHAPE))
    return VmfGuide(centres, jnp.log(concentration), shapes)


def _hierarchical_guide(
    prior: HierarchicalComponents, centres: Array, width: float
) -> HierarchicalGuide:
    middle = jnp.mean(centres, axis=1, keepdims=True)
    if not prior.common:
        middle = jnp.zeros_like(middle)
    common = GaussianGuide(middle, jnp.full_like(middle, np.log(width)))
    deviations = GaussianGuide(centres - middle, jnp.full_like(centres, np.log(width)))
    # All scales begin at 1.
    scales = jnp.zeros((len(centres), prior.n_scales), centres.dtype) if prior.n_scales else None
    return HierarchicalGuide(deviations, common if prior.common else None, scales)


def log_density(prior: ComponentPrior, vectors: Array) -> Scalar:
    """Log density of K vectors, without the constant that :func:`_gaussian_constant` holds."""
    components = Components.from_vectors(vectors)
    lengths = jnp.maximum(components.magnitudes, jnp.finfo(vectors.dtype).tiny)
    polar = prior.log_prob_polar(components._replace(magnitudes=lengths))
    return polar - (vectors.shape[-1] - 1) * jnp.sum(jnp.log(lengths))


def _gaussian_constant(n: int, size: int) -> float:
    """Entropy of n standard Gaussians minus log areas, on the host, since each part is huge."""
    return n * (0.5 * size * (1.0 + math.log(2.0 * math.pi)) - log_area(size))


@jax.custom_vjp
def _project(vectors: Array, rows: Array) -> Array:
    """Inner products of K flattened sets of O vectors with rows (N, p): (K, O, N)."""
    blocks = vectors.reshape(vectors.shape[0], -1, rows.shape[-1])
    return jnp.einsum("kop,np->kon", blocks, rows, precision=lax.Precision.HIGHEST)


def _project_forward(vectors: Array, rows: Array) -> tuple[Array, tuple[Array, Array]]:
    return _project(vectors, rows), (vectors, rows)


def _project_backward(given: tuple[Array, Array], change: Array) -> tuple[Array, None]:
    # Written out to work in blocks; rows are data and need no gradient.
    vectors, rows = given

    def product(block: tuple[Array, Array]) -> Array:
        return jnp.einsum("nko,np->kop", *block, precision=lax.Precision.HIGHEST)

    gradient = over_blocks(product, (jnp.moveaxis(change, -1, 0), rows), GRAM_ROWS)
    return gradient.reshape(vectors.shape).astype(vectors.dtype), None


_project.defvjp(_project_forward, _project_backward)
