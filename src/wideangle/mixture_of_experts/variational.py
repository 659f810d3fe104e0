"""Variational mixture of experts: the collapsed bound, maximised by stochastic gradients."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from wideangle.infer.ascent import Ascent, AscentState, Minibatches, ascend, begin
from wideangle.infer.program import jit_quickly
from wideangle.mixture_of_experts.collapsed import (
    Objective,
    Terms,
    n_noise,
    negative_kl,
)
from wideangle.mixture_of_experts.coordinates import Priors, as_weights
from wideangle.mixture_of_experts.data import Data, chunks, fill, seed_of
from wideangle.mixture_of_experts.guides import Guide, Guides, VmfGuide, start
from wideangle.mixture_of_experts.likelihood import ExpertLikelihood, Pair, Weights, log_lik
from wideangle.mixture_of_experts.task import (
    Fitted,
    Regulariser,
    Task,
    arrays_of,
    checkpoint_of,
)
from wideangle.posterior import Draws
from wideangle.priors.components import (
    ComponentPrior,
    GaussianComponents,
    HierarchicalComponents,
    PolarComponents,
)
from wideangle.priors.learning import update_prior
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.sharding import current_mesh
from wideangle.storage import Checkpoint
from wideangle.types import Array, Components, Key, as_dense, as_targets

RATE = 0.02
"""Largest learning rate of locations; the others have twice as much."""
MIN_PASSES, FULL_STEPS, MANY_STEPS = 20, 1500, 20_000
"""Passes over many rows, steps if each sees all rows, and steps after which no new pass begins; see
:func:`_n_steps_of`."""
TABLE = 2**22
"""Normals drawn once; steps read them at random positions, since drawing new ones would cost more
than the model itself."""
M_STEPS, M_DRAWS = (0.3, 0.5, 0.7), 32
"""When in the run priors are learned: after the first search, before the last refinement; and the
number of draws used."""
FEW_ROWS, MANY_ROWS, COOL = 500, 2000, 0.35
ROUGH_STEPS = 100
"""Objectives averaged for a rough bound."""
ELBO_DRAWS, POSTERIOR_DRAWS = 32, 64
"""Number of draws for the reported bound, and draws kept of each start."""

Stream = Callable[[int], Any]
"""From a seed to batches (:class:`wideangle.infer.ascent.Batches` with ``size``, ``per_pass``)."""


@dataclass(frozen=True)
class VariationalFit:
    """One start: the distribution q it reached, and how good that is."""

    guides: Guides
    """q of gate and experts; ``guides.gate.factors`` are vMF and Gamma factors for "vmf"."""
    expert: ExpertLikelihood
    priors: Priors
    """As learned."""
    temperature: float
    trace: np.ndarray
    """The (tempered) objective at every step, nats; noisy."""
    interrupted: bool
    elbo: float = math.nan
    """Lower bound on the log evidence (temperature 1), whatever the temperature of the fit."""
    elbo_error: float = math.nan
    """Its Monte Carlo standard error."""

    @property
    def mean(self) -> Weights:
        """Expected weights."""
        gate, experts = _means(self.guides)
        return as_weights(gate, experts, self.expert.n_outputs)

    @property
    def scales(self) -> dict[str, float]:
        """Scales of a hierarchical prior, by name."""
        found = {}
        for side, prior, guide in zip(Pair._fields, self.priors, self.guides, strict=True):
            if isinstance(prior, HierarchicalComponents):
                scale, common = prior.scales(guide.log_prior_scales)
                found |= {side: float(scale)} | ({"common": float(common)} if prior.common else {})
        return found

    def sample(self, key: Key, n: int) -> Weights:
        """Exact draws of q, with leading axis n."""
        # One call for each: with one output both have the same shape and share a program.
        parts = [_draw(g, k, n) for g, k in zip(self.guides, random.split(key), strict=True)]
        return as_weights(parts[0], parts[1], self.expert.n_outputs)


def fit(key: Key, task: Task, data: Data) -> Fitted:
    """Draws of the approximations of several starts; a start counts as a chain."""
    key_fit, key_draw = random.split(key)
    checkpoint = checkpoint_of(key, task, arrays_of(data))
    fits = fit_starts(key_fit, task, data, checkpoint=checkpoint)
    return draws_of(key_draw, fits)


def draws_of(key: Key, fits: list[VariationalFit]) -> Fitted:
    """Draws from the fitted approximations, one chain for each."""
    keys = random.split(key, len(fits))
    each = [fit.sample(k, POSTERIOR_DRAWS) for fit, k in zip(fits, keys, strict=True)]
    draws = jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *each)
    notes = {
        "elbo": [fit.elbo for fit in fits],
        "elbo_error": [fit.elbo_error for fit in fits],
        "temperature": fits[0].temperature,
        "interrupted": fits[0].interrupted,
        "steps": len(fits[0].trace),
        "scales": [fit.scales for fit in fits],
    }
    return Fitted(Draws({"weights": draws}), fits[0].priors, notes)


def fit_starts(
    key: Key,
    task: Task,
    data: Data,
    *,
    dtype: Any = np.float32,
    **options: Any,
) -> list[VariationalFit]:
    """Approximations from several starts with an estimate of the bound; see there for options."""
    key_report = random.split(key, 3)[2]
    fits = approximations(key, task, data, dtype=dtype, **options)
    keys = random.split(key_report, len(fits))
    return [assess(one, fit, data, dtype) for one, fit in zip(keys, fits, strict=True)]


def approximations(
    key: Key,
    task: Task,
    data: Data,
    *,
    checkpoint: Checkpoint | None = None,
    stream: Stream | None = None,
    dtype: Any = np.float32,
    rough: bool = False,
) -> list[VariationalFit]:
    r"""Maximise the collapsed bound from several starts at once.

    Parameters
    ----------
    task
        With :class:`~wideangle.Variational` as its inference. Below temperature 1 the objective is
        no bound, but more experts stay alive and averaged predictions are better once there are
        thousands of rows. Learned priors are updated by M steps during the fit, all starts
        together.
    checkpoint
        Saves progress during the fit, and continues a saved one; removed after a finished fit.
    stream
        Where minibatches come from, ``seed -> batches``. ``data`` is then a sample of the rows,
        weighted to stand for all of them: starts and the bound at the end come from it.
    rough
        Whether to estimate the bounds of the approximations from some more noise.

    Notes
    -----
    Ctrl-C keeps what was reached and sets ``interrupted``. ``key`` determines all randomness.
    """
    chosen = task.inference
    targets, weights = as_targets(data.targets, dtype), np.asarray(data.weights, dtype)
    data = Data(data.rows, targets, weights)
    tau = chosen.temperature
    tau = usual_temperature(float(np.sum(weights))) if isinstance(tau, str) else tau
    task = task._replace(priors=Pair(*(_closed_form(p, chosen.guide) for p in task.priors)))
    # The first of three keys is not used: the others are those of earlier versions.
    key_climb = random.split(key, 3)[1]
    with checkpoint or nullcontext():
        result, priors, bounds = _climb(
            key_climb, task, data, tau, checkpoint, stream, dtype, rough
        )
    if checkpoint is not None and not result.interrupted:
        checkpoint.remove(may_fail=True)
    reached = jax.tree.map(np.asarray, result.state.position)
    return [
        VariationalFit(
            jax.tree.map(lambda leaf, place=place: leaf[place], reached),
            task.expert,
            priors,
            float(tau),
            result.trace[:, place],
            result.interrupted,
            float(bounds[place]),
        )
        for place in range(chosen.n_starts)
    ]


def _climb(
    key: Key,
    task: Task,
    data: Data,
    temperature: float,
    checkpoint: Checkpoint | None,
    stream: Stream | None,
    dtype: Any,
    rough: bool,
) -> tuple[Ascent, Priors, np.ndarray]:
    """Maximise from new starts or from a checkpoint; also returns the priors learned so far.

    And rough estimates of the bounds at temperature 1, if wanted.
    """
    keys = random.split(key, 4)
    chosen, expert, priors = task.inference, task.expert, task.priors
    n, n_starts = priors.gate.n_components, chosen.n_starts
    mesh, seed = current_mesh(), seed_of(keys[0])
    batches = _batches_of(seed, data, chosen.batch_size, dtype) if stream is None else stream(seed)
    state = begin(start(keys[1], chosen.guide, priors, expert, data, n_starts, dtype))
    traces, interrupted = [np.zeros((0, n_starts))], False
    if checkpoint is not None:
        state, priors, traces[0] = _loaded(checkpoint, state, priors)
    need = n_starts * n_noise(expert, state.position) * n * batches.size
    table = random.normal(keys[2], (max(TABLE, 2 * need),), dtype)
    n_steps = _n_steps_of(batches.per_pass, chosen.n_passes)

    def save(state: AscentState, trace: np.ndarray) -> None:
        if checkpoint is not None:
            whole = np.concatenate([*traces[1:], trace])
            checkpoint((state, jax.tree.leaves(priors)), {"trace": whole.T})

    def climbed(state: AscentState, temperature: float, rates: Guides, **options: Any) -> Ascent:
        constants = terms(priors, np.full(n_starts, temperature), task.regulariser, dtype)
        return ascend(
            keys[3],
            Objective(expert, mesh),
            state,
            batches,
            (table, constants),
            rates=rates,
            mesh=mesh,
            **options,
        )

    rates = rates_of(state.position)
    usual: dict[str, Any] = {"n_steps": n_steps, "verbose": task.verbose, "callback": save}
    for stop in (*m_steps(n_steps, task.learn), n_steps):
        if interrupted or int(state.step[0]) > stop:
            continue
        part = climbed(state, temperature, rates, until=stop, **usual)
        state, interrupted = part.state, part.interrupted
        traces.append(part.trace)
        if stop < n_steps and not interrupted:
            # Depends on q alone: a run continued from here repeats it exactly.
            key_m = random.fold_in(keys[1], stop)
            priors = learned(key_m, state.position, priors, task.learn)
    bounds = np.full(n_starts, np.nan)
    if rough and not interrupted:
        # The program of the fit, which stands still: nothing more is compiled.
        still = jax.tree.map(lambda _: 0.0, rates)
        last = climbed(begin(state.position), 1.0, still, n_steps=ROUGH_STEPS, verbose=False)
        bounds = last.trace.mean(axis=0)
    return Ascent(state, np.concatenate(traces), interrupted), priors, bounds


def _batches_of(seed: int, data: Data, size: int, dtype: Any) -> Minibatches:
    if data.rows.shape[0] <= size:  # padded: many sizes share one program
        data = fill(data._replace(rows=as_dense(data.rows, slice(None), dtype)))
    return Minibatches(seed, *data, size, dtype, current_mesh())


def _loaded(
    checkpoint: Checkpoint, state: AscentState, priors: Priors
) -> tuple[AscentState, Priors, np.ndarray]:
    """State, priors and trace of a checkpoint; without one, those of a new start."""
    leaves, structure = jax.tree.flatten(priors)
    nothing = {"trace": np.zeros((len(state.step), 0))}
    # Learned priors may have another precision than the given ones.
    found = checkpoint.load(((state, [...] * len(leaves)), nothing))
    if found is None:
        return state, priors, nothing["trace"].T
    (state, leaves), earlier = found
    state = jax.tree.map(jnp.asarray, state)
    return state, jax.tree.unflatten(structure, leaves), earlier["trace"].T


def rates_of(guides: Guides) -> Guides:
    """Learning rates: logarithms of widths and shapes have farther to go than locations."""

    def rate(path: Any, leaf: Any) -> float:
        return RATE if getattr(path[-1], "name", None) == "centres" else 2.0 * RATE

    return jax.tree_util.tree_map_with_path(rate, guides)


def terms(
    priors: Priors, temperatures: Any, regulariser: Regulariser | None, dtype: Any = np.float32
) -> Terms:
    """Terms of the objective apart from the data; a regulariser that is off costs nothing."""
    every = Terms(priors, temperatures, regulariser)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), every)


def _n_steps_of(per_pass: int, n_passes: int | None = None) -> int:
    r"""Number of steps: by default :math:`\max(20, 1500\,m^{-5/4})` passes of m batches.

    Little data needs steps, much data needs passes; more of either fits the bound better and
    predicts no better. Beyond 1000 batches per pass (a million rows) there are fewer passes: q has
    converged well before 20,000 steps.
    """
    usual = min(MIN_PASSES, math.ceil(MANY_STEPS / per_pass))
    return per_pass * (n_passes or max(usual, math.ceil(FULL_STEPS * per_pass**-1.25)))


def m_steps(n_steps: int, learn: Pair[bool]) -> list[int]:
    """Numbers of steps after which the priors are learned from q."""
    if not any(learn):
        return []
    return sorted({int(part * n_steps) for part in M_STEPS} - {0, n_steps})


def learned(key: Key, guides: Guides, priors: Priors, learn: Pair[bool]) -> Priors:
    """The M step: priors that fit q best, all starts taken together."""
    turns = zip(random.split(key), guides, priors, learn, strict=True)
    return Pair(*(m_step(*turn) if wanted else turn[-1] for *turn, wanted in turns))


def m_step(key: Key, guide: Guide, prior: ComponentPrior) -> PolarComponents:
    r"""Update :math:`\mu_0, \alpha_1, \alpha_2` of a polar prior from q.

    Leaves of the guide have a leading axis of starts; the update maximises the mean of their bounds
    over the prior, so at fixed q no start is preferred and the mean cannot fall. Gaussian factors
    have no closed form for lengths: ``M_DRAWS`` draws of each start replace it.

    Paper: Appendix C, the M step.
    """
    assert isinstance(prior, PolarComponents)
    if isinstance(guide, VmfGuide):
        return update_prior(prior, guide.factors)
    keys = random.split(key, guide.centres.shape[0])
    draws = jax.vmap(lambda one, k: one.sample(k, M_DRAWS))(guide, keys)
    return update_prior(prior, Components.from_vectors(draws))


def _closed_form(prior: ComponentPrior, guide: str) -> ComponentPrior:
    """The prior with zero concentration made explicit, after checking that q supports it."""
    if guide != "vmf" or isinstance(prior, GaussianComponents):
        return prior
    directions = getattr(prior, "directions", None)
    if not isinstance(prior, PolarComponents) or not isinstance(directions, MutualAngular):
        raise ValueError(f"{prior!r}: has no closed form under guide='vmf'; use guide='diagonal'.")
    if not np.any(np.asarray(directions.concentration)):
        flat = MutualAngular(*prior.event_shape, 0.0, "independent")
        return PolarComponents(flat, prior.magnitude_shape, prior.magnitude_rate)
    if directions.kind == "I":
        raise ValueError(
            "kind='I' has no closed form under guide='vmf'; use kind='II' or guide='diagonal'."
        )
    return prior


def usual_temperature(n_rows: float) -> float:
    """1 up to 500 rows, 0.35 from 2000 rows on, and a line in log N between them.

    A row of weight 2 counts as two.

    From measurements: synthetic data with 500 rows are predicted best at 1; Adult (32,561 rows),
    images (3,986) and synthetic data with 4,000 rows between 0.2 and 0.5.
    """
    place = np.log(max(n_rows, 1) / FEW_ROWS) / np.log(MANY_ROWS / FEW_ROWS)
    return float(1.0 - (1.0 - COOL) * np.clip(place, 0.0, 1.0))


def assess(key: Key, fit: VariationalFit, data: Data, dtype: Any) -> VariationalFit:
    r"""Add the bound at temperature 1.

    Mean over exact draws W of :math:`\log p(y\mid W) - \nabla\cdot(W - EW)`, the gradient
    being that at the mean: a control variate of mean 0 that removes the first-order error.
    """
    key_draws, key_prior = random.split(key)
    targets, weights = as_targets(data.targets, dtype), np.asarray(data.weights, dtype)
    data = Data(data.rows, targets, weights)
    # As many as are kept of a start, for which the program is compiled anyway.
    draws = jax.tree.map(lambda leaf: leaf[:ELBO_DRAWS], fit.sample(key_draws, POSTERIOR_DRAWS))
    mean, sums = fit.mean, None
    for part, chunk in chunks(data.rows, dtype):
        pad = (0, len(chunk) - (part.stop - part.start))
        batch = Data(chunk, np.pad(data.targets[part], pad), np.pad(data.weights[part], pad))
        new = jax.tree.map(
            lambda leaf: np.asarray(leaf, np.float64), _log_liks(fit.expert, draws, mean, batch)
        )
        sums = new if sums is None else jax.tree.map(np.add, sums, new)
    assert sums is not None
    values, slope = sums
    for one, centre, gradient in zip(draws, mean, slope, strict=True):
        away = np.asarray(one, np.float64) - np.asarray(centre, np.float64)
        values = values - np.tensordot(away, gradient, gradient.ndim)
    priors = jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), fit.priors)
    divergences = _divergences(random.split(key_prior, ELBO_DRAWS), fit.guides, priors)
    errors = [np.std(x, ddof=1) / np.sqrt(ELBO_DRAWS) for x in (values, divergences)]
    elbo = float(np.mean(values) + np.mean(divergences))
    return replace(fit, elbo=elbo, elbo_error=float(np.hypot(*errors)))


@jit_quickly
def _divergences(keys: Key, guides: Guides, priors: Priors) -> Array:
    """Minus the divergence from the priors; one estimate per key if there is no closed form."""
    return lax.map(lambda key: negative_kl(key, guides, priors), keys)


@partial(jit_quickly, static_argnames="expert")
def _log_liks(
    expert: ExpertLikelihood, draws: Weights, mean: Weights, data: Data
) -> tuple[Array, Weights]:
    """Log-likelihood of each draw, and its gradient at the mean."""
    values = lax.map(lambda weights: log_lik(expert, weights, data), draws)
    return values, jax.grad(partial(log_lik, expert))(mean, data)


@jax.jit
def _means(guides: Guides) -> tuple[Array, Array]:
    """Expected vectors of gate and experts."""
    return guides.gate.means, guides.experts.means


@partial(jit_quickly, static_argnames="n")
def _draw(guide: Guide, key: Key, n: int) -> Array:
    """Exact draws, (n, K, D)."""
    return guide.sample(key, n)
