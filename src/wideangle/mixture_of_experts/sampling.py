"""Sampling the posterior of a mixture of experts: starts, warm-up, and chains that can go on.

The moves are those of ``whitened.py`` (the default) or ``polar.py``. In all of them the choice of
expert is summed out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from wideangle.infer.program import on_cpu
from wideangle.infer.run import Run, run_many
from wideangle.infer.stopping import until_all_converged
from wideangle.mixture_of_experts.coordinates import (
    Point,
    Priors,
    Problem,
    Sampler,
    Setting,
    as_weights,
    flat_experts,
    point_of,
    scales_of,
    weights_of,
)
from wideangle.mixture_of_experts.data import Data, for_sampling, sample, scattered, shard
from wideangle.mixture_of_experts.likelihood import ExpertLikelihood, Pair, Weights
from wideangle.mixture_of_experts.polar import geodesic, metropolis
from wideangle.mixture_of_experts.pooling import continued, ends, pool
from wideangle.mixture_of_experts.predict import trace
from wideangle.mixture_of_experts.sparse import on_host
from wideangle.mixture_of_experts.task import Fitted, Task, arrays_of, checkpoint_of
from wideangle.mixture_of_experts.whitened import Typical, fisher_whitening, hmc, refine
from wideangle.posterior import Draws, evenly
from wideangle.priors.learning import update_prior
from wideangle.settings import AUTO
from wideangle.sharding import current_mesh
from wideangle.storage import Checkpoint
from wideangle.types import Components, Key

SAMPLERS = {"hmc": hmc(), "geodesic": geodesic(), "metropolis": metropolis()}
N_WARMUP = 500
"""Default number of steps before the first draw."""
MAX_TIME = 120.0
"""Default time limit in seconds, for chains that choose their own length."""
MAX_BYTES = 2**30
"""Memory of the draws of such a fit."""
FISHER_ROWS = 4096
"""Most rows that the information is summed over; beyond that, a random sample of them."""
N_TYPICAL = 8
"""Points of each chain over which the information is averaged."""


def fit(key: Key, task: Task, data: Data) -> Fitted:
    """Draws from the posterior, by chains."""
    rows = for_sampling(data, task.priors.gate.n_components)
    return fit_mcmc(key, task, rows, checkpoint=checkpoint_of(key, task, arrays_of(data)))


def fit_mcmc(
    key: Key,
    task: Task,
    data: Data,
    *,
    start: Point | None = None,
    checkpoint: Checkpoint | None = None,
) -> Fitted:
    """Run the chains: two stages of warm-up, then draws.

    The first stage goes from the start to typical points. There chains in modes of little mass
    begin anew, the coordinates are whitened again, and learned priors are updated (the paper's EM,
    one M step). The second stage tunes the step for the draws, each the last of ``thin`` steps.
    Only the second is saved to ``checkpoint``: the first depends on the key alone and is repeated
    bit for bit.
    """
    starts = None if start is None else [start]
    return fit_many([key], [task], [data], starts=starts, checkpoint=checkpoint)[0]


def fit_many(
    keys: Sequence[Key],
    tasks: Sequence[Task],
    data: Sequence[Data],
    *,
    starts: Sequence[Point] | None = None,
    checkpoint: Checkpoint | None = None,
) -> list[Fitted]:
    """:func:`fit_mcmc` for several data sets of one shape at once, by one program.

    Each has its own key, priors, whitening and step sizes. Inference, expert and the structure of
    priors are those of the first for all. Only a single fit can have a checkpoint.
    """
    began = time.monotonic()
    chosen = tasks[0].inference
    problems = [Problem(t.priors, t.expert, d) for t, d in zip(tasks, data, strict=True)]
    n_warmup = N_WARMUP if chosen.n_warmup is None else chosen.n_warmup
    # Axes: start, first stage, second stage; data set.
    key_start, key_first, key_second = zip(*(jax.random.split(key, 3) for key in keys), strict=True)
    if starts is None:
        starts = [_starts(*one, chosen.n_chains) for one in zip(key_start, problems, strict=True)]
    stage = partial(
        _stage,
        SAMPLERS[chosen.kernel or "hmc"],
        some=[sample(0, one, FISHER_ROWS) for one in data],
        placed=[_placed(one) for one in data],
        n_chains=chosen.n_chains,
        verbose=tasks[0].verbose,
    )
    n_first, earlier, alike, restarted = n_warmup // 2, None, False, [0] * len(data)
    typical = [
        _typical_of(one.priors, start, one.expert)
        for one, start in zip(problems, starts, strict=True)
    ]
    if n_first:
        begin = stage(key_first, starts, typical, problems)
        first = begin(n_warmup=n_first, n_draws=max(n_first // 2, 1))
        _stop_if(first[0].interrupted)
        pools = [pool(one.priors, run.draws) for one, run in zip(problems, first, strict=True)]
        earlier = [continued(run.draws, one) for run, one in zip(first, pools, strict=True)]
        typical = [_thinned(draws) for draws in earlier]
        problems = [
            one._replace(priors=learn_priors(one.priors, draws.values["weights"], task.learn))
            for one, draws, task in zip(problems, earlier, tasks, strict=True)
        ]
        # One program for all data sets: experts are numbered alike in all of them, or in none.
        alike, restarted = all(one.together for one in pools), [one.n_new for one in pools]
        starts = [
            _points_of(one.priors, ends(run.draws.values["weights"], pooled))
            for one, run, pooled in zip(problems, first, pools, strict=True)
        ]
    counts = {"n_warmup": n_warmup - n_first, "thin": chosen.thin or 1}
    second = stage(key_second, starts, typical, problems, earlier, alike=alike)
    chains = Chains(second, counts, problems, restarted)
    return draw(chains, tasks[0], began=began, checkpoint=checkpoint)


class Chains:
    """Chains after the first stage of warm-up, and the draws they have made so far."""

    def __init__(
        self,
        stage: Callable[..., list[Run]],
        counts: dict[str, int],
        problems: list[Problem],
        restarted: list[int],
    ) -> None:
        self.problems, self.restarted = problems, restarted
        self._stage, self._counts = stage, counts
        empty = stage(n_warmup=0, n_draws=0)
        self._template = empty[0].state, empty[0].draws
        self._states: list[Any] | None = None
        self.draws, self._loaded = [one.draws for one in empty], 0
        self.acceptance: list[dict[str, float]] = [{} for _ in problems]
        self.interrupted = False

    def load(self, checkpoint: Checkpoint) -> None:
        """Continue from the checkpoint."""
        found = checkpoint.load(self._template)
        if found is not None:
            self._states, self.draws = [found[0]], [found[1]]
            self._loaded = found[1].n_draws

    def extend(
        self, n_draws: int, which: Sequence[int] | None = None, checkpoint: Checkpoint | None = None
    ) -> None:
        """Run chains until they have this many draws, unless the user stops them.

        On a CPU those of the data sets at the places ``which``; a device runs the others along.
        """
        kept = range(len(self.problems)) if which is None else which
        run = kept if on_cpu() else range(len(self.problems))
        earlier = self.draws[0]

        def save(state: Any, later: Draws) -> None:
            assert checkpoint is not None
            checkpoint(state, earlier.followed_by(later).since(self._loaded))

        found = self._stage(
            **self._counts,
            n_draws=n_draws,
            resume=self._states,
            which=run,
            on_chunk=None if checkpoint is None else save,
        )
        states = self._states or [one.state for one in found]
        for i, one in zip(run, found, strict=True):
            states[i] = one.state
            if i in kept:
                self.draws[i] = self.draws[i].followed_by(one.draws)
                self.acceptance[i] = one.acceptance
        self._states, self.interrupted = states, found[0].interrupted


def draw(
    chains: Chains, task: Task, *, began: float, checkpoint: Checkpoint | None = None
) -> list[Fitted]:
    """As many draws as set, or as predictions need."""
    chosen, n_sets = task.inference, len(chains.problems)
    endings, n_done = None, chains.draws[0].n_draws
    if checkpoint is not None:
        chains.load(checkpoint)
    with checkpoint or nullcontext():
        if chosen.n_draws != AUTO:
            chains.extend(chosen.n_draws, checkpoint=checkpoint)
        else:
            limit = MAX_TIME if chosen.max_time is None else chosen.max_time
            endings = until_all_converged(
                partial(_extend_and_watch, chains, checkpoint),
                n_sets,
                max_time=limit - (time.monotonic() - began) / n_sets,
                n_done=n_done,
                most=_most_draws(chains.problems[0], chosen.n_chains * n_sets),
            )
    if checkpoint is not None and not chains.interrupted:
        checkpoint.remove(may_fail=True)  # no longer needed
    _stop_if(min(draws.n_draws for draws in chains.draws) == 0)
    fits = []
    for i, problem in enumerate(chains.problems):
        notes: dict[str, Any] = {
            "acceptance": chains.acceptance[i],
            "interrupted": chains.interrupted,
            "restarted": chains.restarted[i],
        }
        if endings is not None:
            notes["ending"] = endings[i]._asdict()
        fits.append(Fitted(chains.draws[i], problem.priors, notes, chains))
    return fits


def _extend_and_watch(
    chains: Chains, checkpoint: Checkpoint | None, n_draws: int, which: list[int]
) -> list[dict[str, np.ndarray]] | None:
    """Extend the chains and return the quantities that predictions need, to judge their length.

    Chains from a file may have more draws: earlier checks are repeated, so that they stop where
    they would have stopped.
    """
    if n_draws > chains.draws[which[0]].n_draws:
        chains.extend(n_draws, which, checkpoint)
    if chains.interrupted:
        return None
    seen = []
    for i in which:
        problem = chains.problems[i]
        found = trace(problem.expert, chains.draws[i], problem.data.rows)
        seen.append({name: found.values[name][:, :n_draws] for name in found.needed or ()})
    return seen


def _most_draws(problem: Problem, n_chains: int) -> int:
    """Largest number of draws per chain that fit into the memory limit."""
    n, p = problem.priors.gate.n_components, problem.priors.gate.dim
    return max(MAX_BYTES // (4 * n_chains * n * p * (1 + problem.expert.n_outputs)), 2)


def _placed(data: Data) -> Data:
    """Data as arguments of compiled programs: sparse rows stay on the host."""
    if sp.issparse(data.rows):
        return on_host(data)
    mesh = current_mesh()
    return data if mesh is None else shard(data, mesh)


def _stop_if(interrupted: bool) -> None:
    """Re-raise Ctrl-C if there is no draw to keep yet."""
    if interrupted:
        raise KeyboardInterrupt("stopped before the first draw")


def _stage(
    method: Sampler,
    keys: Sequence[Key],
    starts: Sequence[Point],
    typical: Sequence[Typical],
    problems: Sequence[Problem],
    draws: Sequence[Draws] | None = None,
    *,
    alike: bool = False,
    some: Sequence[Data],
    placed: Sequence[Data],
    **options: Any,
) -> Callable[..., list[Run]]:
    """Chains with given starts, ready to run; see :func:`wideangle.infer.run`."""
    settings, entered = [], []
    for i, problem in enumerate(problems):
        with threadpool_limits(1, "blas"):  # or the draws depend on the number of threads
            whitening = _whitening(problem.priors, typical[i], problem.expert, some[i])
            if draws is not None:
                whitening = _refine(whitening, problem.priors, draws[i].values, alike)
            setting = Setting(problem._replace(data=placed[i]), jax.block_until_ready(whitening))
        empty = Setting(problem._replace(data=None), whitening)  # pyright: ignore[reportArgumentType]
        settings.append(setting)
        entered.append(_enter(method.enter, starts[i], empty))

    def go(*, which: Iterable[int] | None = None, resume: Any = None, **more: Any) -> list[Run]:
        chosen = range(len(problems)) if which is None else which
        known = [
            None if part is None else [part[i] for i in chosen]
            for part in (keys, entered, settings, resume)
        ]
        return run_many(
            known[0],
            method.recipe,
            known[1],
            data=known[2],
            resume=known[3],
            steps=method.steps,
            targets=method.targets,
            collect=method.collect,
            **options,
            **more,
        )

    return go


_whitening = jax.jit(fisher_whitening, static_argnums=2)
_refine = jax.jit(refine, static_argnums=3)


@partial(jax.jit, static_argnums=0)
def _enter(enter: Callable[..., Any], start: Point, setting: Setting) -> Any:
    return jax.vmap(lambda x: enter(x, setting))(start)


def _starts(key: Key, problem: Problem, n_chains: int) -> Point:
    """Experts scattered around a single expert for all rows, gates around 0."""
    shape = n_chains, problem.priors.gate.n_components
    centre = problem.expert.start(problem.data)
    gate, experts = scattered(key, centre, problem.data, *shape)
    weights = as_weights(gate, experts, problem.expert.n_outputs)
    return _points_of(problem.priors, weights)


@jax.jit
def _points_of(priors: Priors, weights: Weights) -> Point:
    return jax.vmap(partial(point_of, priors))(weights)


@partial(jax.jit, static_argnums=2)
def _typical_of(priors: Priors, points: Point, expert: ExpertLikelihood) -> Typical:
    """The starts as typical points; as many as later, so that one program serves both."""
    found = jax.vmap(lambda x: Typical(weights_of(priors, x, expert), scales_of(priors, x)))(points)
    return jax.tree.map(lambda leaf: jnp.repeat(leaf, N_TYPICAL, axis=0), found)


def _thinned(draws: Draws) -> Typical:
    """A few draws of each chain."""
    chosen = evenly(draws.n_draws, N_TYPICAL)
    parts = draws.values["weights"], draws.values.get("scales", {})
    return Typical(*jax.tree.map(lambda leaf: np.concatenate(leaf[:, chosen]), parts))


def learn_priors(priors: Priors, weights: Weights, learn: Pair[bool]) -> Priors:
    """M step for the learned priors, which are polar, from draws of the weights."""
    if not any(learn):
        return priors
    vectors = jnp.asarray(weights.gate), flat_experts(jnp.asarray(weights.experts))
    return Pair(
        *(
            update_prior(prior, Components.from_vectors(draws)) if wanted else prior
            for prior, draws, wanted in zip(priors, vectors, learn, strict=True)
        )
    )
