"""The loop: warm-up, tuning, chains, draws, and how a run is stopped and continued.

Chains of a group are vmapped. Rounds run inside compiled chunks; between chunks the host stores
draws, moves the progress bar and notices Ctrl-C. The random numbers of an iteration come from
``fold_in(chain key, iteration)``, so neither the chunk size nor an interruption changes a single
bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.checks import warn
from wideangle.infer.kernel import DualAveraging
from wideangle.infer.program import (
    Program,
    Recipe,
    RunState,
    compiled,
    divided,
    groups_for,
    together,
)
from wideangle.posterior import Draws
from wideangle.progress import Progress
from wideangle.sharding import in_company
from wideangle.types import Key, Latents

CHUNK_SECONDS = 0.5
"""Target seconds per chunk: short enough for a smooth bar, long enough for no overhead."""


@dataclass(frozen=True)
class Run:
    """Draws of a run, with its final state and statistics."""

    draws: Draws
    """Values and statistics per draw, axes ``(chain, draw, ...)``."""
    state: RunState
    """Final state; pass it as ``resume`` to continue."""
    steps: dict[str, float]
    """Step sizes after tuning, mean over the groups of chains."""
    interrupted: bool
    """True when Ctrl-C ended the run early."""

    @property
    def acceptance(self) -> dict[str, float]:
        """Mean acceptance of each block after warm-up."""
        stats = self.draws.stats
        return {name: float(np.mean(info.acceptance)) for name, info in stats.items()}

    @property
    def evaluations(self) -> dict[str, int]:
        """Density or gradient evaluations of each block after warm-up, all chains."""
        return {name: int(np.sum(info.evaluations)) for name, info in self.draws.stats.items()}

    @property
    def divergences(self) -> dict[str, int]:
        """Number of divergent trajectories of each block after warm-up."""
        return {name: int(np.sum(info.divergent)) for name, info in self.draws.stats.items()}


def run(
    key: Key,
    recipe: Recipe,
    initial: Latents | Callable[[Key], Latents],
    *,
    n_warmup: int,
    n_draws: int,
    n_chains: int = 4,
    steps: Mapping[str, float] | None = None,
    targets: Mapping[str, float] | None = None,
    data: Any = None,
    collect: Callable[..., Any] | None = None,
    thin: int = 1,
    verbose: bool | None = None,
    bar: Progress | None = None,
    on_chunk: Callable[[RunState, Draws], None] | None = None,
    resume: RunState | None = None,
    chunk: int | None = None,
) -> Run:
    """Run chains of a recipe.

    Parameters
    ----------
    key
        Random key.
    recipe
        ``steps -> update``, see :func:`wideangle.infer.kernel.sweep`.
    initial
        Latents with a leading chain axis, or a function ``key -> latents`` of one chain.
    n_warmup, n_draws, n_chains
        Iterations of warm-up, draws kept per chain, chains.
    steps
        First guess of every named step size.
    targets
        Target acceptance of the steps to tune in warm-up; each must be the name of a step and
        of a block. Steps without a target stay fixed.
    data
        Any pytree of arrays, handed to ``recipe(steps, data)`` and ``collect(latents, data)``.
        Unlike data that the recipe closes over, another data set of the same shape needs no
        new compilation.
    collect
        ``latents -> what to keep of a draw``; all of it by default.
    thin
        Iterations per draw.
    verbose
        True or False to force or forbid a bar; None shows one on a terminal.
    bar
        An open bar for several runs, each of which resumes the one before; used instead.
    on_chunk
        Called as ``on_chunk(state, draws)`` between chunks, with everything needed to save.
    resume
        State of an earlier run of the same recipe; only the draws after it are returned
        (:meth:`Draws.followed_by` joins them). ``initial`` is ignored.
    chunk
        Rounds per compiled chunk; by default as many as fit into half a second.

    Notes
    -----
    Ctrl-C ends the run at the last chunk, keeps its draws, warns, and sets ``interrupted``.
    """
    return run_many(
        [key], recipe, [initial], data=[data], resume=None if resume is None else [resume],
        n_warmup=n_warmup, n_draws=n_draws, n_chains=n_chains, steps=steps, targets=targets,
        collect=collect, thin=thin, verbose=verbose, bar=bar, on_chunk=on_chunk, chunk=chunk,
    )[0]  # fmt: skip


def run_many(
    keys: Sequence[Key],
    recipe: Recipe,
    initial: Sequence[Latents | Callable[[Key], Latents]],
    *,
    n_warmup: int,
    n_draws: int,
    n_chains: int = 4,
    steps: Mapping[str, float] | None = None,
    targets: Mapping[str, float] | None = None,
    data: Sequence[Any],
    collect: Callable[..., Any] | None = None,
    thin: int = 1,
    verbose: bool | None = None,
    bar: Progress | None = None,
    on_chunk: Callable[[RunState, Draws], None] | None = None,
    resume: Sequence[RunState] | None = None,
    chunk: int | None = None,
) -> list[Run]:
    """:func:`run` for several data sets of one shape at once, each with its own step sizes.

    Parameters
    ----------
    keys, initial, data, resume
        As in :func:`run`, one for each data set.
    n_warmup, n_draws, n_chains, steps, targets, collect, thin, verbose, bar, chunk
        As in :func:`run`, the same for all.
    on_chunk
        As in :func:`run`, with state and draws of the chains of all data sets.
    """
    steps, targets = dict(steps or {}), dict(targets or {})
    if unknown := targets.keys() - steps.keys():
        raise ValueError(f"targets for unknown steps: {sorted(unknown)}")
    if resume is None:
        each = [_begin(*pair, steps, n_chains) for pair in zip(keys, initial, strict=True)]
    else:
        each = [jax.tree.map(_strong, one) for one in resume]
    state = together(each)
    program = compiled(recipe, state, targets, collect or _everything, data)
    store = _Store(program.shapes, state, n_warmup, n_draws, thin)
    shown = Progress(store.n_rounds, n_warmup, verbose) if bar is None else nullcontext(bar)
    placed = program.place(data)
    state, interrupted = _loop(program, placed, state, store, shown, on_chunk, chunk)
    if interrupted:
        message = f"interrupted: {store.count} of {store.capacity} draws per chain are there"
        warn(message, RuntimeWarning)
    return [
        _run_of(*parts, interrupted)
        for parts in zip(divided(state, len(each)), _divided(store.draws(), len(each)), strict=True)
    ]


def _run_of(state: RunState, draws: Draws, interrupted: bool) -> Run:
    steps = {n: float(np.mean(np.exp(one.log_average))) for n, one in state.tuning.items()}
    return Run(draws, state, steps, interrupted)


def _begin(
    key: Key, initial: Latents | Callable[[Key], Latents], steps: Mapping[str, float], n_chains: int
) -> RunState:
    key_chains, key_initial = jax.random.split(key)
    keys = jax.random.bits(key_chains, (n_chains, 2), jnp.uint32)
    if callable(initial):
        latents = jax.vmap(initial)(jax.random.split(key_initial, n_chains))
    else:
        latents = initial
    latents = jax.tree.map(_strong, latents)
    for leaf in jax.tree.leaves(latents):
        if leaf.shape[:1] != (n_chains,):
            raise ValueError(
                f"initial latents need a leading axis of {n_chains} chains, got {leaf.shape}"
            )
    n_groups = groups_for(n_chains)

    def of_groups(leaf: Any) -> np.ndarray:
        leaf = np.asarray(_strong(leaf))
        return np.broadcast_to(leaf, (n_groups, *leaf.shape))

    tuning = {
        name: jax.tree.map(of_groups, DualAveraging.start(step)) for name, step in steps.items()
    }
    return RunState(latents, tuning, jnp.zeros((), jnp.int32), keys)


def _strong(leaf: Any) -> Any:
    """An array with a definite dtype: that of a Python number would change in the loop."""
    if isinstance(leaf, np.ndarray) and leaf.dtype == jax.dtypes.canonicalize_dtype(leaf.dtype):
        return leaf  # unchanged: nothing is compiled
    leaf = jnp.asarray(leaf)
    return jnp.asarray(leaf, leaf.dtype)


def _divided(draws: Draws, n_sets: int) -> list[Draws]:
    """The draws of each data set; views, not copies."""
    size = draws.n_chains // n_sets
    return [
        jax.tree.map(lambda leaf, i=i: leaf[i * size : (i + 1) * size], draws)
        for i in range(n_sets)
    ]


def _everything(latents: Latents, *_: Any) -> Latents:
    return latents


class _Store:
    """Draws on the host, in arrays that are allocated once.

    Rounds are counted: one is one iteration of warm-up, or the ``thin`` iterations of one draw.
    """

    def __init__(
        self, shapes: Any, state: RunState, n_warmup: int, n_draws: int, thin: int
    ) -> None:
        self.n_warmup, self.thin, self.n_rounds = n_warmup, thin, n_warmup + n_draws
        self._earlier = self.draws_of(state)
        self.capacity = n_draws - self._earlier
        self.count = 0
        leading = state.keys.shape[0], self.capacity
        self._arrays = jax.tree.map(lambda s: np.empty((*leading, *s.shape), s.dtype), shapes)

    def add(self, chunk: Any, n_warm: int, n_rounds: int) -> None:
        """Store rounds ``n_warm`` to ``n_rounds`` of a chunk; the earlier ones are warm-up."""
        new = slice(self.count, self.count + n_rounds - n_warm)
        if new.start == new.stop:
            return

        def put(array: np.ndarray, values: jax.Array) -> None:
            array[:, new] = np.asarray(values)[n_warm:n_rounds].swapaxes(0, 1)

        jax.tree.map(put, self._arrays, chunk)
        self.count = new.stop

    def draws(self) -> Draws:
        """The draws so far; views, not copies."""
        return Draws(*jax.tree.map(lambda array: array[:, : self.count], self._arrays))

    def draws_of(self, state: RunState) -> int:
        """Draws of each chain up to a state, those of earlier runs among them."""
        return max(int(state.iteration) - self.n_warmup, 0) // self.thin

    def rounds_of(self, state: RunState) -> int:
        """Rounds up to a state."""
        return min(int(state.iteration), self.n_warmup) + self.draws_of(state)

    def keep_up_to(self, state: RunState) -> None:
        """Forget draws that were stored after a state."""
        self.count = self.draws_of(state) - self._earlier


def _loop(
    program: Program,
    placed: list[Any],
    state: RunState,
    store: _Store,
    shown: AbstractContextManager[Progress],
    on_chunk: Callable[[RunState, Draws], None] | None,
    chunk: int | None,
) -> tuple[RunState, bool]:
    """Chunks until all draws are there or the user stops it."""
    largest = min(program.n_rounds, chunk or program.n_rounds)
    size = chunk or 1
    done, n_rounds, n_warmup = store.rounds_of(state), store.n_rounds, store.n_warmup
    first = True
    try:
        with shown as bar, in_company():
            if done < n_rounds and not program.is_compiled:
                bar.compiling()
            while done < n_rounds:
                limit = min(size, largest, n_rounds - done)
                began = time.monotonic()
                moved, values = program.advance(placed, state, limit, n_warmup, store.thin)
                jax.block_until_ready(moved)
                n_warm = min(max(n_warmup - done, 0), limit)
                store.add(values, n_warm, limit)
                state, done = moved, done + limit
                if chunk is None and not first:  # the first chunk includes compilation
                    pace = (time.monotonic() - began) / limit
                    size = max(1, min(4 * size, int(CHUNK_SECONDS / max(pace, 1e-9))))
                first = False
                bar.at(done)
                if on_chunk is not None:
                    on_chunk(state, store.draws())
    except KeyboardInterrupt:
        # Ctrl-C may have come after the draws were stored and before the state was.
        store.keep_up_to(state)
        return state, True
    return state, False
