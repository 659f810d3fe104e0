"""The same study by sampling: the chains of all corpora, splits and strengths at once.

On a GPU hundreds of chains of a few hundred sweeps take as long as one. The inner split has as many
rows as the outer one, with weight zero for those left out, so that one program runs both. Each
chain gives the mean density of held-out rows over its draws, and the partition of its last draw.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.model_selection import train_test_split

from wideangle.settings import Maximise
from wideangle.sphere.vmf import inverse_on_host, log_mean_exp
from wideangle.spherical_mixture.ascent import with_tightness
from wideangle.spherical_mixture.centres import CentrePrior
from wideangle.spherical_mixture.rows import MemoryRows
from wideangle.spherical_mixture.sampling import make_problem, start_of
from wideangle.spherical_mixture.state import Chain, Design, Problem
from wideangle.spherical_mixture.sweep import sweep
from wideangle.spherical_mixture.task import ALPHA, TIGHTNESS_ROWS, Task
from wideangle.types import Array, Key
from wideangle_lab.bench.clusters.corpora import Parts

N_WARMUP, N_DRAWS, THIN = 150, 24, 5
LONGER, N_STARTS = 10, 4
"""For the check of convergence: how many times longer chains are, and how many starts there are."""
DESIGN = Design("I", infinite=False, learn_alpha=True)


class Found(NamedTuple):
    """Result of one chain."""

    log_density: Array
    """Log of the mean density over draws, for each held-out row, (n,)."""
    labels: Array
    """Clusters of the training rows in the last draw."""
    predicted: Array
    """Clusters of the held-out rows in the last draw."""
    used: Array
    """Number of non-empty clusters, averaged over draws."""


class Job(NamedTuple):
    """The chains of one split: inner and outer, for every strength."""

    start: Chain
    problem: Problem
    held_out: np.ndarray


def jobs_of(parts: Parts, n_clusters: int, cosines: tuple[float, ...], seed: int) -> list[Job]:
    """The inner chains by strength, then the outer ones."""
    rng = np.random.default_rng(seed)
    n_rows, dim = parts.train.shape
    fitted, left_out = train_test_split(np.arange(n_rows), test_size=0.25, random_state=seed)
    inner = np.zeros(n_rows)
    inner[fitted] = 1.0
    found = []
    for weights, held_out in ((inner, parts.train[left_out]), (np.ones(n_rows), parts.test)):
        prior = CentrePrior(0.0, np.nan, TIGHTNESS_ROWS)
        task = Task(n_clusters, False, prior, ALPHA, True, Maximise(), False)
        rows = MemoryRows(parts.train, weights)
        task = with_tightness(rng, task, rows)
        problem = make_problem(parts.train, weights, task)
        # Rows of weight zero have no effect: any cluster can be assigned to them.
        start = start_of(rng, task, rows, np.arange(n_rows), problem)
        for cosine in cosines:
            strength = jnp.asarray(float(inverse_on_host(cosine, dim)))
            found.append(Job(start, problem._replace(strength=strength), held_out))
    return found


@jax.jit
@partial(jax.vmap, in_axes=(0, 0, 0, 0, None))
def advance(key: Key, chain: Chain, problem: Problem, held_out: Array, longer: Array) -> Found:
    """Warm-up and draws of one chain, with ``longer`` times as many sweeps as usual."""
    n_warmup, thin = longer * N_WARMUP, longer * THIN

    def move(number: Array, chain: Chain) -> Chain:
        moved, _ = sweep(jax.random.fold_in(key, number), chain, problem, DESIGN)
        return jax.tree.map(lambda new, old: new.astype(old.dtype), moved, chain)

    def draw(carry: tuple[Chain, Array, Array], number: Array) -> tuple[Any, Array]:
        chain, total, _ = carry
        first = n_warmup + number * thin
        chain = jax.lax.fori_loop(first, first + thin, move, chain)
        natural = chain.concentrations[:, None] * chain.directions
        offsets = chain.log_weights - log_mean_exp(chain.concentrations, held_out.shape[1])
        logits = jnp.dot(held_out, natural.T, precision="highest") + offsets
        total = jnp.logaddexp(total, jax.nn.logsumexp(logits, axis=1))
        return (chain, total, jnp.argmax(logits, axis=1)), jnp.sum(chain.counts > 0)

    chain = jax.lax.fori_loop(0, n_warmup, move, chain)
    nothing = jnp.full(len(held_out), -jnp.inf), jnp.zeros(len(held_out), int)
    (chain, total, predicted), used = jax.lax.scan(draw, (chain, *nothing), jnp.arange(N_DRAWS))
    labels = chain.assignments.reshape(-1)
    return Found(total - jnp.log(N_DRAWS), labels, predicted, jnp.mean(used))


def run(jobs: list[Job], seed: int, longer: int = 1) -> tuple[list[Found], float]:
    """All chains at once, each with its own number of held-out rows, and the seconds."""
    began = time.perf_counter()
    n_test = max(len(job.held_out) for job in jobs)
    held_out = [np.pad(job.held_out, ((0, n_test - len(job.held_out)), (0, 0))) for job in jobs]
    chains, problems = (
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *column)
        for column in ([job.start for job in jobs], [job.problem for job in jobs])
    )
    keys = jax.random.split(jax.random.key(seed), len(jobs))
    moved = advance(keys, chains, problems, jnp.asarray(held_out), jnp.asarray(longer))
    found = jax.tree.map(np.asarray, moved)
    each = []
    for i, job in enumerate(jobs):
        one, n = Found(*(leaf[i] for leaf in found)), len(job.held_out)
        each.append(one._replace(log_density=one.log_density[:n], predicted=one.predicted[:n]))
    return each, time.perf_counter() - began


def convergence(
    parts: Parts, n_clusters: int, cosines: tuple[float, ...], seed: int
) -> dict[str, Any]:
    """Held-out log density of chains from several starts, as long as in the study and longer.

    By strength one list for each length, with a value for each start.
    """
    with jax.enable_x64(True):
        jobs = [
            job
            for start in range(seed, seed + N_STARTS)
            for job in jobs_of(parts, n_clusters, cosines, start)[len(cosines) :]
        ]
        found = {longer: run(jobs, seed, longer)[0] for longer in (1, LONGER)}
    return {
        f"{cosine:g}": {
            str(longer): [float(one.log_density.mean()) for one in every[i :: len(cosines)]]
            for longer, every in found.items()
        }
        for i, cosine in enumerate(cosines)
    }
