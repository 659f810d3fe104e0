"""Fitting the latent feature model: search for starts, parallel chains, checkpoints."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from wideangle.infer.stopping import FIRST, Ending, until_converged
from wideangle.latent_features.chain import Chain, Plan, begin_chain, run_chain, thinned
from wideangle.latent_features.memory import MANY_ENTRIES, MemoryRows
from wideangle.latent_features.rows import Rows
from wideangle.latent_features.settings import first_guess
from wideangle.latent_features.start import Start, find_features, nothing
from wideangle.latent_features.state import ROOMS, Design, Hyper
from wideangle.machine_code import threads_of_loops, use_threads
from wideangle.progress import COMPILING, Progress
from wideangle.types import Key

SEARCHING = "searching for features"
MAX_FEATURES = 200
"""Default limit on the number of features that a search looks for."""
POLL = 0.1
"""Seconds between two checks of the chains."""
WATCHED = ("signal",)
"""Quantities that decide how long chains run when no length is given."""
SEARCH_ENTRIES, MOST_SEARCHES = 2**20, 8
"""Entries that the first searches may read in total, and the largest number of searches."""
PATIENCE = 0.5
"""``patience`` of each of several searches of the same rows; see ``find_features``."""
CLIMB, CLIMB_GROWTH, MOST_CLIMBED = 25, 1.5, 2000
"""Sweeps whose log densities are compared before a chain begins: initial number, increment and
maximum."""
SEARCH_TIME, CLIMB_TIME = 0.5, 0.3
"""Share of the fit's time that the search may take, and of the rest that these sweeps may take."""


@dataclass(frozen=True)
class Fitted:
    """Chains and how they began."""

    chains: list[Chain]
    objectives: np.ndarray
    """Log-likelihood minus the price of the features, for each search carried to its end."""
    interrupted: bool
    ending: Ending | None = None
    """Why chains without a given length stopped."""


@dataclass(frozen=True)
class Task:
    """Everything that defines a fit."""

    design: Design
    values: Hyper
    """Values of the hyperparameters; None where they depend on the start."""
    plan: Plan
    n_chains: int
    n_jobs: int
    max_features: int
    hops: int | None
    verbose: bool | None
    checkpoint: Path | None = None
    fingerprint: str = ""
    max_time: float | None = None
    """Time limit in seconds for chains that grow as long as they need; None if their plan is
    fixed."""


def fit(
    key: Key,
    in_memory: list[MemoryRows],
    rows: list[Rows],
    task: Task,
    last: Fitted | None = None,
) -> Fitted:
    """Search for features, then run the chains.

    Searches are pooled: the best of several short ones are completed, one for each chain, and a
    chain whose start is much worse than the best begins from the best instead. Its own start would
    only show that a search can fail, which the list of objectives shows as well. When no chain
    length is given, the states that sweeps reach before the warm-up are pooled in the same way.
    Ctrl-C keeps the draws made so far; before the first draw it ends the fit.

    Parameters
    ----------
    key
        Random key of the whole fit.
    in_memory, rows
        For each chain the rows to search in, and those to sweep over.
    task
        Everything else.
    last
        An earlier fit whose chains continue.
    """
    work = _Work(jax.random.split(key, task.n_chains), in_memory, rows, task, last)
    plan, n_chains, first, ending = task.plan, task.n_chains, FIRST, None
    n_warmup, n_sweeps = n_chains * plan.n_warmup, n_chains * plan.n_sweeps
    share = max(threads_of_loops() // task.n_jobs, 1)
    with (
        # Workers share the cores, and each uses one thread for its matrix products: waiting threads
        # of one product would slow the other chains.
        threadpool_limits(1, "blas"),
        ThreadPoolExecutor(task.n_jobs, initializer=use_threads, initargs=(share,)) as pool,
        Progress(n_sweeps, n_warmup, task.verbose) as bar,
        _stopping(work.stop),
    ):

        def on_all(action: Callable[[int], Any], first: str, n: int = n_chains) -> list[Any]:
            """Run the work of every chain; ``first`` runs before the first sweep."""
            futures = [pool.submit(_on_device, work.device, action, i) for i in range(n)]

            def show() -> None:
                bar.at(sum(work.counts), None if any(work.counts) else first)

            return _attend(futures, work.stop, show)

        objectives = work.objectives
        if any(chain is None for chain in work.chains):
            found = _searched(work, on_all)
            objectives = np.array([start.objective for start in found])
            work.begin(found)
        # Save all chains before the first sweep: an unwritable folder is then reported before any
        # work is lost, and no search has to be repeated.
        work.save_all(objectives)
        bar.at(sum(work.counts), COMPILING)
        work.compile(work.chains[0])
        if task.max_time is not None and not any(work.counts):
            first = _climbed(work, on_all)
        if task.max_time is None:
            on_all(work.run, COMPILING)
        else:

            def extend(n_sweeps: int) -> dict[str, np.ndarray] | None:
                work.lengthen(n_sweeps)
                bar.total = n_chains * work.plan.n_sweeps
                on_all(work.run, COMPILING)
                return None if work.stop.is_set() else work.watched(n_sweeps)

            # Chains from files repeat their earlier checks, so they stop where they would have
            # stopped.
            ending = until_converged(
                extend,
                max_time=work.time_left,
                n_done=0 if last is None else work.n_draws,
                first=first,
            )
    if work.stop.is_set():
        return Fitted(_worth_keeping(work.chains, rows), objectives, True, ending)
    work.remove_files()
    return Fitted(work.chains, objectives, False, ending)


class _Work:
    """What the workers of a fit share; :meth:`search` and :meth:`run` are the work on one chain."""

    def __init__(
        self,
        keys: Key,
        in_memory: list[MemoryRows],
        rows: list[Rows],
        task: Task,
        last: Fitted | None,
    ) -> None:
        self.keys, self.in_memory, self.rows, self.task = keys, in_memory, rows, task
        self.plan = task.plan
        self.climbed = [0] * task.n_chains
        """Sweeps of each chain before it began."""
        self.end = time.monotonic() + (math.inf if task.max_time is None else task.max_time)
        self.device = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
        self.stop = threading.Event()
        self.files: list[Any] = []
        self.objectives = np.empty(0)
        self.compiled = 0
        self.chains: list[Any] = [None] * task.n_chains
        if task.checkpoint is not None:
            self._read_files(task.checkpoint)
        if last is not None:
            self.chains, self.objectives = [*last.chains], last.objectives
        self.counts = [0 if chain is None else chain.n_done for chain in self.chains]

    @property
    def time_left(self) -> float:
        """Seconds until the fit has to end."""
        return self.end - time.monotonic()

    def _read_files(self, folder: Path) -> None:
        from wideangle.latent_features.files import ChainCheckpoint

        self.files = [
            ChainCheckpoint(folder / f"chain-{i}", fingerprint=self.task.fingerprint)
            for i in range(self.task.n_chains)
        ]
        self.chains = [file.load_chain() for file in self.files]
        self.objectives = self.files[0].objectives

    def lengthen(self, n_sweeps: int) -> None:
        """Plan this many sweeps after warm-up."""
        self.plan = self.task.plan.lasting(n_sweeps)
        for chain in self.chains:
            thinned(chain, self.task.plan, self.plan)

    def watched(self, n_sweeps: int) -> dict[str, np.ndarray]:
        """The quantities that decide whether chains are long enough, axes (chain, draw)."""
        return {
            name: np.array([chain.trace[name][:n_sweeps] for chain in self.chains])
            for name in WATCHED
        }

    @property
    def n_draws(self) -> int:
        """Number of sweeps after warm-up that every chain has done."""
        return min(len(chain.trace.get("n_active", ())) for chain in self.chains)

    def search(self, i: int) -> Start | None:
        """A first search, without hops."""
        key = self.keys[i] if i < len(self.keys) else jax.random.fold_in(self.keys[0], i)
        return self._find(i, key, hops=0)

    def improve(self, i: int, start: Start) -> Start | None:
        """Complete a search."""
        if self.task.hops == 0:
            return start
        return self._find(i, jax.random.fold_in(self.keys[i], 1), self.task.hops, start)

    def _find(self, i: int, key: Key, hops: int | None, start: Start | None = None) -> Start | None:
        if self.stop.is_set():
            return None
        least = (1.0 - SEARCH_TIME) * (self.task.max_time or 0.0)
        return find_features(
            np.random.default_rng(np.asarray(jax.random.key_data(key)).astype(np.uint64)),
            self.in_memory[i % len(self.in_memory)],
            self.task.values.noise_variance,
            start,
            max_features=self.task.max_features,
            hops=hops,
            patience=PATIENCE if len(self.chains) > 1 else 1.0,
            stop=lambda: self.stop.is_set() or self.time_left < least,
        )

    def begin(self, starts: list[Start]) -> None:
        """Make the chains that were not read from a file."""
        best = max(starts, key=lambda start: start.objective)
        for i, start in enumerate(starts):
            if self.chains[i] is None:
                far = best.objective - start.objective > tolerance(self.in_memory[i].n_rows)
                self.chains[i] = self.chain_from(i, best if far else start, best)

    def chain_from(self, i: int, start: Start, best: Start) -> Chain:
        """A chain that begins where a search ended."""
        values, design, rows = self.task.values, self.task.design, self.in_memory[i]
        hyper = first_guess(start, values, design, rows)
        if "rate" not in design.learned:  # fitted to the best start: one model for all chains
            hyper = hyper._replace(rate=first_guess(best, values, design, rows).rate)
        return begin_chain(self.keys[i], start.features, start.assignments, hyper)

    def compile_early(self) -> None:
        """Compile the sweeps for few features while the search runs, if rows are not too many.

        For many rows the sizes of arrays depend on the number of features.
        """
        rows = self.in_memory[0]
        if self.chains[0] is None and rows.n_rows * ROOMS[0] < MANY_ENTRIES:
            none = nothing(rows, self.task.values.noise_variance)
            self.compile(self.chain_from(0, none, none))

    def compile(self, chain: Chain) -> None:
        """Compile the sweeps, unless already compiled."""
        if chain.features.room != self.compiled:
            self.compiled = chain.features.room
            self.rows[0].compile(chain.key, chain.features, self.task.design)

    def climb(self, i: int, deadline: float) -> np.ndarray:
        """Sweep until the log density no longer rises; returns its last values.

        These sweeps have their own random key, and only the state they reach is kept.
        """
        chain, rows = self.chains[i], self.rows[i]
        if self.stop.is_set():
            return np.array([-np.inf])

        def is_over() -> bool:
            return self.stop.is_set() or time.monotonic() > deadline

        pilot, n_sweeps = Chain(jax.random.fold_in(chain.key, 1), chain.features), 2 * CLIMB
        with rows.turn:
            pilot.features = rows.begin(pilot.key, pilot.features)
            while True:
                plan = Plan(CLIMB, 1, n_sweeps)
                run_chain(pilot, rows, self.task.design, plan, after=lambda _: is_over())
                pilot.draws.clear()
                reached = np.array(pilot.trace.get("log_joint", [-np.inf]))
                least = tolerance(rows.n_rows)
                if is_over() or n_sweeps >= MOST_CLIMBED or not rising(reached, least):
                    break
                n_sweeps = int(CLIMB_GROWTH * n_sweeps)
        self.chains[i], self.climbed[i] = (
            Chain(chain.key, pilot.features, pilot.tuning),
            pilot.n_done,
        )
        return reached[-max(CLIMB, len(reached) // 4) :]

    def pool(self, reached: list[np.ndarray]) -> None:
        """Restart chains that are much worse than the best from the best one's state."""
        means = np.array([values.mean() for values in reached])
        best = int(np.argmax(means))
        if not np.isfinite(means[best]):  # no time for a sweep
            return
        far = tolerance(self.rows[best].n_rows) + 2.0 * reached[best].std()
        for i in np.flatnonzero(np.isfinite(means) & (means < means[best] - far)):
            self.chains[i].features = self.chains[best].features

    def run(self, i: int) -> Chain:
        """Run a chain to its end, or until it has to stop, and save it on the way."""
        chain, rows = self.chains[i], self.rows[i]
        with rows.turn:
            if self.stop.is_set():  # before this chain started
                return chain

            def after(chain: Chain) -> bool:
                self.counts[i] = chain.n_done
                self._save(i)
                return self.stop.is_set()

            try:
                chain.features = rows.begin(chain.key, chain.features)
                return run_chain(chain, rows, self.task.design, self.plan, after=after)
            finally:
                self._save(i, now=True)

    def _save(self, i: int, *, now: bool = False) -> None:
        if self.files:
            self.files[i].save_chain(self.chains[i], now=now)

    def save_all(self, objectives: np.ndarray) -> None:
        """Write every chain, with the objectives of the searches."""
        for i, file in enumerate(self.files):
            file.objectives = objectives
            self._save(i, now=True)

    def remove_files(self) -> None:
        """Delete the checkpoint of a fit that is done, and its folder if that leaves it empty."""
        for file in self.files:
            file.remove(may_fail=True)
        folder = self.task.checkpoint
        if folder is not None and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _on_device(device: Any, action: Callable[[int], Any], i: int) -> Any:
    """Run the work of a thread on the default device of the calling thread."""
    with jax.default_device(device):
        return action(i)


@contextmanager
def _stopping(stop: threading.Event) -> Iterator[None]:
    """Stop the work on any error here, since the pool waits for it."""
    try:
        yield
    except BaseException:
        stop.set()
        raise


def _pass_on(interrupted: bool) -> None:
    """Re-raise Ctrl-C if there is no draw to keep yet."""
    if interrupted:
        raise KeyboardInterrupt("stopped before the first draw")


def _worth_keeping(chains: list[Chain], rows: list[Rows]) -> list[Chain]:
    """Chains of an interrupted fit, without those that have barely begun.

    Comparisons between chains cut them to the shortest one, so a chain with less than half of the
    draws of the longest would cost more than it adds.
    """
    lengths = [len(chain.trace.get("n_active", ())) for chain in chains]
    _pass_on(max(lengths) == 0)
    worth = []
    for chain, of_chain, n in zip(chains, rows, lengths, strict=True):
        if n > 0 and 2 * n >= max(lengths):
            if not chain.draws:
                chain.draws.append(of_chain.keep(chain.features))
            worth.append(chain)
    return worth


def _attend(work: list[Future[Any]], stop: threading.Event, show: Callable[[], None]) -> list[Any]:
    """Results of all the work; Ctrl-C or an error in any part stops all of it."""
    pending = set(work)
    while pending:
        try:
            done, pending = wait(pending, POLL, FIRST_COMPLETED)
            if any(one.exception() is not None for one in done):
                stop.set()
            show()
        except KeyboardInterrupt:
            stop.set()
    return [one.result() for one in work]


def _searched(work: _Work, on_all: Callable[..., list[Any]]) -> list[Start]:
    """Starts of the chains: the best of several searches, completed.

    They are completed even when all agree: all may have the same fault, such as a + b, -a, -b for a
    and b.
    """
    n_chains, rows = work.task.n_chains, work.rows[0]
    for one in work.in_memory:
        one.start_search()
    searches = [partial(work.search, i) for i in range(n_searches(rows, n_chains))]
    first: list[Callable[[], Any]] = [work.compile_early, *searches]
    _, *found = on_all(lambda i: first[i](), SEARCHING, len(first))
    _pass_on(work.stop.is_set())
    best = sorted(found, key=lambda start: -start.objective)[:n_chains]
    found = on_all(lambda i: work.improve(i, best[i]), SEARCHING)
    _pass_on(work.stop.is_set())
    return found


def _climbed(work: _Work, on_all: Callable[..., list[Any]]) -> int:
    """Bring the chains to where they begin; returns how many draws the first block may have."""
    began, left = time.monotonic(), work.time_left
    deadline = began + CLIMB_TIME * left
    work.pool(on_all(lambda i: work.climb(i, deadline), "improving the features"))
    _pass_on(work.stop.is_set())
    pace = (time.monotonic() - began) / max(float(np.mean(work.climbed)), 1.0)
    affordable = work.time_left / pace - work.plan.n_warmup
    return int(np.clip(affordable, work.plan.thin, FIRST))


def n_searches(rows: Rows, n_chains: int) -> int:
    """Number of first searches: more for small data."""
    affordable = min(SEARCH_ENTRIES // max(rows.n_rows * rows.dim, 1), MOST_SEARCHES)
    return max(n_chains, affordable)


def rising(values: np.ndarray, least: float) -> bool:
    """Whether the last quarter of the values exceeds the one before, by ``least`` and by noise."""
    size = max(CLIMB, len(values) // 4)
    last, before = values[-size:], values[-2 * size : -size]
    return len(before) > 0 and last.mean() - before.mean() > max(least, 0.5 * last.std())


def tolerance(n_rows: int) -> float:
    """Difference in nats below which starts count as the same: one feature costs far more."""
    return 10.0 + 0.02 * n_rows
