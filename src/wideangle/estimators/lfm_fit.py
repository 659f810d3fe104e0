"""Fitting the latent feature model: starts by search, chains side by side, checkpoints."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.estimators.lfm_chain import Chain, Plan, begin_chain, run_chain
from wideangle.estimators.lfm_design import Design
from wideangle.estimators.lfm_start import Start, find_features
from wideangle.estimators.lfm_store import ChainFile
from wideangle.infer.progress import Progress
from wideangle.models.feature_rows import FeatureRows
from wideangle.models.imputed_rows import ImputedRows
from wideangle.models.latent_features import Hyper
from wideangle.priors.stick_breaking import Buffet
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


def fit(
    key: Key, make_rows: Callable[[], FeatureRows], design: Design, values: Values, how: Settings
) -> Fitted:
    """Search for features once per chain, then run the chains.

    A chain whose start is much worse than the best one begins from the best: it would only show
    that the search can fail, which the list of objectives tells as well.
    """
    stop = threading.Event()
    files = [_file(how, i) for i in range(how.n_chains)]
    keys = jax.random.split(key, how.n_chains)
    rows = [make_rows() for _ in range(how.n_chains)]
    chains: list[Any] = [
        None if file is None else file.load(r) for file, r in zip(files, rows, strict=True)
    ]
    counts = [0] * how.n_chains
    n_sweeps = how.plan.n_sweeps
    with (
        ThreadPoolExecutor(how.n_jobs) as pool,
        Progress(how.n_chains * n_sweeps, how.n_chains * how.plan.n_warmup, how.progress) as bar,
    ):
        objectives = np.full(how.n_chains, np.nan)
        if any(chain is None for chain in chains):
            work = [
                pool.submit(_search, k, r, values, how) for k, r in zip(keys, rows, strict=True)
            ]
            _attend(work, stop, lambda: bar.at(0))
            if stop.is_set():
                raise KeyboardInterrupt
            starts = [one.result() for one in work]
            objectives = np.array([start.objective for start in starts])
            chains = [
                chain or _begin(k, starts, i, values, design, r)
                for i, (k, chain, r) in enumerate(zip(keys, chains, rows, strict=True))
            ]

        def run(i: int) -> Chain:
            file = files[i]

            def after(chain: Chain) -> bool:
                counts[i] = chain.n_done
                if file is not None:
                    file.save(chain, rows[i])
                return stop.is_set()

            if file is not None:
                file.save(chains[i], rows[i], now=True)
            try:
                return run_chain(chains[i], rows[i], design, how.plan, after=after)
            finally:
                if file is not None:
                    file.save(chains[i], rows[i], now=True)

        work = [pool.submit(run, i) for i in range(how.n_chains)]
        _attend(work, stop, lambda: bar.at(sum(counts)))
        chains = [one.result() for one in work]
    if not all(chain.kept for chain in chains):
        raise KeyboardInterrupt
    if not stop.is_set():
        for file in files:
            if file is not None:
                file.remove()
    return Fitted(chains, objectives, stop.is_set())


def _attend(work: list[Future[Any]], stop: threading.Event, show: Callable[[], None]) -> None:
    """Wait for all of the work; Ctrl-C asks it to stop, an error elsewhere too."""
    pending = set(work)
    while pending:
        try:
            done, pending = wait(pending, POLL, FIRST_COMPLETED)
            show()
        except KeyboardInterrupt:
            stop.set()
            continue
        if any(one.exception() is not None for one in done):
            stop.set()


def _search(key: Key, rows: FeatureRows, values: Values, how: Settings) -> Start:
    if isinstance(rows, ImputedRows):
        rows.fill_with_means()
    seed = np.asarray(jax.random.key_data(key)).astype(np.uint64)
    rng = np.random.default_rng(seed)
    return find_features(
        rng, rows, values.noise_variance, max_features=how.max_features, hops=how.hops
    )


def _begin(
    key: Key, starts: list[Start], index: int, values: Values, design: Design, rows: FeatureRows
) -> Chain:
    best = max(starts, key=lambda start: start.objective)
    start = starts[index]
    if best.objective - start.objective > tolerance(rows.n_rows):
        start = best
    hyper = first_guess(start, values, design, rows)
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


def _file(how: Settings, index: int) -> ChainFile | None:
    if how.checkpoint is None:
        return None
    return ChainFile(how.checkpoint / f"chain-{index}.safetensors", how.fingerprint)


def n_workers(n_jobs: int | None, n_chains: int) -> int:
    """Chains run at once: all cores unless told otherwise."""
    cores = os.cpu_count() or 1
    if n_jobs is None or n_jobs == 0:
        wanted = cores
    else:
        wanted = n_jobs if n_jobs > 0 else max(cores + 1 + n_jobs, 1)
    return max(1, min(wanted, n_chains))
