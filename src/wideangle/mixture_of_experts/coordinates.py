r"""Coordinates in which the posterior of a mixture of experts is easy to walk through.

Two changes of variable, one after the other:

1. From vectors to free coordinates x in which the *prior* is close to a standard Gaussian: for
   priors with separate directions and lengths those of
   :class:`~wideangle.priors.support.PolarTransform`, for Gaussian ones division by the scale.
2. From x to u, x = L u, in which the *posterior* is close to a standard Gaussian: L comes from the
   Fisher information at one point. Without it the step is set by the best determined direction
   and the trajectory by the worst: adding one vector to all gates changes nothing, for example.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import digamma, polygamma

from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import (
    GRAM_ROWS,
    ExpertLikelihood,
    Pair,
    Weights,
    log_lik,
    over_blocks,
    score,
    summed_out,
)
from wideangle.priors.components import ComponentPrior, PolarComponents
from wideangle.types import Array, Components, Key, Scalar

JOINT_LIMIT = 4096
"""Largest number of coordinates whitened together; beyond, gates are whitened one by one."""

SEEN = 0.1
"""Share of the information that seeing the choice of expert would give; see fisher_whitening."""


Priors: TypeAlias = Pair[ComponentPrior]
"""Priors of the gate vectors, (K, p), and of the flattened experts, (K, O p)."""

Point: TypeAlias = Pair[Array]
"""Coordinates of the gate, (K, size), and of the experts."""


def n_coordinates(prior: ComponentPrior) -> int:
    """Free coordinates per component."""
    return prior.dim + isinstance(prior, PolarComponents)


def to_vectors(prior: ComponentPrior, x: Array) -> Array:
    """Component vectors (K, p) from free coordinates."""
    if not isinstance(prior, PolarComponents):
        return prior.scale[..., None, None] * x  # pyright: ignore[reportAttributeAccessIssue]
    return to_components(prior, x).vectors


def to_components(prior: PolarComponents, x: Array) -> Components:
    """Direction and length from free coordinates."""
    centre, spread = _standard_log_length(prior)
    length = jnp.exp(centre[..., None] + spread[..., None] * x[..., -1])
    return Components(_direction(x), length)


def from_vectors(prior: ComponentPrior, vectors: Array) -> Array:
    """Free coordinates of component vectors."""
    if not isinstance(prior, PolarComponents):
        return vectors / prior.scale[..., None, None]  # pyright: ignore[reportAttributeAccessIssue]
    directions, lengths = Components.from_vectors(vectors)
    centre, spread = _standard_log_length(prior)
    standard = (jnp.log(lengths) - centre[..., None]) / spread[..., None]
    return jnp.concatenate([directions * jnp.sqrt(1.0 * prior.dim), standard[..., None]], axis=-1)


def log_prior(prior: ComponentPrior, x: Array) -> Scalar:
    """Log density of the free coordinates, up to a constant."""
    if not isinstance(prior, PolarComponents):
        size = prior.n_components * prior.dim
        scale = prior.scale  # pyright: ignore[reportAttributeAccessIssue]
        return prior.log_prob(to_vectors(prior, x)) + size * jnp.log(scale)
    components = to_components(prior, x)
    passenger = -0.5 * jnp.sum(x[..., :-1] ** 2)
    return prior.log_prob_polar(components) + jnp.sum(jnp.log(components.magnitudes)) + passenger


def log_volume(prior: ComponentPrior, x: Array) -> Scalar:
    """What to add to :func:`log_prior` before *maximising* it.

    The free passenger of polar coordinates, |x|, has its mode at 0, where there is no direction;
    with the volume of its shell it sits at sqrt(p - 1).
    """
    if not isinstance(prior, PolarComponents):
        return jnp.zeros(())
    square = jnp.sum(x[..., :-1] ** 2, axis=-1)
    return 0.5 * (prior.dim - 1) * jnp.sum(jnp.log(square))


def weights_of(priors: Priors, x: Point, expert: ExpertLikelihood) -> Weights:
    """The model's weight vectors at free coordinates."""
    experts = to_vectors(priors.experts, x.experts)
    shape = (*experts.shape[:-1], expert.n_outputs, -1)
    return Pair(to_vectors(priors.gate, x.gate), experts.reshape(shape))


def flat_experts(experts: Array) -> Array:
    """Weights of experts as the priors see them: (..., K, O, p) as (..., K, O p)."""
    return experts.reshape(*experts.shape[:-2], -1)


def draw_point(key: Key, priors: Priors) -> Point:
    """Free coordinates of a draw from the priors."""
    keys = jax.random.split(key)
    return Pair(*(from_vectors(p, p.sample(k)) for p, k in zip(priors, keys, strict=True)))


class Problem(NamedTuple):
    """All that the posterior of a mixture of experts depends on."""

    priors: Priors
    expert: ExpertLikelihood
    data: Data


def log_joint(x: Point, problem: Problem) -> Scalar:
    """Log posterior of the free coordinates, up to a constant, with the choice summed out."""
    priors = problem.priors
    prior = log_prior(priors.gate, x.gate) + log_prior(priors.experts, x.experts)
    weights = weights_of(priors, x, problem.expert)
    return prior + log_lik(problem.expert, weights, problem.data)


class Whitening(NamedTuple):
    """Square roots of the posterior covariance of the free coordinates.

    ``gate`` is one matrix for all gates (joint) or K matrices; ``experts`` K matrices.
    """

    gate: Array
    experts: Array

    def apply(self, u: Point) -> Point:
        """X = L u."""
        return Pair(_multiply(self.gate, u.gate), _multiply(self.experts, u.experts))

    def solve(self, x: Point) -> Point:
        """U = L^-1 x."""
        return Pair(_solve(self.gate, x.gate), _solve(self.experts, x.experts))


def fisher_whitening(
    priors: Priors, points: Point, expert: ExpertLikelihood, data: Data
) -> Whitening:
    r"""Whitening from the Fisher information, averaged over points (leading axis).

    Precision of the coordinates: :math:`J^\top F J + I`, with J the derivative of the vectors in
    them. F is mostly what the targets say, with :math:`r` the responsibilities after the target,

    .. math:: F_{jk} = \sum_n w_n(r_{nj} - \pi_{nj})(r_{nk} - \pi_{nk})\,x_nx_n^\top,\qquad
              F_k = \sum_n w_n r_{nk}^2 I(s_{nk})\otimes x_nx_n^\top

    for pairs of gates and for expert k. A share of it (:data:`SEEN`) is what one would know if the
    choice of expert were seen: :math:`\delta_{jk}\pi_{nj} - \pi_{nj}\pi_{nk}` and
    :math:`\pi_{nk}`. That is too much where experts agree, and alone makes slow chains; but it
    bounds the other part, which may be small at some points and large at others.
    """

    def add(total: Any, x: Point) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, _information(priors, x, expert, data)), None

    n_points = points.gate.shape[0]
    first = jax.tree.map(lambda leaf: leaf[0], points)
    rest = jax.tree.map(lambda leaf: leaf[1:], points)
    total, _ = lax.scan(add, _information(priors, first, expert, data), rest)
    gate, experts = jax.tree.map(lambda leaf: leaf / n_points, total)
    gate_root = _root(gate + jnp.eye(gate.shape[-1], dtype=gate.dtype))
    # One after the other: batched factorisations of LAPACK that run at once wait for each other's
    # threads for ever (jaxlib before 0.11; as many of them as there are cores).
    experts = jnp.where(jnp.isnan(jnp.ravel(gate_root)[0]), jnp.nan, experts)
    return Whitening(gate_root, _root(experts + jnp.eye(experts.shape[-1], dtype=experts.dtype)))


def _information(
    priors: Priors, x: Point, expert: ExpertLikelihood, data: Data
) -> tuple[Array, Array]:
    """Fisher information of the free coordinates at one point: gates (joint or each), experts."""
    weights = weights_of(priors, x, expert)
    jacobians = Pair(_jacobian(priors.gate, x.gate), _jacobian(priors.experts, x.experts))
    joint = x.gate.size <= JOINT_LIMIT

    def sums(block: Data) -> tuple[Array, Array, Array]:
        gate_scores, scores = score(weights, block.rows)
        gate = jax.nn.softmax(gate_scores, axis=0)
        ones = jnp.ones_like(block.weights)
        _, change, _ = summed_out(expert, gate_scores, scores, block._replace(weights=ones))
        share = SEEN * gate + (1.0 - SEEN) * (gate + change) ** 2
        information = expert.information(scores) * (share * block.weights)[:, None, None]
        own = SEEN * gate
        if joint:
            coupled = (1.0 - SEEN) * _gram(jacobians.gate, change, block)
            coupled -= SEEN * _gram(jacobians.gate, gate, block)
        else:
            coupled = jnp.zeros(())
            own = own * (1.0 - gate) + (1.0 - SEEN) * change**2
        return (
            _dot("np,kn,nq->kpq", block.rows, own * block.weights, block.rows),
            coupled,
            _dot("np,kodn,nq->kopdq", block.rows, information, block.rows),
        )

    gate, coupled, experts = over_blocks(sums, data, GRAM_ROWS)
    gate = _dot("kpa,kpq,kqb->kab", jacobians.gate, gate, jacobians.gate)
    if joint:
        gate = jax.scipy.linalg.block_diag(*gate) + coupled
    experts = experts.reshape(*jacobians.experts.shape[:2], -1)
    return gate, _dot("kpa,kpq,kqb->kab", jacobians.experts, experts, jacobians.experts)


def _gram(jacobian: Array, factors: Array, data: Data) -> Array:
    """Sum over rows of the outer square of all factors_k J_k^T x, one long vector."""
    seen = _dot("kpa,np->nka", jacobian, data.rows)
    seen = seen * (factors * jnp.sqrt(data.weights)).T[..., None]
    flat = seen.reshape(len(data.rows), -1)
    return _dot("ni,nj->ij", flat, flat)


def _jacobian(prior: ComponentPrior, x: Array) -> Array:
    """Derivative of each vector in its own coordinates, (K, p, size)."""

    def one(row: Array) -> Array:
        return to_vectors(prior, row[None])[0]

    return jax.vmap(jax.jacfwd(one))(x)


def _root(precision: Array) -> Array:
    """L with L L^T = precision^-1, for a precision of at least 1 in every direction.

    Any L serves a sampler. Rounding may leave less than the prior's 1 next to an information of
    1e7: then the diagonal alone is taken.
    """
    diagonal = jnp.maximum(jnp.diagonal(precision, axis1=-2, axis2=-1), 1.0)
    eye = jnp.eye(precision.shape[-1], dtype=precision.dtype)
    ridge = 4.0 * jnp.finfo(precision.dtype).eps * diagonal
    alone = jnp.sqrt(diagonal)[..., None] * eye
    lower = jnp.linalg.cholesky(precision + ridge[..., None] * eye)
    whole = jnp.all(jnp.isfinite(lower), axis=(-2, -1), keepdims=True)
    lower = jnp.where(whole, lower, alone)
    inverse = lax.linalg.triangular_solve(
        lower, jnp.broadcast_to(eye, lower.shape), left_side=True, lower=True
    )
    return jnp.swapaxes(inverse, -1, -2)


def _multiply(root: Array, u: Array) -> Array:
    if root.ndim == 2:  # noqa: PLR2004
        return _dot("ij,j->i", root, u.reshape(-1)).reshape(u.shape)
    return _dot("kij,kj->ki", root, u)


def _solve(root: Array, x: Array) -> Array:
    if root.ndim == 2:  # noqa: PLR2004
        flat = jax.scipy.linalg.solve_triangular(root, x.reshape(-1), lower=False)
        return flat.reshape(x.shape)
    return jax.vmap(lambda r, v: jax.scipy.linalg.solve_triangular(r, v, lower=False))(root, x)


def _direction(x: Array) -> Array:
    inner = x[..., :-1]
    return inner / jnp.sqrt(jnp.sum(inner**2, axis=-1, keepdims=True))


def _standard_log_length(prior: PolarComponents) -> tuple[Array, Array]:
    shape = prior.magnitude_shape
    return digamma(shape) - jnp.log(prior.magnitude_rate), jnp.sqrt(polygamma(1, shape))


def _dot(pattern: str, *arrays: Any) -> Array:
    return jnp.einsum(pattern, *arrays, precision=lax.Precision.HIGHEST)
