r"""Moving the features given the assignments, through sufficient statistics: no row is touched.

Gaussian features are drawn exactly. Polar features move one after the other: the likelihood of a
direction, times its own prior, is a von Mises-Fisher distribution,

.. math:: \hat w_k \sim \mathrm{vMF}\Bigl(\kappa m_k + \frac{r_k}{\sigma^2} b_k\Bigr), \qquad
          b_k = \sum_n z_{nk}\Bigl(x_n - \sum_{j\ne k} z_{nj}w_j\Bigr),

which is the proposal; the terms of later features, whose mean directions change, decide (always
accepted where directions do not repel). Lengths move by a Metropolis step around their mode. On a
GPU, where K small steps in a row cost more than many large ones at once, Hamiltonian trajectories
move all directions and then all lengths.

Differs from the paper: its conditional of a direction has lengths in the terms of later features,
:math:`\sigma` for :math:`\sigma^2`, sums over rows that do not use the feature, and its conditional
of a length lacks the number of rows in the quadratic term.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from wideangle.infer.geodesic_hmc import geodesic_hmc
from wideangle.infer.kernel import DualAveraging, Info, accept, make_info
from wideangle.latent_features.state import Design, Features, FeatureStats, Hyper, log_lik
from wideangle.priors.mutual_angular import MutualAngular, direction_of, pulls, sums_before
from wideangle.sphere import vmf
from wideangle.types import Array, Components, Key, Scalar

LEAPFROG = 10
"""Gradients per Hamiltonian trajectory."""
FAR = 40.0
"""Distance from the mode, in the logarithm of a length, at which its density is zero."""


TARGETS = {"directions": 0.8, "lengths": 0.8}
"""Acceptance that the Hamiltonian moves are tuned to in warm-up."""

Tuning = dict[str, DualAveraging]
"""State of the step size tuning, by name of the move."""


class Steps(NamedTuple):
    """Step sizes of the Hamiltonian moves."""

    directions: Scalar
    lengths: Scalar


class Moved(NamedTuple):
    """Outcome of the moves."""

    directions: Info
    lengths: Info


def start_tuning() -> Tuning:
    """Step sizes before the first sweep."""
    return {name: DualAveraging.start(0.1) for name in TARGETS}


def steps_of(tuning: Tuning, warming: Any) -> Steps:
    """Step sizes to use now."""
    return Steps(**{name: one.current(warming) for name, one in tuning.items()})


def learn_steps(tuning: Tuning, moved: Moved) -> Tuning:
    """Step sizes after one more sweep of warm-up."""
    return {
        name: one.learn(getattr(moved, name).acceptance, TARGETS[name])
        for name, one in tuning.items()
    }


def move_vectors(
    key: Key, features: Features, stats: FeatureStats, design: Design, steps: Steps
) -> tuple[Features, Moved]:
    """Redraw or move all live features."""
    if design.features == "gaussian":
        components = _draw_gaussian(key, features, stats)
        nothing = make_info(1.0)
        return features._replace(components=components), Moved(nothing, nothing)
    if design.hamiltonian:
        return _move_together(key, features, stats, design, steps)
    return _move_in_turn(key, features, stats, design)


def _draw_gaussian(key: Key, features: Features, stats: FeatureStats) -> Components:
    r"""Exact draw of :math:`W \sim N(\Lambda^{-1} Z^\top X/\sigma^2, \Lambda^{-1})`.

    :math:`\Lambda = Z^\top Z/\sigma^2 + \tau I`, with :math:`\tau` the prior precision of an entry.
    """
    hyper = features.hyper
    precision = stats.gram / hyper.noise_variance + hyper.rate * jnp.eye(features.room)
    factor = jnp.linalg.cholesky(precision.astype(stats.cross.dtype))
    half = jax.scipy.linalg.solve_triangular(factor, stats.cross / hyper.noise_variance, lower=True)
    half += jax.random.normal(key, half.shape, half.dtype)
    vectors = jax.scipy.linalg.solve_triangular(factor.T, half, lower=False)
    return Components.from_vectors(jnp.where(features.live[:, None], vectors, 0.0))


class _Turn(NamedTuple):
    """What is carried from feature to feature."""

    directions: Array
    lengths: Array
    cross: Array
    """(K,) :math:`S_{j-1}\\cdot\\hat w_j`, with S the sum of the directions before."""
    square: Array
    """(K,) :math:`|S_{j-1}|^2`."""
    resultant: Array
    """(D,) the sum of the directions before the current feature."""
    accepted: Scalar


def _move_in_turn(
    key: Key, features: Features, stats: FeatureStats, design: Design
) -> tuple[Features, Moved]:
    hyper = features.hyper
    kappa = hyper.concentration if design.ordered else jnp.zeros_like(hyper.concentration)
    index = jnp.arange(features.room)
    directions, lengths = features.components
    cross = square = lengths * 0
    if design.ordered:
        live = jnp.any(directions != 0, axis=1)
        cross, square = sums_before(directions @ directions.T, live)
    lengths_kernel = _length_kernel(hyper, design)

    n_visits = design.n_passes * features.n_live

    def visit(i: Array, turn: _Turn) -> _Turn:
        k = i % features.n_live
        turn = turn._replace(resultant=jnp.where(k == 0, 0.0, turn.resultant))
        key_direction, key_accept, key_length = jax.random.split(jax.random.fold_in(key, i), 3)
        others = jnp.where(index == k, 0.0, stats.gram[k] * turn.lengths)
        pull = stats.cross[k] - others @ turn.directions
        natural = turn.lengths[k] / hyper.noise_variance * pull - kappa * direction_of(
            turn.resultant
        )
        old = turn.directions[k]
        new = vmf.sample(key_direction, natural).astype(old.dtype)
        accepted, chain = jnp.array(True), (turn.cross, turn.square)
        if design.ordered:
            accepted, chain = _judge(key_accept, k, new - old, turn, kappa, features.n_live)
            new = jnp.where(accepted, new, old)
        length = lengths_kernel(key_length, turn.lengths[k], new @ pull, stats.gram[k, k])
        return _Turn(
            turn.directions.at[k].set(new),
            turn.lengths.at[k].set(length),
            *chain,
            turn.resultant + new,
            turn.accepted + accepted,
        )

    start = _Turn(
        directions, lengths, cross, square, jnp.zeros_like(directions[0]), jnp.zeros_like(kappa)
    )
    end = lax.fori_loop(0, n_visits, visit, start)
    rate = end.accepted / jnp.maximum(n_visits, 1)
    moved = Moved(make_info(rate, evaluations=n_visits), make_info(1.0))
    return features._replace(components=Components(end.directions, end.lengths)), moved


def _judge(
    key: Key, k: Array, change: Array, turn: _Turn, kappa: Scalar, n_live: Array
) -> tuple[Array, tuple[Array, Array]]:
    """Accept a change of direction k on the terms of later features; one matrix-vector product."""
    index = jnp.arange(turn.cross.shape[0])
    along = turn.directions @ change
    past = jnp.cumsum(along) - along  # the old resultant of each feature, times the change
    cross = turn.cross + jnp.where(index > k, along, jnp.where(index == k, past, 0.0))
    square = turn.square + jnp.where(index > k, 2 * past + change @ change, 0.0)
    later = (index > k) & (index < n_live)

    before = jnp.sum(pulls(turn.cross, turn.square, later))
    gain = kappa * (jnp.sum(pulls(cross, square, later)) - before)
    accepted, _ = accept(key, gain)
    return accepted, (
        jnp.where(accepted, cross, turn.cross),
        jnp.where(accepted, square, turn.square),
    )


def _length_kernel(hyper: Hyper, design: Design):
    r"""Metropolis move of one length to a point that does not depend on it.

    In :math:`u = \log r` the log density is :math:`au + ce^u - de^{2u}/2`, which has one mode. The
    proposal is a Cauchy distribution there, as wide as the curvature says.
    """
    shape = design.magnitude_shape

    def move(key: Key, length: Scalar, pull: Scalar, count: Scalar) -> Scalar:
        c, d = pull / hyper.noise_variance - hyper.rate, count / hyper.noise_variance
        root = jnp.sqrt(c**2 + 4 * shape * d)
        mode = jnp.where(c > 0, (c + root) / (2 * d), 2 * shape / (root - c))
        width = 1 / jnp.sqrt(shape + d * mode**2)

        def density(value: Scalar, place: Scalar) -> Scalar:
            """Of the logarithm, relative to the proposal; ``place`` is where it is around it."""
            own = shape * jnp.log(value) + c * value - 0.5 * d * value**2
            return own - _log_cauchy(place)

        key_place, key_accept = jax.random.split(key)
        place = jax.random.cauchy(key_place, dtype=length.dtype)
        # Far out the density is zero in this precision; a length of zero would mark padding.
        new = mode * jnp.exp(jnp.clip(width * place, -FAR, FAR))
        old_place = jnp.log(length / mode) / width
        accepted, _ = accept(key_accept, density(new, place) - density(length, old_place))
        return jnp.where(accepted, new, length)

    return move


def _log_cauchy(place: Scalar) -> Scalar:
    """Log density of the proposal of a length, up to a constant."""
    return -jnp.log1p(place**2)


def _move_together(
    key: Key, features: Features, stats: FeatureStats, design: Design, steps: Steps
) -> tuple[Features, Moved]:
    """Hamiltonian trajectories of all directions, then of all lengths."""
    key_directions, key_lengths = jax.random.split(key)
    hyper, live = features.hyper, features.live
    directions, lengths = features.components
    counts = stats.counts
    prior = MutualAngular(features.room, directions.shape[1], hyper.concentration)

    def of_directions(value: Array) -> Scalar:
        chain = prior.log_ratio_to_uniform(value) if design.ordered else 0.0
        return log_lik(lengths[:, None] * value, stats, hyper.noise_variance) + chain

    # The likelihood allows long and often used features only small angles.
    sharpness = counts * lengths**2 / (hyper.noise_variance * directions.shape[1])
    kernel = geodesic_hmc(steps.directions, LEAPFROG, scale=1 / jnp.sqrt(1 + sharpness))
    state = kernel.init(directions, of_directions)
    state, info_directions = kernel.step(key_directions, state, of_directions)
    directions = state.position

    inner = stats.gram * (directions @ directions.T)
    pull = jnp.sum(directions * stats.cross, axis=1)

    def of_logs(logs: Array) -> Scalar:
        value = jnp.where(live, jnp.exp(logs), 0.0)
        fit = (pull @ value - 0.5 * value @ (inner @ value)) / hyper.noise_variance
        prior_terms = design.magnitude_shape * logs - hyper.rate * value  # with the Jacobian
        return fit + jnp.sum(jnp.where(live, prior_terms, 0.0))

    guess = jnp.maximum(pull, 0.0) / jnp.maximum(counts, 1.0)
    spread = 1 / jnp.sqrt(design.magnitude_shape + counts * guess**2 / hyper.noise_variance)
    kernel = geodesic_hmc(steps.lengths, LEAPFROG, sphere=False, scale=jnp.where(live, spread, 0.0))
    state = kernel.init(jnp.log(jnp.where(live, lengths, 1.0)), of_logs)
    state, info_lengths = kernel.step(key_lengths, state, of_logs)
    lengths = jnp.where(live, jnp.exp(state.position), 0.0)
    moved = Moved(info_directions, info_lengths)
    return features._replace(components=Components(directions, lengths)), moved
