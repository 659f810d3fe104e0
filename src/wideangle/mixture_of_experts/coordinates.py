r"""Free coordinates of a mixture of experts, its posterior in them, and what a sampler of it is.

In the coordinates x the *prior* is close to a standard Gaussian: they are deviations and scales of
a hierarchical prior, directions and log-lengths of a polar one (see
:class:`~wideangle.priors.support.PolarTransform`), and vectors divided by the scale for a Gaussian
one. The default sampler changes variables once more (see ``whitened.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax.scipy.special import digamma, polygamma

from wideangle.infer.kernel import Update
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import (
    ExpertLikelihood,
    Pair,
    Weights,
    log_lik,
)
from wideangle.priors.components import (
    ComponentPrior,
    HierarchicalComponents,
    PolarComponents,
    log_exponential,
)
from wideangle.types import Array, Components, Key, Scalar


class Coordinates(NamedTuple):
    """Free coordinates of K components in p dimensions."""

    vectors: Array
    """(K, p): deviations, or directions times an arbitrary length."""
    lengths: Any = None
    """(K,): standardised log-lengths of a polar prior, else None."""
    common: Any = None
    """(p,): the common vector of a hierarchical prior, else None."""
    log_scales: Any = None
    """Logarithms of its scales, None if it has none."""


Prior: TypeAlias = ComponentPrior | HierarchicalComponents
Priors: TypeAlias = Pair[Any]
"""Priors of the gate vectors, (K, p), and of the flattened experts, (K, O p)."""

Point: TypeAlias = Pair[Coordinates]
"""Coordinates of the gate and of the experts."""


def to_vectors(prior: Prior, x: Coordinates) -> Array:
    """Component vectors (K, p) from free coordinates."""
    if isinstance(prior, HierarchicalComponents):
        return prior.vectors(x.vectors, x.common, x.log_scales)
    if isinstance(prior, PolarComponents):
        return _to_components(prior, x).vectors
    return prior.scale * x.vectors  # pyright: ignore[reportAttributeAccessIssue]


def _to_components(prior: PolarComponents, x: Coordinates) -> Components:
    """Direction and length from free coordinates."""
    centre, spread = _standard_log_length(prior)
    norm = jnp.sqrt(jnp.sum(x.vectors**2, axis=-1, keepdims=True))
    return Components(x.vectors / norm, jnp.exp(centre + spread * x.lengths))


def from_vectors(prior: Prior, vectors: Array) -> Coordinates:
    """Free coordinates of component vectors.

    A hierarchical prior has many such points. This one has the mean as common vector, and scales
    for which the coordinates are as large as a draw from the prior.
    """
    if isinstance(prior, PolarComponents):
        directions, lengths = Components.from_vectors(vectors)
        centre, spread = _standard_log_length(prior)
        standard = (jnp.log(lengths) - centre) / spread
        return Coordinates(directions * jnp.sqrt(1.0 * prior.dim), standard)
    if not isinstance(prior, HierarchicalComponents):
        return Coordinates(vectors / prior.scale)  # pyright: ignore[reportAttributeAccessIssue]
    common = jnp.mean(vectors, axis=0) if prior.common else jnp.zeros(prior.dim, vectors.dtype)
    sizes = [jnp.sqrt(jnp.mean(part**2) + 1e-4) for part in (vectors - common, common)]
    free = [prior.scale is None, prior.common and prior.common_scale is None]
    logs = [jnp.log(size) for size, wanted in zip(sizes, free, strict=True) if wanted]
    log_scales = jnp.stack(logs) if logs else None
    scale, common_scale = prior.scales(log_scales)
    deviations = (vectors - common) / scale
    return Coordinates(
        deviations, common=common / common_scale if prior.common else None, log_scales=log_scales
    )


def log_prior(prior: Prior, x: Coordinates) -> Scalar:
    """Log density of the free coordinates, up to a constant."""
    square = -0.5 * jnp.sum(x.vectors**2)
    if isinstance(prior, HierarchicalComponents):
        value = square + prior.log_ratio_to_gaussian(x.vectors)
        if x.common is not None:
            value -= 0.5 * jnp.sum(x.common**2)
        if x.log_scales is not None:
            value += log_exponential(x.log_scales, prior.mean_scales)
        return value
    if isinstance(prior, PolarComponents):
        components = _to_components(prior, x)
        # The length of x.vectors is arbitrary: it has the distribution of a Gaussian vector's
        # length.
        return prior.log_prob_polar(components) + jnp.sum(jnp.log(components.magnitudes)) + square
    size = prior.n_components * prior.dim
    scale = prior.scale  # pyright: ignore[reportAttributeAccessIssue]
    return prior.log_prob(to_vectors(prior, x)) + size * jnp.log(scale)


def log_volume(prior: Prior, x: Coordinates) -> Scalar:
    """What to add to :func:`log_prior` before *maximising* it.

    The length of x.vectors, which is arbitrary under a polar prior, has its mode at 0, where there
    is no direction; with the volume of its shell the mode is at sqrt(p - 1).
    """
    if not isinstance(prior, PolarComponents):
        return jnp.zeros(())
    square = jnp.sum(x.vectors**2, axis=-1)
    return 0.5 * (prior.dim - 1) * jnp.sum(jnp.log(square))


def weights_of(priors: Priors, x: Point, expert: ExpertLikelihood) -> Weights:
    """The model's weight vectors at free coordinates."""
    experts = to_vectors(priors.experts, x.experts)
    return as_weights(to_vectors(priors.gate, x.gate), experts, expert.n_outputs)


def point_of(priors: Priors, weights: Weights) -> Point:
    """Free coordinates of weights."""
    return Pair(*map(from_vectors, priors, (weights.gate, flat_experts(weights.experts))))


def flat_experts(experts: Array) -> Array:
    """Weights of experts in the shape that priors use: (..., K, O, p) as (..., K, O p)."""
    return experts.reshape(*experts.shape[:-2], -1)


def as_weights(gate: Array, experts: Array, n_outputs: int) -> Weights:
    """Weights from vectors in the shape that priors use, (..., K, p) and (..., K, O p)."""
    return Pair(gate, experts.reshape(*experts.shape[:-1], n_outputs, gate.shape[-1]))


def scales_of(priors: Priors, x: Point) -> dict[str, Array]:
    """Scales that are part of the posterior, by name."""
    found = {}
    for side, prior, one in zip(Pair._fields, priors, x, strict=True):
        if isinstance(prior, HierarchicalComponents) and prior.n_scales:
            scale, common = prior.scales(one.log_scales)
            if prior.scale is None:
                found[side] = scale
            if prior.common and prior.common_scale is None:
                found["common"] = common
    return found


def common_of(prior: Prior, x: Coordinates) -> Array | None:
    """The common vector, if the prior has one."""
    if x.common is None:
        return None
    return prior.scales(x.log_scales)[1] * x.common  # pyright: ignore[reportAttributeAccessIssue]


def draw_point(key: Key, priors: Priors) -> Point:
    """Free coordinates of a draw from the priors."""
    keys = jax.random.split(key)
    return Pair(*map(_draw_coordinates, keys, priors))


def _draw_coordinates(key: Key, prior: Prior) -> Coordinates:
    if isinstance(prior, HierarchicalComponents):
        deviations, common, log_scales = prior.draw(key)
        return Coordinates(deviations, common=common, log_scales=log_scales)
    key_vectors, key_length = jax.random.split(key)
    x = from_vectors(prior, prior.sample(key_vectors))
    if not isinstance(prior, PolarComponents):
        return x
    gauss = jax.random.normal(key_length, x.vectors.shape, x.vectors.dtype)
    length = jnp.linalg.norm(gauss, axis=-1, keepdims=True)
    return x._replace(vectors=x.vectors * length / jnp.sqrt(1.0 * prior.dim))


class Problem(NamedTuple):
    """Everything that the posterior of a mixture of experts depends on."""

    priors: Priors
    expert: ExpertLikelihood
    data: Data


def log_joint(x: Point, problem: Problem) -> Scalar:
    """Log posterior of the free coordinates, up to a constant, with the choice summed out."""
    priors = problem.priors
    prior = log_prior(priors.gate, x.gate) + log_prior(priors.experts, x.experts)
    weights = weights_of(priors, x, problem.expert)
    return prior + log_lik(problem.expert, weights, problem.data)


def _standard_log_length(prior: PolarComponents) -> tuple[Array, Array]:
    shape = prior.magnitude_shape
    return digamma(shape) - jnp.log(prior.magnitude_rate), jnp.sqrt(polygamma(1, shape))


class Setting(NamedTuple):
    """Posterior and coordinates that chains move in."""

    problem: Problem
    whitening: Any
    """The change of variable of :mod:`~wideangle.mixture_of_experts.whitened`."""


class Sampler(NamedTuple):
    """What one sampler needs: how to start, move, and read off the weights."""

    enter: Callable[[Point, Setting], Any]
    """From coordinates to latents; the setting has no data yet."""
    recipe: Callable[[dict[str, Scalar], Setting], Update]
    collect: Callable[[Any, Setting], dict[str, Any]]
    steps: dict[str, float]
    targets: dict[str, float]


def draw_of(weights: Weights, problem: Problem) -> dict[str, Any]:
    """What all samplers keep of a draw."""
    return {"weights": weights, "log_lik": log_lik(problem.expert, weights, problem.data)}
