"""Calibration of the sampler of clusters of directions, finite and infinite."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.infer.program import QUICKLY, on_cpu
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.sphere import vmf
from wideangle.spherical_mixture.centres import CentrePrior
from wideangle.spherical_mixture.sampling import problem_of
from wideangle.spherical_mixture.state import Chain, Design, Problem, last_used
from wideangle.spherical_mixture.sweep import draw_concentrations, sweep
from wideangle.types import Array, Key, Scalar
from wideangle_lab.calibration.verdicts import Ranked, Restarted, judge_changes, judge_ranks

DIM, N_ROWS = 3, 12
PRIOR = CentrePrior(6.0, 0.6, 4.0)
"""A repulsion that matters with 12 rows."""
ALPHA, ALPHA_MEAN = 0.7, 0.7
"""The fixed alpha, or the mean of its prior."""
N_DRAWS, N_WARMUP = 15, 100
MAX_BATCH = 100
N_LOOKS = 5


class Case(NamedTuple):
    """A number of clusters, and the learned parameters."""

    prior: str
    process: str
    design: Design
    room: int
    thin: int
    """Sweeps per draw: enough that draws are nearly independent."""

    @property
    def name(self) -> str:
        """Name with slashes, like a path."""
        return f"clusters/{self.prior}/{self.process}"


CASES = [
    Case("mutual-angular I", "finite", Design("I", False, True), 3, 20),
    Case("mutual-angular II", "finite, alpha given", Design("II", False, False), 3, 20),
    Case("mutual-angular I", "infinite, alpha given", Design("I", True, False), 24, 15),
    Case("mutual-angular I", "infinite", Design("I", True, True), 48, 15),
]


def simulate(key: Key, case: Case) -> tuple[Chain, Problem]:
    """Everything from the prior, and rows from the model."""
    design, n = case.design, case.room
    keys = jax.random.split(key, 6)
    alpha = jnp.asarray(ALPHA)
    if design.learn_alpha:
        alpha = jax.random.exponential(keys[0]) * ALPHA_MEAN
    log_weights = draw_log_weights(keys[1], alpha, case)
    blocks = jnp.zeros((1, N_ROWS, DIM)), jnp.ones((1, N_ROWS))
    problem = problem_of(*blocks, PRIOR, ALPHA_MEAN)
    directions = MutualAngular(n, DIM, PRIOR.strength, design.kind).sample(keys[2])
    kappas = draw_concentrations(jax.random.split(keys[3], n), problem)
    chosen = jax.random.categorical(keys[4], log_weights, shape=(N_ROWS,))
    chain = Chain(
        directions, kappas, log_weights, alpha, chosen[None].astype(jnp.int32),
        jnp.zeros(n).at[chosen].add(1.0), jnp.zeros(()), jnp.array(False),
    )  # fmt: skip
    return chain, draw_rows(keys[5], chain, problem)


def draw_log_weights(key: Key, alpha: Scalar, case: Case) -> Array:
    """Log weights of a Dirichlet distribution or of stick-breaking."""
    n = case.room
    if not case.design.infinite:
        logs = jax.random.loggamma(key, jnp.full(n, alpha / n))
        return logs - jax.nn.logsumexp(logs)
    shapes = jnp.tile(jnp.stack([jnp.ones(()), alpha]), (n, 1))
    logs = jax.vmap(jax.random.loggamma)(jax.random.split(key, n), shapes)
    logs = logs - jax.nn.logsumexp(logs, axis=1, keepdims=True)
    return logs[:, 0] + jnp.concatenate([jnp.zeros(1), jnp.cumsum(logs[:, 1])[:-1]])


def draw_rows(key: Key, chain: Chain, problem: Problem) -> Problem:
    """New rows, given their clusters."""
    mine = chain.assignments[0]
    rows = vmf.sample(key, chain.concentrations[mine, None] * chain.directions[mine])
    return problem._replace(rows=rows[None].astype(problem.rows.dtype))


def quantities(chain: Chain, problem: Problem) -> dict[str, Scalar]:
    """Functions of the state and the rows; some depend on the order, which is part of the state."""
    used = chain.counts > 0
    cosines = chain.directions @ chain.directions.T
    pairs = used[:, None] & used[None, :] & ~jnp.eye(len(used), dtype=bool)
    mine = chain.assignments[0]
    kappas = jnp.log(chain.concentrations[mine])
    sizes = chain.counts / jnp.sum(chain.counts)
    along = jnp.sum(problem.rows[0] * chain.directions[mine], axis=1)
    return {
        "clusters": jnp.sum(used) * 1.0,
        "last place": last_used(chain.counts) * 1.0,
        "cosine": jnp.sum(jnp.where(pairs, cosines, 0.0)) / jnp.maximum(jnp.sum(pairs), 1),
        "first cosine": cosines[0, 1],
        "second cosine": cosines[1, 2],
        "tightness": jnp.mean(kappas),
        "square of it": jnp.mean(kappas**2),
        "cosine to the centre": jnp.mean(along),
        "times tightness": jnp.mean(along * kappas),
        "sizes": jnp.sum(sizes**2),
        "first size": sizes[0],
        "first weight": jnp.exp(chain.log_weights[0]),
        "rows 1 and 2": (mine[0] == mine[1]) * 1.0,
        "log alpha": jnp.log(chain.alpha),
    }


def _in_batches(function: Any, total: int) -> Any:
    """Vectorise over keys, in batches."""
    size = max(d for d in range(1, MAX_BATCH + 1) if total % d == 0)
    return jax.jit(
        lambda keys: jax.lax.map(function, keys, batch_size=size),
        compiler_options=QUICKLY if on_cpu() else None,
    )


def restart(
    case: Case, *, n_starts: int, seed: int, n_sweeps: int = 3, until: float = np.inf
) -> Restarted:
    """Exact restarts: sweeps alternate with new rows, in double precision, as in fits.

    They end early at a z-score above ``until``, which is enough to detect a fault.
    """

    def one(key: Key) -> Any:
        key_start, key_sweeps = jax.random.split(key)
        chain, problem = simulate(key_start, case)
        before = quantities(chain, problem)

        def turn(carry: tuple[Chain, Problem], number: Array) -> tuple[Any, None]:
            chain, problem = carry
            key_sweep, key_rows = jax.random.split(jax.random.fold_in(key_sweeps, number))
            moved, _ = sweep(key_sweep, chain, problem, case.design)
            moved = jax.tree.map(lambda new, old: new.astype(old.dtype), moved, chain)
            return (moved, draw_rows(key_rows, moved, problem)), None

        (chain, problem), _ = jax.lax.scan(turn, (chain, problem), jnp.arange(n_sweeps))
        return before, quantities(chain, problem), chain.overflow

    size = n_starts if np.isinf(until) else n_starts // N_LOOKS
    found: list[Any] = []
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(seed), n_starts)
        run = _in_batches(one, size)
        for i in range(0, n_starts, size):
            found.append(jax.tree.map(np.asarray, run(keys[i : i + size])))
            before, after, overflow = jax.tree.map(lambda *parts: np.concatenate(parts), *found)
            verdict = judge_changes(before, after, {"overflow": float(np.mean(overflow))})
            if abs(verdict.z[verdict.worst]) > until:
                break
    return verdict


def calibrate(case: Case, *, n_sets: int, seed: int) -> Ranked:
    """Ranks of the truth among states of chains that start at other draws of the prior."""

    def one(key: Key) -> Any:
        key_truth, key_start, key_sweeps = jax.random.split(key, 3)
        known, problem = simulate(key_truth, case)
        start, _ = simulate(key_start, case)

        def turn(number: Array, carry: tuple[Chain, Array]) -> tuple[Chain, Array]:
            chain, n_short = carry
            key_sweep = jax.random.fold_in(key_sweeps, number)
            moved, _ = sweep(key_sweep, chain, problem, case.design)
            n_short += moved.overflow
            moved = moved._replace(overflow=jnp.array(False))
            return jax.tree.map(lambda new, old: new.astype(old.dtype), moved, chain), n_short

        def draw(carry: tuple[Chain, Array], number: Array) -> tuple[Any, dict[str, Scalar]]:
            first = N_WARMUP + number * case.thin
            carry = jax.lax.fori_loop(first, first + case.thin, turn, carry)
            return carry, quantities(carry[0], problem)

        carry = jax.lax.fori_loop(0, N_WARMUP, turn, (start, jnp.zeros((), int)))
        (_, n_short), draws = jax.lax.scan(draw, carry, jnp.arange(N_DRAWS))
        return quantities(known, problem), draws, n_short / (N_WARMUP + N_DRAWS * case.thin)

    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(seed), n_sets)
        truth, draws, overflow = jax.tree.map(np.asarray, _in_batches(one, n_sets)(keys))
    return judge_ranks(truth, draws, seed=seed, overflow=float(np.mean(overflow)))
