"""The latent feature model: the cost of a sweep, and of means of new rows.

A sweep cannot be cheaper than the products that every sampler of the model needs: rows with
features, and assignments with features or rows. They are timed alternately with the sweep.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from wideangle.latent_features.chain import Chain, Plan, begin_chain, run_chain
from wideangle.latent_features.memory import MemoryRows
from wideangle.latent_features.posterior import N_DRAWS
from wideangle.latent_features.score import expected_rows
from wideangle.latent_features.settings import design_of, first_guess, learn_scaling
from wideangle.latent_features.start import Start
from wideangle.latent_features.state import Features, with_room
from wideangle.settings import IndianBuffet, MutualAngularPrior
from wideangle_lab import datasets
from wideangle_lab.bench import feature_quality
from wideangle_lab.bench.harness import Settings, Size, in_turns
from wideangle_lab.bench.record import OURS, Case, Series

ON_ALL_CORES = ", products on all cores"
PRODUCTS, TWO_SECONDS, HALF_SECOND = "its two matrix products", "two seconds", "half a second"
TIMES_FLOOR = 5.0
"""Largest allowed time of a sweep, in units of its products."""
SECONDS = 2.0
"""Largest allowed seconds of a sweep on 20-News with 300 features."""
WARM = 3
"""Untimed sweeps at the start, which compile."""
ENDLESS = Plan()._replace(n_warmup=0, n_draws=10**9)
"""Keeps as many states as a fit with default settings."""
DENSITY = 0.01


N_NEW = 1000
"""New rows whose means are computed."""
DENSE, SMALL = Size(5000, 200, 30), Size(600, 40, 6)
NEWS, SMALL_NEWS = Size(18_846, 5000, 300), Size(600, 200, 20)


def measure(settings: Settings) -> list[Case]:
    """Sweeps, and what a fitted model does with new rows."""
    return [*dense_sweep(settings), means_of_rows(settings), *sparse_sweep(settings)]


class Sweeper:
    """A chain that does one sweep from given features at every call."""

    def __init__(
        self, X: Any, features: np.ndarray, assignments: np.ndarray, noise_scale: Any, seed: int
    ) -> None:
        scaling = learn_scaling(X, standardise=sp.issparse(X))
        self.rows = MemoryRows(*scaling.apply(X))
        self.design, values = design_of(
            MutualAngularPrior(), IndianBuffet(), noise_scale, X.shape, scaling.scale
        )
        assert values.noise_variance is not None  # given, not learned: the steps are the same
        start = Start(features / scaling.scale, assignments, values.noise_variance, 0.0)
        hyper = first_guess(start, values, self.design, self.rows)
        key = jax.random.key(seed, impl="threefry2x32")
        self.chain: Chain = begin_chain(key, start.features, assignments, hyper)
        self.first = self.chain.features

    def sweep(self) -> Features:
        """One sweep from the first state with new random numbers, so that costs are equal."""
        chain = self.chain
        run_chain(chain, self.rows, self.design, ENDLESS, after=lambda _: True)
        chain.draws.clear()
        moved = chain.features
        if chain.features.room > self.first.room:  # else every sweep would grow the arrays again
            self.first = with_room(self.first, chain.features.room)
        chain.features = self.first
        return moved

    def ready(self) -> Sweeper:
        """The same, compiled."""
        for _ in range(WARM):
            self.sweep()
        return self

    def floor(self) -> Any:
        """X W' and Z W for dense rows, X W' and Z'X for sparse rows."""
        state = self.first
        n_live = int(state.n_live)
        vectors = np.asarray(state.components.vectors)[:n_live]
        used = np.asarray(state.assignments)[:, :n_live]
        products = self.rows.products(vectors)
        if self.rows.is_sparse:
            return products, self.rows.cross(used)
        return products, used.astype(vectors.dtype) @ vectors


def dense_sweep(settings: Settings) -> list[Case]:
    """A sweep on dense rows against its two products, on all cores and on one core."""
    size = SMALL if settings.quick else DENSE
    sweeper = dense_sweeper(settings.seed, size).ready()
    kinds = {ON_ALL_CORES: nullcontext, "": partial(threadpool_limits, 1, "blas")}
    return [_against_products(settings, size, sweeper, *kind) for kind in kinds.items()]


def _against_products(
    settings: Settings, size: Size, sweeper: Sweeper, kind: str, threads: Callable[[], Any]
) -> Case:
    with threads():
        seconds = in_turns(
            {PRODUCTS: lambda _: sweeper.floor(), OURS: lambda _: sweeper.sweep()},
            settings.repeats,
            calls=ENDLESS.thin,
        )
    return Case(
        f"sweep, dense rows, {_label(size)}{kind}",
        "s",
        {OURS: seconds[OURS], PRODUCTS: seconds[PRODUCTS]},
        targets={} if settings.quick or kind else {PRODUCTS: 1.0 / TIMES_FLOOR},
        note="Sweeps: every assignment, births, features and hyperparameters, mutual-angular "
        "prior, in one thread, as in chains that run beside each other; the products are X W' and "
        "Z W (sparse: Z'X), by BLAS in one thread too, or, where it says so, on all cores.",
    )


def means_of_rows(settings: Settings) -> Case:
    """What ``reconstruct`` computes for new rows."""
    size = SMALL if settings.quick else DENSE
    sweeper = dense_sweeper(settings.seed, size).ready()
    draws = [sweeper.rows.keep(sweeper.sweep()) for _ in range(N_DRAWS)]
    rows = sweeper.rows.matrix[:N_NEW]
    seconds = in_turns(
        {OURS: lambda _: expected_rows(draws, rows, settings.seed)}, settings.repeats
    )
    limit = Series((0.5,) * settings.repeats)
    return Case(
        f"means of {len(rows):,} rows, D={size.columns}, K={size.components}",
        "s",
        {OURS: seconds[OURS], HALF_SECOND: limit},
        targets={} if settings.quick else {HALF_SECOND: 1.0},
        note=f"Means: those of `reconstruct`, over {N_DRAWS} draws.",
    )


def sparse_sweep(settings: Settings) -> list[Case]:
    """A sweep at the size of 20-News: seconds, and the ratio to its products."""
    size = SMALL_NEWS if settings.quick else NEWS
    X, source = news_rows(settings, size)
    features, assignments = rough_features(X, size.components, settings.seed)
    sweeper = Sweeper(X, features, assignments, "paper", settings.seed).ready()
    seconds = in_turns(
        {PRODUCTS: lambda _: sweeper.floor(), OURS: lambda _: sweeper.sweep()}, settings.repeats
    )
    limit = Series((SECONDS,) * settings.repeats)
    return [
        Case(
            f"sweep, sparse rows, {_label(size)}",
            "s",
            {OURS: seconds[OURS], PRODUCTS: seconds[PRODUCTS], TWO_SECONDS: limit},
            targets={} if settings.quick else {TWO_SECONDS: 1.0},
            note=f"Sparse sweeps: {source}, {int(sweeper.sweep().n_live)} features after a sweep.",
        )
    ]


def dense_sweeper(seed: int, size: Size) -> Sweeper:
    """A chain on generated rows that starts at the true features."""
    nonzero = min(20, size.columns // 2)
    made = feature_quality.sparse_features(seed, *size, n_nonzero=nonzero)
    rows = made.X.astype(np.float32)
    return Sweeper(rows, made.features, made.assignments.astype(np.uint8), 0.5, seed)


def news_rows(settings: Settings, size: Size) -> tuple[Any, str]:
    """20-News if its file is found, else random rows of the same shape and density."""
    if not settings.quick:
        try:
            return datasets.load("news20").X, "20-News"
        except datasets.DataNotFoundError:
            pass
    options: dict[str, Any] = {"random_state": np.random.default_rng(settings.seed)}
    rows: Any = sp.random_array(size[:2], density=DENSITY, format="csr", **options)
    rows.data = rows.data.astype(np.float32)
    return sp.csr_array(rows), "random rows in the shape of 20-News"


def rough_features(X: Any, n_features: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Assign every row to the most similar of some rows; features are the means of the groups."""
    generator = np.random.default_rng(seed)
    leaders = generator.choice(X.shape[0], n_features, replace=False)
    similar = np.asarray((X @ X[leaders].T).todense())
    # The chosen rows stay in their groups, so that no group is empty.
    group = np.argmax(similar, axis=1)
    group[leaders] = np.arange(n_features)
    assignments = np.zeros((X.shape[0], n_features), np.uint8)
    assignments[np.arange(len(group)), group] = 1
    means = np.asarray((sp.csr_array(assignments.T.astype(np.float64)) @ X).todense())
    means /= assignments.sum(axis=0)[:, None]
    return means - np.asarray(X.mean(axis=0)).ravel(), assignments


def _label(size: Size) -> str:
    return f"N={size.rows}, D={size.columns}, K={size.components}"
