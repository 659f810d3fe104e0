"""The climb of a variational mixture of experts: objective, minibatches, rates, length."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, random

from wideangle.checks import check_range, check_shape
from wideangle.infer.ascent import Ascent, AscentState, Minibatches, ascend, begin
from wideangle.mixture_of_experts.collapsed import Guides, Terms, n_noise, objective
from wideangle.mixture_of_experts.experts import ExpertLikelihood
from wideangle.mixture_of_experts.guides import Guide, VmfGuide
from wideangle.mixture_of_experts.likelihood import Batch
from wideangle.mixture_of_experts.start import start
from wideangle.priors.components import ComponentPrior, GaussianComponents, PolarComponents
from wideangle.priors.learning import update_prior
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.sharding import current_mesh
from wideangle.storage import Checkpoint
from wideangle.types import Array, Components, Key

MIN_PASSES, FULL_STEPS, MANY_STEPS = 20, 1500, 20_000
"""Passes over many rows, steps when a step sees all rows, and steps after which no further pass
is begun; see :meth:`Job.length`."""
TABLE = 2**22
"""Normals drawn once; steps read them at random places, since fresh ones would cost more than
the model itself."""


M_STEPS, M_DRAWS = (0.3, 0.5, 0.7), 32
"""Where in the run priors are learned: after the first search, before the last refinement; and
draws behind it."""


Stream = Callable[[int], Any]
"""Seed in, batches out (:class:`wideangle.infer.ascent.Batches` with ``size``, ``per_pass``)."""


class Data(NamedTuple):
    """Rows (N, p), dense or SciPy CSR, intercept column included; classes; weights of rows."""

    rows: Any
    targets: Any
    weights: Any = None


@dataclass(frozen=True)
class Objective:
    """The collapsed bound of several starts at once, on noise from a table."""

    expert: ExpertLikelihood

    def __call__(self, key: Key, guides: Guides, batch: Any, constants: Any) -> Array:
        """Values of all starts; ``constants`` are the table and the terms."""
        table, terms = constants
        key_place, key_prior = random.split(key)
        n_starts, n_components, _ = guides.gate.centres.shape
        shape = n_starts, n_noise(self.expert, guides), n_components, batch[0].shape[0]
        size = int(np.prod(shape))
        place = random.randint(key_place, (), 0, table.shape[0] - size + 1)
        noise = lax.dynamic_slice(table, (place,), (size,)).reshape(shape)
        axes = Terms(None, None, 0, None, None)
        each = jax.vmap(partial(objective, self.expert), in_axes=(0, 0, 0, None, axes))
        return each(random.split(key_prior, n_starts), guides, noise, Batch(*batch), terms)


@dataclass(frozen=True)
class Job:
    """The options of a fit, and its parts."""

    gate_prior: ComponentPrior
    expert_prior: ComponentPrior
    expert: ExpertLikelihood
    q: str
    n_passes: int | None
    batch_size: int
    learning_rate: float
    strengths: tuple[float, float]
    gamma: float
    dtype: Any
    learn: tuple[bool, bool] = (False, False)
    """Whether the priors of gate and experts are learned."""

    def checked(self, data: Data) -> Data:
        """The data with its defaults, or an error that names what does not fit."""
        rows, p = data.rows, data.rows.shape[1]
        check_shape("gate_prior", self.gate_prior.event_shape, ("K", p))
        n = self.gate_prior.n_components
        check_shape("expert_prior", self.expert_prior.event_shape, (n, p * self.expert.n_outputs))
        targets = np.asarray(data.targets, np.int32)
        check_shape("targets", targets.shape, (rows.shape[0],))
        check_range("targets", targets, 0, max(2, self.expert.n_outputs))
        weights = np.ones(len(targets)) if data.weights is None else np.asarray(data.weights)
        check_range("weights", weights, 0.0)
        check_range("rows", rows.data if hasattr(rows, "tocsr") else rows)
        return Data(rows, targets, weights.astype(self.dtype))

    def climb(
        self,
        key: Key,
        data: Data,
        taus: np.ndarray,
        state: AscentState | None,
        *,
        stream: Stream | None = None,
        checkpoint: Checkpoint | None = None,
        callback: Callable[[AscentState, np.ndarray], None] | None = None,
        progress: bool | None = None,
    ) -> tuple[Ascent, Job]:
        """Climb from fresh starts, one for each temperature, or go on from ``state``.

        The job that comes back has the priors learned on the way. With ``stream``, batches come
        from there and ``data`` is a sample that serves to find the starts.
        """
        keys = random.split(key, 4)
        n, n_starts = self.gate_prior.n_components, len(taus)
        seed = int(random.bits(keys[0], dtype=jnp.uint32))
        batches: Any = Minibatches(seed, *data, self.batch_size, self.dtype)
        if stream is not None:
            batches = stream(seed)
        if state is None:
            state = begin(start(keys[1], self.q, self.expert, data, n, n_starts, self.dtype))
        job, traces, interrupted = self, [np.zeros((0, n_starts))], False
        if checkpoint is not None:
            job, state, earlier = self.loaded(checkpoint, state)
            traces = [earlier]
        need = n_starts * n_noise(self.expert, state.position) * n * batches.size
        table = random.normal(keys[2], (max(TABLE, 2 * need),), self.dtype)
        rates = jax.tree.map(lambda _: self.learning_rate, state.position)
        # Logarithms of widths and shapes have farther to go than locations.
        rates = Guides(*(type(g)(g[0], *(2.0 * r for r in g[1:])) for g in rates))
        n_steps = self.length(batches.per_pass)

        def watch(state: AscentState, trace: np.ndarray) -> None:
            if checkpoint is not None:
                own = np.concatenate([*traces[1:], trace])
                checkpoint((state, jax.tree.leaves(job.priors)), {"trace": own.T})
            if callback is not None:
                callback(state, trace)

        for stop in (*self.m_steps(n_steps), n_steps):
            if interrupted or int(state.step[0]) > stop:
                continue
            constants = table, job.terms(jnp.asarray(taus, self.dtype))
            part = ascend(
                keys[3], Objective(self.expert), state, batches, constants,
                rates=rates, n_steps=n_steps, until=stop, progress=progress, callback=watch,
                mesh=current_mesh(),
            )  # fmt: skip
            state, interrupted = part.state, part.interrupted
            traces.append(part.trace)
            if stop < n_steps and not interrupted:
                # Depends on q alone: a run taken up again just here does the same once more.
                job = job.learned(random.fold_in(keys[1], stop), state.position)
        return Ascent(state, np.concatenate(traces), interrupted), job

    @property
    def priors(self) -> tuple[ComponentPrior, ComponentPrior]:
        """Of gate and experts."""
        return self.gate_prior, self.expert_prior

    def loaded(
        self, checkpoint: Checkpoint, state: AscentState
    ) -> tuple[Job, AscentState, np.ndarray]:
        """Job, state and trace of a checkpoint; without one, those of a fresh start."""
        leaves, structure = jax.tree.flatten(self.priors)
        nothing = {"trace": np.zeros((len(state.step), 0))}
        # Learned priors may be of another precision than those given.
        found = checkpoint.load(((state, [...] * len(leaves)), nothing))
        if found is None:
            return self, state, nothing["trace"].T
        (state, leaves), earlier = found
        priors = jax.tree.unflatten(structure, leaves)
        state = jax.tree.map(jnp.asarray, state)
        return (
            replace(self, gate_prior=priors[0], expert_prior=priors[1]),
            state,
            earlier["trace"].T,
        )

    def m_steps(self, n_steps: int) -> list[int]:
        """Numbers of steps after which the priors are learned from q."""
        if not any(self.learn):
            return []
        return sorted({int(part * n_steps) for part in M_STEPS} - {0, n_steps})

    def learned(self, key: Key, guides: Guides) -> Job:
        """The M step: priors that fit q best, all starts taken together."""
        keys = random.split(key)
        priors = [
            m_step(own, guide, prior) if learn else prior
            for own, guide, prior, learn in zip(keys, guides, self.priors, self.learn, strict=True)
        ]
        return replace(self, gate_prior=priors[0], expert_prior=priors[1])

    def length(self, per_pass: int) -> int:
        r"""Number of steps: by default :math:`\max(20, 1500\,m^{-5/4})` passes of m batches.

        Little data needs steps, much data needs passes; more of either fits the bound better and
        predicts no better. Beyond 1000 batches a pass (a million rows) the passes become fewer:
        at 20,000 steps the law has long settled.
        """
        usual = min(MIN_PASSES, math.ceil(MANY_STEPS / per_pass))
        passes = self.n_passes or max(usual, math.ceil(FULL_STEPS * per_pass**-1.25))
        return passes * per_pass

    def terms(self, taus: Array) -> Terms:
        """What is maximised beside the data; the regulariser costs nothing where it is off."""
        both = self.gate_prior, self.expert_prior
        gate, experts = jax.tree.map(lambda leaf: jnp.asarray(leaf, self.dtype), both)
        if not any(self.strengths):
            return Terms(gate, experts, taus)
        strengths = jnp.asarray(self.strengths, self.dtype)
        gamma = jnp.asarray(self.gamma, self.dtype)
        return Terms(gate, experts, taus, strengths, gamma)


def m_step(key: Key, guide: Guide, prior: ComponentPrior) -> ComponentPrior:
    r"""Update :math:`\mu_0, \alpha_1, \alpha_2` of a polar prior from q; leave others alone.

    Leaves of the guide have a leading axis of starts; the update maximises the mean of their
    bounds over the prior, so at fixed q no start's share is preferred and the mean cannot fall.
    Gaussian factors have no closed form for lengths: ``M_DRAWS`` draws of each start stand for
    them.

    Paper: Appendix C, the M step.
    """
    if not isinstance(prior, PolarComponents):
        return prior
    if isinstance(guide, VmfGuide):
        return update_prior(prior, guide.factors)
    keys = random.split(key, guide.centres.shape[0])
    draws = jax.vmap(lambda one, own: one.sample(own, M_DRAWS))(guide, keys)
    return update_prior(prior, Components.from_vectors(draws))


def plain(prior: ComponentPrior, q: str) -> ComponentPrior:
    """The prior with zero concentration made explicit, once it is known that q can take it."""
    if q != "vmf" or isinstance(prior, GaussianComponents):
        return prior
    directions = getattr(prior, "directions", None)
    if not isinstance(prior, PolarComponents) or not isinstance(directions, MutualAngular):
        raise ValueError(f'{prior!r}: has no closed form under q="vmf"; use q="diagonal".')
    if not np.any(np.asarray(directions.concentration)):
        flat = MutualAngular(*prior.event_shape, 0.0, "independent")
        return PolarComponents(flat, prior.magnitude_shape, prior.magnitude_rate)
    if directions.kind == "I":
        raise ValueError(
            "kind='I' has no closed form under q=\"vmf\"; use kind='II' or q=\"diagonal\"."
        )
    return prior
