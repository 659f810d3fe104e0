"""A pass over the rows, compared with its matrix product and with scikit-learn's clusterings.

Times are CPU seconds, which other programs on the machine change little. scikit-learn gets one
thread: several would also count the time in which they wait for each other.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from wideangle.settings import Maximise
from wideangle.spherical_mixture.ascent import State, improve, parameters
from wideangle.spherical_mixture.centres import CentrePrior, begin_centres
from wideangle.spherical_mixture.rows import MemoryRows, gather
from wideangle.spherical_mixture.task import Task
from wideangle.spherical_mixture.weights import fit_weights
from wideangle_lab.bench.harness import in_turns
from wideangle_lab.bench.record import OURS, Case, Series

PRODUCT, KMEANS = "product with the centres", "KMeans"
COVARIANCES = {"spherical": "GaussianMixture, spherical", "diag": "GaussianMixture, diagonal"}
SIZES = {True: (4000, 20, 5), False: (100_000, 300, 100)}
"""Rows, columns and clusters."""


def measure(*, quick: bool, seed: int) -> list[Case]:
    """One complete pass of the maximisation."""
    n_rows, dim, n_clusters = SIZES[quick]
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((n_clusters, dim))
    X = centres[rng.integers(n_clusters, size=n_rows)] + rng.standard_normal((n_rows, dim))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    ours = passes(X, X[:n_clusters].astype(np.float64))
    blocks = [jnp.asarray(part) for part in np.array_split(X, max(1, n_rows // 8192))]
    start = jnp.asarray(X[:n_clusters])
    product = jax.jit(lambda block: jnp.dot(block, start.T, precision="highest"))

    def multiply(_: int) -> Any:
        return [product(block) for block in blocks]

    repeats = 2 if quick else 5
    seconds = in_turns({OURS: ours, PRODUCT: multiply}, repeats, clock=time.process_time)
    others = {
        KMEANS: lambda n: KMeans(
            n_clusters, init=X[:n_clusters], n_init=1, max_iter=n, tol=0.0, algorithm="lloyd"
        ).fit(X),
    }
    for covariance, name in COVARIANCES.items():
        others[name] = lambda n, covariance=covariance: GaussianMixture(
            n_clusters, covariance_type=covariance, init_params="random_from_data", max_iter=n,
            tol=0.0, random_state=seed,
        ).fit(X)  # fmt: skip
    for name, make in others.items():
        seconds[name] = Series(tuple(an_iteration(make) for _ in range(1 if quick else 2)))
    size = f"{n_rows:,} x {dim}, {n_clusters} clusters"
    return [
        Case(f"a pass, {size}", "CPU s", {name: seconds[name] for name in (OURS, PRODUCT)},
             targets={PRODUCT: 1 / 3}),
        *(
            Case(f"a pass, {size}", "CPU s", {OURS: _shortened(seconds[OURS], one), name: one},
                 targets={name: 0.5})
            for name, one in seconds.items()
            if name in others
        ),
    ]  # fmt: skip


def _shortened(series: Series, other: Series) -> Series:
    return Series(series.values[: len(other.values)])


def passes(X: np.ndarray, directions: np.ndarray) -> Callable[[int], Any]:
    """A function that does one pass and updates the clusters."""
    rows = MemoryRows(X, np.ones(len(X)))
    n_clusters, dim = directions.shape
    prior = CentrePrior(0.1 * dim, 0.5, 5.0)
    task = Task(n_clusters, False, prior, 1.0, True, Maximise())
    counts = np.full(n_clusters, len(X) / n_clusters)
    weights = fit_weights(counts, 1.0, infinite=False, learn=False)
    state = State(begin_centres(directions, prior, counts, factors=False), weights)

    def one(_: int) -> Any:
        nonlocal state
        state = improve(state, gather(rows, *parameters(state)), task)
        return state.centres.means

    return one


def an_iteration(make: Callable[[int], Any], few: int = 1, many: int = 5) -> float:
    """CPU seconds per additional iteration, initialisation excluded."""
    taken = []
    for n in (few, many):
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore", ConvergenceWarning)
            began = time.process_time()
            make(n)
            taken.append(time.process_time() - began)
    return max(taken[1] - taken[0], 1e-9) / (many - few)
