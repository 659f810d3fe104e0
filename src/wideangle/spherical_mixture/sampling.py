"""Chains of the Gibbs sampler: where they begin, how long they run, what is kept."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.infer.run import Run, run
from wideangle.infer.stopping import until_converged
from wideangle.posterior import Draws, evenly
from wideangle.progress import Progress
from wideangle.settings import AUTO, Maximise, as_plain
from wideangle.sphere.vmf import log_mean_exp
from wideangle.spherical_mixture import ascent
from wideangle.spherical_mixture.centres import CentrePrior, log_constant, prior_quantiles
from wideangle.spherical_mixture.predict import closest_partition, log_mixture, states_of
from wideangle.spherical_mixture.rows import BLOCK, MemoryRows, shares
from wideangle.spherical_mixture.state import Chain, Design, Problem
from wideangle.spherical_mixture.sweep import recipe_of
from wideangle.spherical_mixture.task import Fitted, Mixture, Task
from wideangle.spherical_mixture.weights import ALPHA_MEAN
from wideangle.storage import fingerprint

N_WARMUP, MAX_TIME = 200, 120.0
FIRST = 100
"""Draws of the first block of chains of automatic length."""
KEPT = 64
"""Most states kept of a chain."""
COMPARED = 64
"""Number of partitions from which the summary is chosen."""
WATCHED = 12
"""Rows whose density is watched."""
NEEDED = ("log_lik", "density")
"""Quantities of the trace that predictions depend on."""
BEGINNINGS = (8, 16, 12, 24)
"""Initial numbers of clusters of the chains of an infinite mixture."""
ROOM = 48
"""Room for clusters in chains of an infinite mixture, doubled if too small."""
MAX_BYTES = 2**31
"""Most memory of sparse rows made dense."""


def begin(rng: np.random.Generator, task: Task, rows: MemoryRows) -> Chains:
    """New chains for these rows, without draws."""
    live = np.flatnonzero(rows.weights > 0)
    if 4 * len(live) * rows.shape[1] > MAX_BYTES and rows.sparse:
        raise ValueError(
            f"{len(live):,} sparse rows of {rows.shape[1]:,} columns are too many for chains, "
            "which work on dense rows: use inference='map' or 'vi', or TruncatedSVD first."
        )
    task = ascent.with_tightness(rng, task, rows)
    with jax.enable_x64(True):  # counts of many rows exceed the digits of single precision
        return Chains(rng, task, rows, live)


def fit(chains: Chains, task: Task, rows: MemoryRows, *, began: float) -> Fitted:
    """Draws from the posterior, by new chains or more from earlier ones; their summary."""
    live = np.flatnonzero(rows.weights > 0)
    with jax.enable_x64(True):
        ending = chains.draw(task, began)
    notes: dict[str, Any] = {
        "n_passes": chains.draws.n_chains * chains.draws.n_draws,
        "acceptance": chains.acceptance,
        "interrupted": chains.interrupted,
    }
    if ending is not None:
        notes["ending"] = ending
    kept, partitions = chains.kept()
    flat = partitions.reshape(-1, partitions.shape[-1])
    compared = evenly(len(flat), COMPARED)
    best = compared[closest_partition(flat[compared], rows.weights[live])]
    mixture, chosen = states_of(kept)[best], flat[best]
    mixture, places = used_only(mixture, chosen)
    labels = np.full(rows.shape[0], np.argmax(mixture.weights))
    labels[live] = places[chosen]
    trace = dict(chains.draws.values)
    alpha = float(np.mean(trace["alpha"]))
    return Fitted(mixture, chains.prior, alpha, trace, notes, kept, labels)


def mark_of(task: Task, rows: MemoryRows) -> str:
    """A fingerprint of the rows and of all settings but the length of the chains."""
    usual = as_plain(task.inference.of_any_length())
    same = task._replace(inference=usual, verbose=None)
    return fingerprint(rows.arrays(), {"task": repr(same)})


def used_only(mixture: Mixture, labels: np.ndarray) -> tuple[Mixture, np.ndarray]:
    """The clusters that have rows, and the new index of each cluster."""
    used = np.unique(labels)
    places = np.zeros(len(mixture.weights), int)
    places[used] = np.arange(len(used))
    return mixture.only(used), places


def _of_chain(task: Task, chain: int) -> Task:
    """Chains of an infinite mixture begin with different numbers of clusters."""
    if not task.infinite:
        return task
    return task._replace(n_components=min(task.n_components, BEGINNINGS[chain % len(BEGINNINGS)]))


class Chains:
    """Chains, their draws so far, and some of their states."""

    def __init__(
        self, rng: np.random.Generator, task: Task, rows: MemoryRows, live: np.ndarray
    ) -> None:
        self.prior = task.prior
        self._n_rows = len(live)
        self._design = Design(task.prior.kind, task.infinite, task.learn_alpha)
        self._problem = make_problem(rows.take(live), rows.weights[live], task)
        self._key = jax.random.key(int(rng.integers(2**31)))
        self._n_chains = task.inference.n_chains
        starts = [
            start_of(rng, _of_chain(task, i), rows, live, self._problem)
            for i in range(self._n_chains)
        ]
        self._start = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)
        self._options = {
            "n_warmup": N_WARMUP if task.inference.n_warmup is None else task.inference.n_warmup,
            "thin": task.inference.thin or 1,
        }
        self._verbose = task.verbose
        self._state: Any = None
        self._states: list[tuple[int, Mixture, np.ndarray]] = []
        self.draws = Draws({})
        self.acceptance: dict[str, float] = {}
        self.interrupted = False

    @property
    def n_done(self) -> int:
        """Draws of each chain so far."""
        return self.draws.n_draws if self.draws.values else 0

    def draw(self, task: Task, began: float) -> dict[str, Any] | None:
        """As many draws as set, or as predictions need."""
        chosen = task.inference
        self.interrupted = False
        if chosen.n_draws != AUTO:
            self._extend(chosen.n_draws)
            return None
        limit = MAX_TIME if chosen.max_time is None else chosen.max_time
        left = limit - (time.monotonic() - began)
        ending = until_converged(self._watch, max_time=left, n_done=self.n_done, first=FIRST)
        return ending._asdict()

    def _watch(self, n_draws: int) -> dict[str, np.ndarray] | None:
        self._extend(n_draws)
        if self.interrupted:
            return None
        return {name: self.draws.values[name] for name in NEEDED}

    def _extend(self, n_draws: int) -> None:
        """Run all chains until they have this many draws; evenly spaced states are kept."""
        n_done, n_warmup = self.n_done, self._options["n_warmup"]
        ends = np.unique(np.linspace(n_done, max(n_draws, n_done), KEPT + 1).astype(int))[1:]
        with Progress(n_warmup + n_draws, n_warmup, self._verbose) as bar:
            for end in ends:
                found = self._run(int(end), bar)
                if found.draws.n_draws:
                    self.draws = self.draws.followed_by(found.draws) if n_done else found.draws
                    n_done = self.draws.n_draws
                    self._keep(n_done)
                if found.interrupted:
                    self.interrupted = True
                    if n_done == 0:
                        raise KeyboardInterrupt("stopped before the first draw")
                    return

    def _run(self, n_draws: int, bar: Progress) -> Run:
        """Run up to this many draws, with as much room for clusters as needed."""
        while True:
            found = run(
                self._key,
                recipe_of(self._design),
                self._start,
                n_draws=n_draws,
                n_chains=self._n_chains,
                data=self._problem,
                collect=_collect,
                resume=self._state,
                bar=bar,
                **self._options,
            )
            if not np.asarray(found.state.latents.overflow).any():
                self._state, self.acceptance = found.state, found.acceptance
                return found
            room = 2 * self._start.counts.shape[1]
            self._start = with_room(self._start, room, axis=1)
            if self._state is not None:
                roomy = with_room(self._state.latents, room, axis=1)
                self._state = self._state._replace(latents=roomy)

    def _keep(self, n_draws: int) -> None:
        chain: Chain = jax.tree.map(np.asarray, self._state.latents)
        logs = chain.log_weights - np.logaddexp.reduce(chain.log_weights, axis=1, keepdims=True)
        mixture = Mixture(
            np.float32(chain.directions), np.float32(chain.concentrations), np.exp(logs)
        )
        labels = chain.assignments.reshape(self._n_chains, -1)[:, : self._n_rows]
        self._states.append((n_draws, mixture, labels.astype(np.int32)))
        if len(self._states) > 2 * KEPT:
            self._states = self._states[1::2]

    def kept(self) -> tuple[Mixture, np.ndarray]:
        """States and partitions, (chain, state, ...)."""
        chosen = [self._states[i] for i in evenly(len(self._states), KEPT)]
        room = max(len(mixture.weights[0]) for _, mixture, _ in chosen)

        def padded(leaf: np.ndarray) -> np.ndarray:
            extra = [(0, 0), (0, room - leaf.shape[1])] + [(0, 0)] * (leaf.ndim - 2)
            return np.pad(leaf, extra)

        mixtures = [jax.tree.map(padded, mixture) for _, mixture, _ in chosen]
        joined = jax.tree.map(lambda *leaves: np.stack(leaves, axis=1), *mixtures)
        return joined, np.stack([labels for *_, labels in chosen], axis=1)


def _collect(chain: Chain, problem: Problem) -> dict[str, Any]:
    """Quantities that do not depend on how clusters are numbered."""
    dim = chain.directions.shape[1]
    flat = problem.rows.reshape(-1, dim)
    n_rows = jnp.sum(problem.weights > 0)
    places = jnp.linspace(0, n_rows - 1, WATCHED).astype(int)
    natural = chain.concentrations[:, None] * chain.directions
    offsets = chain.log_weights - log_mean_exp(chain.concentrations, dim)
    logs = jax.nn.logsumexp(flat[places] @ natural.T + offsets, axis=1)
    return {
        "log_lik": chain.log_lik,
        "density": logs,
        "n_used": jnp.sum(chain.counts > 0).astype(jnp.result_type(float)),
        "alpha": chain.alpha,
        "concentration": jnp.sum(chain.counts * chain.concentrations) / jnp.sum(chain.counts),
    }


def make_problem(units: np.ndarray, weights: np.ndarray, task: Task) -> Problem:
    """Rows in blocks, and the prior, for double precision."""
    n_rows, dim = units.shape
    size = min(BLOCK, n_rows)
    room = -n_rows % size
    rows = np.pad(units, ((0, room), (0, 0))).reshape(-1, size, dim)
    parts = np.pad(weights, (0, room)).reshape(-1, size)
    blocks = jnp.asarray(rows, jnp.float32), jnp.asarray(parts, jnp.float32)
    return problem_of(*blocks, task.prior)


def problem_of(
    rows: Any, weights: Any, prior: CentrePrior, alpha_mean: float = ALPHA_MEAN
) -> Problem:
    """Rows in blocks (B, n, p) with the parameters of the prior."""
    dim = rows.shape[-1]
    logs, levels = prior_quantiles(prior, dim)
    return Problem(
        rows,
        weights,
        strength=_number(prior.strength),
        cosine=_number(prior.cosine),
        prior_rows=_number(prior.rows),
        log_constant=_number(log_constant(prior.cosine, prior.rows, dim)),
        table=(jnp.asarray(logs), jnp.asarray(levels)),
        alpha_mean=_number(alpha_mean),
    )


def _number(value: float) -> Any:
    return jnp.asarray(value, jnp.result_type(float))


def start_of(
    rng: np.random.Generator, task: Task, rows: MemoryRows, live: np.ndarray, problem: Problem
) -> Chain:
    """A start near the result of a few passes of a separate maximisation.

    An infinite mixture has room for twice as many clusters, and no empty ones.
    """
    short = task._replace(
        inference=Maximise(n_starts=1, n_passes=ascent.START_PASSES), verbose=False
    )
    sample = rows.sample(rng, ascent.SAMPLE)
    found = ascent.fit(rng, short, sample, sample, empty=True).mixture
    parts = [np.argmax(part, axis=1) for part, _ in shares(rows, *log_mixture(found))]
    labels = np.concatenate(parts)[live]
    if task.infinite:
        found, places = used_only(found, labels)
        labels = places[labels]
    n = len(found.weights)
    counts = np.bincount(labels, rows.weights[live], minlength=n)
    filled = np.pad(labels, (0, problem.weights.size - len(labels)))
    chain = Chain(
        jnp.asarray(found.directions),
        jnp.asarray(found.concentrations),
        jnp.log(jnp.asarray(found.weights)),
        _number(task.alpha),
        jnp.asarray(filled.reshape(problem.weights.shape), jnp.int32),
        jnp.asarray(counts),
        _number(0.0),
        jnp.array(False),
    )
    return with_room(chain, ROOM) if task.infinite else chain


def with_room(chain: Chain, room: int, axis: int = 0) -> Chain:
    """Room for this many clusters; new slots stay empty until the next sweep."""

    def wider(leaf: Any, value: float) -> Any:
        leaf = np.asarray(leaf)
        extra = [(0, 0)] * leaf.ndim
        extra[axis] = 0, room - leaf.shape[axis]
        return jnp.asarray(np.pad(leaf, extra, constant_values=value))

    return chain._replace(
        directions=wider(chain.directions, 0.0),
        concentrations=wider(chain.concentrations, 1.0),
        log_weights=wider(chain.log_weights, -np.inf),
        counts=wider(chain.counts, 0.0),
        overflow=jnp.zeros_like(chain.overflow, bool),
    )
