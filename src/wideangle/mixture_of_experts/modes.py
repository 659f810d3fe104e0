"""Modes of the posterior of a mixture of experts: point estimates, and starts for samplers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.infer.ascent import Minibatches, as_dense, ascend, begin
from wideangle.mixture_of_experts.coordinates import (
    Point,
    Priors,
    Problem,
    log_joint,
    log_volume,
    n_coordinates,
    to_vectors,
)
from wideangle.mixture_of_experts.experts import ExpertLikelihood
from wideangle.mixture_of_experts.likelihood import Batch
from wideangle.priors.components import ComponentPrior
from wideangle.sharding import current_mesh
from wideangle.sphere.diversity import angular_spread
from wideangle.types import Array, Key, Scalar

BATCH_ROWS, N_STEPS, RATE = 256, 4000, 0.1
"""Small minibatches are not only cheap: their noise leads out of poor local modes."""
JUDGE_ROWS = 4096
"""Rows on which the modes reached are compared."""


class Regulariser(NamedTuple):
    r"""Posterior regularisation :math:`\lambda_1\Omega(\beta) + \lambda_2\Omega(\eta)`."""

    experts: Array
    gate: Array
    gamma: Array


class Modes(NamedTuple):
    """Points reached, best first (leading axis), and the log posterior there."""

    points: Point
    values: np.ndarray
    interrupted: bool


def climb(
    key: Key,
    priors: Priors,
    expert: ExpertLikelihood,
    data: Any,
    *,
    n_starts: int,
    n_passes: int | None = None,
    regulariser: Regulariser | None = None,
    progress: bool | None = None,
) -> Modes:
    """Maximise the log posterior from standard normal coordinates, all starts at once.

    That is nearly the prior (see ``mixture_of_experts/coordinates.py``), and no sampler has to be
    compiled.
    """
    key_draw, key_climb, key_judge = jax.random.split(key, 3)
    sample = _sample(_seed(key_judge), data, JUDGE_ROWS)
    if data.rows.shape[0] <= BATCH_ROWS:
        data = sample  # all rows, and filled up: many sizes share one program
    batches = Minibatches(_seed(key_climb), data.rows, data.targets, data.weights, BATCH_ROWS)
    n_steps = n_passes * batches.per_pass if n_passes else N_STEPS
    constants = (priors, regulariser, jnp.float32(max(np.sum(data.weights), 1.0)))
    ascent = ascend(
        key_climb,
        ModeObjective(expert),
        begin(_draw_points(key_draw, priors, n_starts)),
        batches,
        constants,
        rates=Point(RATE, RATE),
        n_steps=n_steps,
        progress=progress,
    )
    points = ascent.state.position
    values = np.asarray(_judge(ModeObjective(expert), points, sample, constants))
    order = np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable")
    return Modes(jax.tree.map(lambda leaf: leaf[order], points), values[order], ascent.interrupted)


@dataclass(frozen=True)
class ModeObjective:
    """Log posterior (with Omega) per unit of row weight, of several points at once."""

    expert: ExpertLikelihood

    def __call__(self, key: Any, points: Point, batch: Any, constants: Any) -> Array:
        """Values of all points on one minibatch."""
        priors, regulariser, total = constants
        problem = Problem(priors, self.expert, Batch(*batch))

        def one(x: Point) -> Scalar:
            return log_mode(x, problem) + omega(priors, x, regulariser)

        return jax.vmap(one)(points) / total


def log_mode(x: Point, problem: Problem) -> Scalar:
    """What to maximise: the log posterior in the coordinates of direction and length."""
    priors = problem.priors
    volume = log_volume(priors.gate, x.gate) + log_volume(priors.experts, x.experts)
    return log_joint(x, problem) + volume


def omega(priors: Priors, x: Point, regulariser: Regulariser | None) -> Scalar:
    """Posterior regularisation at a point."""
    if regulariser is None:
        return jnp.zeros(())
    gate = angular_spread(to_vectors(priors.gate, x.gate), regulariser.gamma)
    experts = angular_spread(to_vectors(priors.experts, x.experts), regulariser.gamma)
    return regulariser.gate * gate + regulariser.experts * experts


@partial(jax.jit, static_argnums=2)
def _draw_points(key: Key, priors: Priors, n_starts: int) -> Point:
    def one(key: Key, prior: ComponentPrior) -> Array:
        shape = (n_starts, prior.n_components, n_coordinates(prior))
        return jax.random.normal(key, shape, jnp.result_type(*jax.tree.leaves(prior)))

    return Point(*map(one, jax.random.split(key), priors))


def _judge(objective: ModeObjective, points: Point, sample: Batch, constants: Any) -> Array:
    return _judge_compiled(objective, points, sample, constants) * constants[-1]


_judge_compiled = jax.jit(
    lambda objective, points, sample, constants: objective(None, points, sample, constants),
    static_argnums=0,
)


def _sample(seed: int, data: Any, n_rows: int) -> Batch:
    """Some of the rows, each counting for more, filled up to one of few sizes."""
    total = data.rows.shape[0]
    chosen = np.arange(total)
    if total > n_rows:
        chosen = np.random.default_rng(seed).choice(total, n_rows, replace=False)
    weights = np.asarray(data.weights, np.float32)[chosen]
    weights = weights * (np.sum(data.weights) / max(np.sum(weights), 1e-30))
    rows = as_dense(data.rows, chosen, np.float32)
    return fill(Batch(rows, np.asarray(data.targets, np.int32)[chosen], weights))


def fill(batch: Batch) -> Batch:
    """Add rows of weight 0 up to a round number, so that many sizes share one program."""
    missing = round_up(len(batch.targets)) - len(batch.targets)
    pad = [np.pad(np.asarray(leaf), [(0, missing)] + [(0, 0)] * (leaf.ndim - 1)) for leaf in batch]
    if current_mesh() is not None:  # one device need not hold all rows
        return Batch(*pad)
    return Batch(*(jnp.asarray(leaf) for leaf in pad))


def round_up(n_rows: int) -> int:
    """The next of about eight sizes per power of two."""
    step = max(64, 2 ** (max(n_rows - 1, 1).bit_length() - 3))
    return -(-max(n_rows, 1) // step) * step


def _seed(key: Key) -> int:
    return int(jax.random.bits(key, dtype=jnp.uint32))
