"""Fitting the latent feature model: starts by search, chains side by side, checkpoints."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from threadpoolctl import threadpool_limits

from wideangle.infer.progress import Progress
from wideangle.latent_features.chain import Chain, Plan, begin_chain, freeze, run_chain
from wideangle.latent_features.device_chain import run_chain_on_device
from wideangle.latent_features.rows.imputed import ImputedRows
from wideangle.latent_features.rows.memory import FeatureRows
from wideangle.latent_features.rows.parallel import share_threads
from wideangle.latent_features.sampler.design import Design
from wideangle.latent_features.search.start import Start, find_features
from wideangle.latent_features.state import Hyper
from wideangle.latent_features.store import ChainFile
from wideangle.priors.stick_breaking import Buffet
from wideangle.sharding import spread
from wideangle.types import Key

POLL = 0.1
"""Seconds between two looks at the chains."""


class Values(NamedTuple):
    """Numbers above the features, in the units of the scaled rows; None is to be found."""

    alpha: float | None
    discount: float
    strength: float
    noise_variance: float | None
    concentration: float
    rate: float | None


@dataclass(frozen=True)
class Fitted:
    """Chains and how they began."""

    chains: list[Chain]
    objectives: np.ndarray
    """Log-likelihood less the price of the features, for each start."""
    interrupted: bool


@dataclass
class Settings:
    """How long, how many, and on what."""

    plan: Plan
    n_chains: int
    n_jobs: int
    max_features: int
    hops: int | None
    checkpoint: Path | None
    fingerprint: str
    progress: bool | None
    device: bool = False
    """Run the sweeps on JAX's default device, one chain after the other."""
    mesh: Mesh | None = None
    """Or on these devices, the rows in equal parts."""


def fit(
    key: Key, make_rows: Callable[[], FeatureRows], design: Design, values: Values, how: Settings
) -> Fitted:
    """Search for features once per chain, then run the chains.

    A chain whose start is much worse than the best one begins from the best: it would only show
    that the search can fail, which the list of objectives tells as well. Ctrl-C keeps the draws
    there are; before the first one it ends the fit.
    """
    keys = jax.random.split(key, how.n_chains)
    rows = [make_rows() for _ in range(how.n_chains)]
    files = [_file(how, i) for i in range(how.n_chains)]
    job = _Job(keys, rows, files, [file.load() for file in files], design, values, how)
    n_sweeps, n_warmup = how.plan.n_sweeps, how.plan.n_warmup
    with (
        # Workers share the cores, each with one thread in its matrix products: threads of a
        # product that wait for their turn would take the time of the other chains.
        threadpool_limits(1, "blas"),
        ThreadPoolExecutor(how.n_jobs, initializer=share_threads, initargs=(how.n_jobs,)) as pool,
        Progress(how.n_chains * n_sweeps, how.n_chains * n_warmup, how.progress) as bar,
        _stopping(job.stop),
    ):

        def attend(work: list[Future[Any]]) -> list[Any]:
            return _attend(work, job.stop, lambda: bar.at(sum(job.counts)))

        objectives = files[0].objectives
        if any(chain is None for chain in job.chains):
            starts = attend([pool.submit(job.search, i) for i in range(how.n_chains)])
            _pass_on(job.stop.is_set())
            objectives = np.array([start.objective for start in starts])
            job.begin(starts)
        # All of them before the first sweep: a place that cannot be written to is told about while
        # there is nothing to lose, and no search has to be done again.
        for file, chain in zip(files, job.chains, strict=True):
            file.objectives = objectives
            file.save(chain, now=True)
        chains = attend([pool.submit(job.run, i) for i in range(how.n_chains)])
    if job.stop.is_set():
        return Fitted(_worth_keeping(chains), objectives, True)
    for file in files:
        file.remove()
    return Fitted(chains, objectives, False)


@dataclass
class _Job:
    """What the workers of a fit share; each method is the work on one chain."""

    keys: Key
    rows: list[FeatureRows]
    files: list[ChainFile]
    chains: list[Any]
    design: Design
    values: Values
    how: Settings

    def __post_init__(self) -> None:
        self.stop = threading.Event()
        self.counts = [0 if chain is None else chain.n_done for chain in self.chains]
        self._turn = threading.Lock()  # a device runs one chain at a time
        self._there: Any = None

    def search(self, i: int) -> Start | None:
        """Look for the features that a chain begins from."""
        return _search(self.keys[i], self.rows[i], self.values, self.how, self.stop.is_set)

    def begin(self, starts: list[Start]) -> None:
        """Make the chains that no file holds."""
        for i, chain in enumerate(self.chains):
            if chain is None:
                made = _begin(self.keys[i], starts, i, self.values, self.design, self.rows[i])
                self.chains[i] = made

    def run(self, i: int) -> Chain:
        """Run a chain to its end, or until it is told to stop, and save it on the way."""
        if not self.how.device:
            return self._run(i)
        with self._turn:
            return self._run(i)

    def _run(self, i: int) -> Chain:
        chain, file, plan = self.chains[i], self.files[i], self.how.plan
        if self.stop.is_set():  # before this chain had its turn
            return chain

        def after(chain: Chain) -> bool:
            self.counts[i] = chain.n_done
            file.save(chain)
            return self.stop.is_set()

        try:
            if not self.how.device:
                return run_chain(chain, self.rows[i], self.design, plan, after=after)
            if self._there is None:
                self._there = self.rows[0].on_device(self.how.mesh)
            if self.how.mesh is not None:
                used = spread(chain.features.assignments, self.how.mesh)
                chain.features = chain.features._replace(assignments=used)
            return run_chain_on_device(chain, self._there, self.design, plan, after=after)
        finally:
            file.save(chain, now=True)


@contextmanager
def _stopping(stop: threading.Event) -> Iterator[None]:
    """Ask the work to stop when anything goes wrong here: the pool waits for it."""
    try:
        yield
    except BaseException:
        stop.set()
        raise


def _pass_on(interrupted: bool) -> None:
    """Pass Ctrl-C on as long as there is no draw that could be kept."""
    if interrupted:
        raise KeyboardInterrupt("stopped before the first draw")


def _worth_keeping(chains: list[Chain]) -> list[Chain]:
    """Chains of an interrupted fit, without those that have hardly begun.

    What is compared between chains is cut to the shortest of them, so chains with less than half
    of the draws of the longest would cost more than they bring.
    """
    lengths = [len(chain.trace.get("n_active", ())) for chain in chains]
    _pass_on(max(lengths) == 0)
    kept = [
        chain for chain, n in zip(chains, lengths, strict=True) if n > 0 and 2 * n >= max(lengths)
    ]
    for chain in kept:
        if not chain.kept:
            chain.kept.append(freeze(chain.features))
    return kept


def _attend(work: list[Future[Any]], stop: threading.Event, show: Callable[[], None]) -> list[Any]:
    """Results of all of the work; Ctrl-C asks it to stop, an error elsewhere too."""
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


def _search(
    key: Key, rows: FeatureRows, values: Values, how: Settings, stop: Callable[[], bool]
) -> Start | None:
    if stop():
        return None
    if isinstance(rows, ImputedRows):
        rows.fill_with_means()
    seed = np.asarray(jax.random.key_data(key)).astype(np.uint64)
    rng = np.random.default_rng(seed)
    return find_features(
        rng, rows, values.noise_variance, max_features=how.max_features, hops=how.hops, stop=stop
    )


def _begin(
    key: Key, starts: list[Start], index: int, values: Values, design: Design, rows: FeatureRows
) -> Chain:
    best = max(starts, key=lambda start: start.objective)
    start = starts[index]
    if best.objective - start.objective > tolerance(rows.n_rows):
        start = best
    hyper = first_guess(start, values, design, rows)
    if "rate" not in design.learned:  # fixed at what fits the best start: one model for all chains
        hyper = hyper._replace(rate=first_guess(best, values, design, rows).rate)
    return begin_chain(key, start.features, start.assignments, hyper, design)


def tolerance(n_rows: int) -> float:
    """Nats by which starts may differ and count as the same: one feature costs far more."""
    return 10.0 + 0.02 * n_rows


def first_guess(start: Start, values: Values, design: Design, rows: FeatureRows) -> Hyper:
    """Hyperparameters to begin with; those that are learned fit the start."""
    n_features = len(start.features)
    harmonic = np.sum(1.0 / np.arange(1, rows.n_rows + 1))
    lengths = np.linalg.norm(start.features, axis=1)
    rate = values.rate
    if rate is None and design.features == "gaussian":
        rate = (n_features * rows.dim + 1.0) / (float(np.sum(lengths**2)) + 1.0)
    elif rate is None:
        shape = design.magnitude_shape
        rate = (shape * n_features + design.rate.shape) / (lengths.sum() + design.rate.rate)
    alpha = max(n_features, 1) / harmonic if values.alpha is None else values.alpha
    noise = start.noise_variance if values.noise_variance is None else values.noise_variance

    def number(value: float) -> jax.Array:
        return jnp.asarray(value, jnp.result_type(float))

    buffet = Buffet(*map(number, (alpha, values.discount, values.strength)))
    return Hyper(buffet, *map(number, (max(noise, 1e-8), values.concentration, rate)))


def _file(how: Settings, index: int) -> ChainFile:
    folder = how.checkpoint
    path = None if folder is None else folder / f"chain-{index}.safetensors"
    return ChainFile(path, how.fingerprint)


def n_workers(n_jobs: int | None, n_chains: int) -> int:
    """Chains run at once: all cores unless told otherwise."""
    cores = os.cpu_count() or 1
    if n_jobs is None or n_jobs == 0:
        wanted = cores
    else:
        wanted = n_jobs if n_jobs > 0 else max(cores + 1 + n_jobs, 1)
    return max(1, min(wanted, n_chains))
