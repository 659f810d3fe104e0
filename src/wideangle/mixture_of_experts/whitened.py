r"""The default sampler: Hamiltonian Monte Carlo in whitened coordinates.

A second change of variable, x = L u, from the free coordinates of ``coordinates.py`` to those in
which the *posterior* is close to a standard Gaussian. L is the same for all components and all
chains: its blocks come from the Fisher information, averaged over typical points. One matrix for
each chain and component would fit its point better, but the information changes along a chain, and
its mean is what matters.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from wideangle.infer.geodesic_hmc import geodesic_hmc
from wideangle.infer.kernel import Update, sweep, within
from wideangle.mixture_of_experts.coordinates import (
    Coordinates,
    Point,
    Priors,
    Sampler,
    Setting,
    common_of,
    draw_of,
    flat_experts,
    from_vectors,
    log_joint,
    scales_of,
    weights_of,
)
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import (
    GRAM_ROWS,
    ExpertLikelihood,
    Pair,
    Weights,
    over_blocks,
    score,
    summed_out,
)
from wideangle.priors.components import HierarchicalComponents, PolarComponents
from wideangle.types import Array, Scalar

WIDEST = 2048
"""Most columns that are whitened jointly; more are whitened one by one."""
SPREADS = 0.1, 1.0
"""Bounds on the standard deviations of scales and lengths: typical points are few."""
FEW_DRAWS = 10
"""Number of draws that the information counts as, relative to variances of draws."""
OF_CHOICE = 0.1
"""Share taken from the information as if the choice of expert were observed; see
fisher_whitening."""
HALF_TURN = math.pi
"""Longest trajectory. In coordinates in which the posterior is a standard Gaussian, a quarter of a
turn makes a draw independent of the one before; lengths are spread evenly around it, since for any
single length some functions of the weights return to their old values."""
MOST = 256
"""Largest number of gradients in a trajectory."""
GOLDEN = np.uint32(2654435769)
"""The golden ratio in units of 2^-32: its multiples fill the unit interval evenly."""


class Root(NamedTuple):
    """Square root of the posterior covariance of vectors, in the basis of its principal axes.

    One for all outputs of an expert, or one for each: then all arrays have a leading axis O. Widths
    and shares may have another one before it, K, with one entry for each component.
    """

    basis: Array | None
    """(p, p), one axis a column; None for the axes of the columns themselves."""
    width: Array
    """(p,): standard deviations along the axes."""
    share: Array
    """(p,): share of the precision along each axis that comes from the data and not from the
    prior."""

    @property
    def pattern(self) -> str:
        """Axes of the basis, as :func:`jax.numpy.einsum` writes them."""
        return "...oa,opa->...op" if np.ndim(self.basis) > 2 else "...a,pa->...p"  # noqa: PLR2004


class Metric(NamedTuple):
    """Change of variable of the coordinates of gates or experts."""

    vectors: Root
    common: Root | None = None
    lengths: Any = None
    """Standard deviation."""
    log_scales: Any = None
    """Standard deviations."""
    centre: Any = None
    """Means of the log scales."""


Whitening: TypeAlias = Pair[Metric]


def unwhiten(whitening: Whitening, u: Point) -> tuple[Point, Scalar]:
    r"""Coordinates x of u, and the logarithm of the Jacobian.

    Along an axis where the data are weak, vectors in units of their scale are close to a standard
    Gaussian; where the data are strong, the vectors themselves are. So an axis with share e is
    stretched by :math:`(\tau/\tau_0)^{-e}`, where :math:`\tau_0` is the usual scale.
    """
    gate, experts = map(_unwhiten_one, whitening, u)
    return Pair(gate[0], experts[0]), gate[1] + experts[1]


def whiten(whitening: Whitening, x: Point) -> Point:
    """The reverse of :func:`unwhiten`."""
    return Pair(*map(_whiten_one, whitening, x))


def _unwhiten_one(metric: Metric, u: Coordinates) -> tuple[Coordinates, Scalar]:
    away, log_scales = (None, None), None
    if u.log_scales is not None:
        moved = metric.log_scales * u.log_scales
        away, log_scales = _by_part(metric, moved), metric.centre + moved
    vectors, volume = _stretch(metric.vectors, u.vectors, away[0])
    common = None
    if u.common is not None:
        assert metric.common is not None
        common, more = _stretch(metric.common, u.common, away[1])
        volume += more
    lengths = None if u.lengths is None else metric.lengths * u.lengths
    return Coordinates(vectors, lengths, common, log_scales), volume


def _whiten_one(metric: Metric, x: Coordinates) -> Coordinates:
    away, log_scales = (None, None), None
    if x.log_scales is not None:
        moved = x.log_scales - metric.centre
        away, log_scales = _by_part(metric, moved), moved / metric.log_scales
    common = None
    if x.common is not None:
        assert metric.common is not None
        common = _unstretch(metric.common, x.common, away[1])
    lengths = None if x.lengths is None else x.lengths / metric.lengths
    return Coordinates(_unstretch(metric.vectors, x.vectors, away[0]), lengths, common, log_scales)


def _by_part(metric: Metric, moved: Array) -> tuple[Scalar | None, Scalar | None]:
    """Log scales of the deviations and of the common vector, relative to the usual ones."""
    both = metric.common is None or len(moved) > 1
    return (moved[0], moved[-1]) if both else (None, moved[0])


def _stretch(root: Root, u: Array, away: Scalar | None) -> tuple[Array, Scalar]:
    """Vectors (..., O p) from whitened ones, and the part of the Jacobian that varies."""
    along = u.reshape(*u.shape[:-1], -1, root.width.shape[-1]) * root.width
    volume = jnp.zeros((), u.dtype)
    if away is not None:
        along = along * jnp.exp(-away * root.share)
        volume = -away * jnp.sum(root.share) * (along.size / root.share.size)
    if root.basis is not None:
        along = _dot(root.pattern, along, root.basis)
    return along.reshape(u.shape), volume


def _unstretch(root: Root, x: Array, away: Scalar | None) -> Array:
    along = x.reshape(*x.shape[:-1], -1, root.width.shape[-1])
    if root.basis is not None:
        along = _dot(_reversed(root.pattern), along, root.basis)
    if away is not None:
        along = along * jnp.exp(away * root.share)
    return (along / root.width).reshape(x.shape)


def _reversed(pattern: str) -> str:
    """The product with the transposed basis."""
    left, basis, right = pattern.replace("->", ",").split(",")
    return f"{right},{basis}->{left}"


class Typical(NamedTuple):
    """Typical points that a whitening is made from; leading axis: point."""

    weights: Weights
    scales: dict[str, Array]


def fisher_whitening(
    priors: Priors, typical: Typical, expert: ExpertLikelihood, data: Data
) -> Whitening:
    r"""Whitening from the Fisher information, averaged over typical points and over components.

    Precision of the coordinates of one vector: :math:`j^2 F + I`, with j the derivative of the
    vector in them. F is mostly the information in the targets, with :math:`r` the responsibilities
    given the target,

    .. math:: F = \frac1K\sum_{nk} w_n(r_{nk} - \pi_{nk})^2\,x_nx_n^\top,\qquad
              F = \frac1{KO}\sum_{nko} w_n r_{nk}^2 I_{oo}(s_{nk})\,x_nx_n^\top

    for gates and for experts; if outputs are not alike, each has the sum of its own :math:`I_{oo}`.
    A share of F (:data:`OF_CHOICE`) is the information as if the choice of expert were observed:
    :math:`\pi_{nk}(1-\pi_{nk})` and :math:`\pi_{nk}`. That is too much where experts agree, and
    alone makes slow chains; but it bounds the other part, which may be small at some points and
    large at others. The common vector is shared by all experts and has the sum of their
    information. Scales and lengths have the standard deviations of the typical points.
    """
    slopes = _square_slopes(priors, typical)
    n_points, _, p = typical.weights.gate.shape
    n_kinds = 1 if expert.alike else expert.n_outputs

    def grams(block: Data) -> Array:
        def add(total: Array, point: Any) -> tuple[Array, None]:
            weights, by_part = point
            return total + _row_information(expert, weights, by_part, block), None

        dtype = jnp.result_type(block.rows, typical.weights.gate)
        zeros = jnp.zeros((1 + 2 * n_kinds, block.rows.shape[0]), dtype)
        total, _ = lax.scan(add, zeros, (typical.weights, slopes))
        pattern = "an,np,nq->apq" if p <= WIDEST else "an,np,np->ap"
        return _dot(pattern, total / n_points, block.rows, block.rows)

    gate, *others = map(_root, over_blocks(grams, data, GRAM_ROWS))
    experts, common = map(_joined, (others[:n_kinds], others[n_kinds:]))
    has_common = isinstance(priors.experts, HierarchicalComponents) and priors.experts.common
    spreads = _spreads(priors, typical)
    return Pair(
        Metric(gate, None, *spreads.gate),
        Metric(experts, common if has_common else None, *spreads.experts),
    )


def refine(
    whitening: Whitening, priors: Priors, draws: dict[str, Any], alike: bool = False
) -> Whitening:
    """Widths and shares along the axes from draws (chain, draw, ...) instead of the information.

    If experts are numbered ``alike`` in all chains, each component has its own.

    What is known about an expert depends on which rows it is chosen for, which is uncertain: the
    information gives the right axes but too small widths. Only hierarchical priors: under a polar
    one the length of x.vectors is arbitrary and is not drawn.
    """
    found = []
    for metric, prior, parts in zip(whitening, priors, standardised(priors, draws), strict=True):
        deviations, common = parts
        if isinstance(prior, HierarchicalComponents):
            metric = metric._replace(vectors=_from_draws(metric.vectors, deviations, alike))  # noqa: PLW2901
        if common is not None:
            metric = metric._replace(common=_from_draws(metric.common, common))  # noqa: PLW2901
        found.append(metric)
    return Pair(*found)


def standardised(priors: Priors, draws: dict[str, Any]) -> Pair[tuple[Any, Any]]:
    """Deviations (chain, draw, K, O p) and common vectors in units of their scales, from draws.

    Common vectors have an axis of length 1 for the component. None where there is no such part.
    """
    weights, scales = draws["weights"], draws.get("scales", {})
    found = []
    for side, prior in zip(Pair._fields, priors, strict=True):
        vectors = weights.gate if side == "gate" else flat_experts(weights.experts)
        deviations, common = None, None
        if isinstance(prior, HierarchicalComponents):
            if prior.common:
                common = draws["common"][..., None, :]
                vectors = vectors - common
                common = common / _scale(scales, "common", prior.common_scale)
            deviations = vectors / _scale(scales, side, prior.scale)
        found.append((deviations, common))
    return Pair(*found)


def _scale(drawn: dict[str, Any], name: str, fixed: Any) -> Any:
    return drawn[name][..., None, None] if fixed is None else fixed


def _from_draws(root: Any, vectors: Any, alike: bool = False) -> Root:
    """The root of standardised vectors (chain, draw, K, O p), with the given axes."""
    n_draws, p = vectors.shape[1], root.width.shape[-1]
    along = vectors.reshape(*vectors.shape[:-1], -1, p)
    if root.basis is not None:
        along = _dot(_reversed(root.pattern), along, root.basis)
    # Within chains: experts are numbered differently in each.
    variance = jnp.mean(jnp.var(along, axis=1), axis=0)
    if root.width.ndim == 1:
        variance = jnp.mean(variance, axis=-2, keepdims=alike)
    if not alike:
        variance = jnp.mean(variance, axis=0)
    variance = (n_draws * variance + FEW_DRAWS * root.width**2) / (n_draws + FEW_DRAWS)
    return Root(root.basis, jnp.sqrt(variance), jnp.clip(1.0 - variance, 0.0, 1.0))


def _row_information(
    expert: ExpertLikelihood, weights: Weights, slopes: tuple[Array, Array, Array], data: Data
) -> Array:
    """Weight of each row in the information of gates, experts and the common expert, (3, N).

    Experts and the common expert have one line for each kind of output.
    """
    gate_scores, scores = score(weights, data.rows)
    gate = jax.nn.softmax(gate_scores, axis=0)
    ones = jnp.ones_like(data.weights)
    _, change, _ = summed_out(expert, gate_scores, scores, data._replace(weights=ones))
    chosen = OF_CHOICE * gate * (1.0 - gate) + (1.0 - OF_CHOICE) * change**2
    share = OF_CHOICE * gate + (1.0 - OF_CHOICE) * (gate + change) ** 2
    information = expert.information(scores)
    kinds = [jnp.mean(information, axis=1)] if expert.alike else jnp.moveaxis(information, 1, 0)
    by_gate, by_experts, by_common = slopes
    return data.weights * jnp.stack(
        [
            jnp.mean(by_gate[:, None] * chosen, axis=0),
            *(jnp.mean(by_experts[:, None] * share * one, axis=0) for one in kinds),
            *(by_common * jnp.sum(share * one, axis=0) for one in kinds),
        ]
    )


def _square_slopes(priors: Priors, typical: Typical) -> tuple[Array, Array, Array]:
    """Squared derivatives of vectors in their coordinates: gates, experts, the common expert.

    Leading axis: point; the first two have one for each component.
    """
    found = []
    n_points, n = typical.weights.gate.shape[:2]
    vectors = typical.weights.gate, flat_experts(typical.weights.experts)
    for side, prior, one in zip(Pair._fields, priors, vectors, strict=True):
        if isinstance(prior, PolarComponents):
            slope = jnp.mean(one**2, axis=-1)
        else:
            scale = prior.scale if side not in typical.scales else typical.scales[side][:, None]
            slope = jnp.broadcast_to(jnp.asarray(scale, one.dtype) ** 2, (n_points, n))
        found.append(slope)
    common = typical.scales.get("common", getattr(priors.experts, "common_scale", None))
    common = jnp.asarray(0.0 if common is None else common, vectors[0].dtype)
    return found[0], found[1], jnp.broadcast_to(common**2, (n_points,))


def _spreads(priors: Priors, typical: Typical) -> Pair[Any]:
    """Spread of lengths and of log scales over typical points, and means of the latter."""
    found = []
    vectors = typical.weights.gate, flat_experts(typical.weights.experts)
    for names, prior, one in zip((("gate",), ("experts", "common")), priors, vectors, strict=True):
        lengths = None
        if isinstance(prior, PolarComponents):
            lengths = _spread(jax.vmap(partial(from_vectors, prior))(one).lengths)
        logs = [jnp.log(typical.scales[name]) for name in names if name in typical.scales]
        if logs:
            found.append(
                (lengths, jnp.stack([*map(_spread, logs)]), jnp.stack([*map(jnp.mean, logs)]))
            )
        else:
            found.append((lengths, None, None))
    return Pair(*found)


def _spread(values: Any) -> Array:
    return jnp.clip(jnp.std(values), *SPREADS)


def _root(information: Array) -> Root:
    """The root of (information + I)^-1, of a matrix or of a diagonal."""
    basis, values = None, information
    if information.ndim > 1:
        values, basis = jnp.linalg.eigh(information)
    values = jnp.maximum(values, 0.0)
    return Root(basis, 1.0 / jnp.sqrt(1.0 + values), jnp.zeros_like(values))


def _joined(roots: list[Root]) -> Root:
    """The roots of all kinds of outputs as one."""
    return roots[0] if len(roots) == 1 else jax.tree.map(lambda *parts: jnp.stack(parts), *roots)


def _dot(pattern: str, *arrays: Any) -> Array:
    return jnp.einsum(pattern, *arrays, precision=lax.Precision.HIGHEST)


def trajectory_steps(step: Scalar, iteration: Array) -> Array:
    """Gradients per trajectory; lengths are a low-discrepancy sequence on (0, half a turn).

    >>> [int(trajectory_steps(0.1, i)) for i in range(4)]
    [1, 20, 8, 27]
    """
    share = (jnp.asarray(iteration).astype(jnp.uint32) * GOLDEN).astype(jnp.float32) / 2.0**32
    return jnp.clip(jnp.ceil(HALF_TURN * share / step), 1, MOST).astype(jnp.int32)


def hmc() -> Sampler:
    """Trajectories of random length in whitened coordinates."""

    def enter(x: Point, setting: Setting) -> dict[str, Point]:
        return {"u": whiten(setting.whitening, x)}

    def recipe(steps: dict[str, Scalar], setting: Setting) -> Update:
        def density(latents: dict[str, Point]) -> Scalar:
            x, log_jacobian = unwhiten(setting.whitening, latents["u"])
            return log_joint(x, setting.problem) + log_jacobian

        step = steps["weights"]
        n_steps = trajectory_steps(step, steps["iteration"])
        kernel = geodesic_hmc(step, n_steps, sphere=False, jitter=0.0)
        return sweep(weights=within(kernel, "u", density))

    def collect(latents: dict[str, Point], setting: Setting) -> dict[str, Any]:
        (x, _), problem = unwhiten(setting.whitening, latents["u"]), setting.problem
        weights = weights_of(problem.priors, x, problem.expert)
        values = draw_of(weights, problem) | {"scales": scales_of(problem.priors, x)}
        common = common_of(problem.priors.experts, x.experts)
        return values if common is None else values | {"common": common}

    return Sampler(enter, recipe, collect, {"weights": 0.1}, {"weights": 0.85})
