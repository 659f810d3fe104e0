"""Calibration of the sampler of the latent feature model, for every prior and process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.infer.program import QUICKLY, on_cpu
from wideangle.latent_features.directions import Steps
from wideangle.latent_features.rows import DenseRows
from wideangle.latent_features.state import Design, Features, Gamma
from wideangle.latent_features.sweep import sweep_on_device
from wideangle.sphere.vmf import inverse_mean_resultant
from wideangle.types import Array, Key, Scalar
from wideangle_lab.calibration.feature_problem import (
    FIXED,
    DrawValues,
    Values,
    draw_rows,
    draw_states,
    fixed_values,
    statistics,
)
from wideangle_lab.calibration.verdicts import Ranked, Restarted, judge_changes, judge_ranks

N_DRAWS, N_WARMUP = 7, 100
MAX_BATCH = 50
N_LOOKS = 6
STEPS = 0.3
"""Angle of a Hamiltonian step; nothing is tuned here."""
HYPERPRIORS = {"mass": Gamma(3.0, 2.0), "noise": Gamma(3.0, 1.0), "rate": Gamma(4.0, 4.0)}
LEARNED = frozenset({"mass", "noise", "rate", "concentration"})
FIXED_BY_ROWS = ("energy",)
"""Quantities that depend only on the rows have no rank."""


def pitman_yor(rng: np.random.Generator) -> Values:
    """A power-law process."""
    return {**FIXED, "discount": 0.2, "strength": 1.5, "alpha": 1.0}


def unknown(rng: np.random.Generator) -> Values:
    """Hyperparameters drawn from the priors of a sampler that learns them."""
    cosine = jnp.asarray(rng.uniform(0.01, 0.98))
    return {
        **FIXED,
        "alpha": rng.gamma(3.0) / 2.0,
        "noise": 1.0 / rng.gamma(3.0),
        "kappa": float(inverse_mean_resultant(cosine, 2)),
        "rate": rng.gamma(4.0) / 4.0,
    }


class Case(NamedTuple):
    """A prior and a process."""

    prior: str
    process: str
    design: Design
    draw_values: DrawValues = fixed_values
    room: int = 40
    thin: int = 50
    """Sweeps per draw: enough that draws are nearly independent."""

    @property
    def name(self) -> str:
        """Name with slashes, like a path."""
        return f"features/{self.prior}/{self.process}"


CASES = [
    Case("gaussian", "ibp", Design("gaussian", False)),
    Case("vmf", "ibp", Design("polar", False)),
    Case("vmf, together", "ibp", Design("polar", False, hamiltonian=True)),
    Case("mutual-angular", "ibp", Design()),
    Case("mutual-angular, together", "ibp", Design(hamiltonian=True)),
    Case("gaussian", "pitman-yor", Design("gaussian", False), pitman_yor, 128),
    Case("vmf", "pitman-yor", Design("polar", False), pitman_yor, 128),
    Case("mutual-angular, learned", "ibp", Design(learned=LEARNED, **HYPERPRIORS), unknown, 64, 70),
]
"""``together``: Hamiltonian moves, as on a GPU. Directions that repel each other have an order, but
the power-law process has none, so the two are not combined."""


def _in_batches(function: Callable[..., Any], total: int) -> Callable[..., Any]:
    """Vectorise over a leading axis in batches, which fit into the cache.

    The size of a batch divides the total, since a smaller last batch would be compiled again.
    """
    size = max(d for d in range(1, MAX_BATCH + 1) if total % d == 0)
    return jax.jit(
        lambda *a: jax.lax.map(lambda one: function(*one), a, batch_size=size),
        compiler_options=QUICKLY if on_cpu() else None,
    )


def sweep(key: Key, features: Features, rows: Array, design: Design) -> tuple[Features, Array]:
    """One sweep, and whether room ran out."""
    steps = Steps(jnp.array(STEPS), jnp.array(STEPS))
    moved, _, overflow = sweep_on_device(key, features, DenseRows(rows), design, steps)
    return jax.tree.map(lambda new, old: new.astype(old.dtype), moved, features), overflow


def restart(
    case: Case,
    *,
    n_starts: int,
    seed: int,
    n_sweeps: int = 6,
    rows_from_model: bool = True,
    until: float = np.inf,
) -> Restarted:
    """Exact restarts; without ``rows_from_model`` the rows are zero, the likelihood flat.

    They end early at a z-score above ``until``, which is enough to detect a fault.
    """
    start = draw_states(
        np.random.default_rng(seed), case.design, case.draw_values, n_starts, case.room
    )

    def rows_of(key: Key, features: Features) -> Array:
        rows = draw_rows(key, features)
        return rows if rows_from_model else jnp.zeros_like(rows)

    def one(key: Key, features: Features) -> tuple[dict[str, Scalar], dict[str, Scalar], Array]:
        key_rows, key_sweeps = jax.random.split(key)
        rows = rows_of(key_rows, features)

        def turn(carry: tuple[Features, Array, Array], number: Array) -> tuple[object, None]:
            state, seen, overflow = carry
            key_sweep, key_new = jax.random.split(jax.random.fold_in(key_sweeps, number))
            state, more = sweep(key_sweep, state, seen, case.design)
            return (state, rows_of(key_new, state), overflow | more), None

        begin = features, rows, jnp.array(False)
        (after, rows_after, overflow), _ = jax.lax.scan(turn, begin, jnp.arange(n_sweeps))
        return statistics(features, rows), statistics(after, rows_after), overflow

    keys = jax.random.split(jax.random.key(seed), n_starts)
    size = n_starts if np.isinf(until) else n_starts // N_LOOKS
    run = _in_batches(one, size)
    found: list[Any] = []
    for i in range(0, n_starts, size):
        found.append(run(*jax.tree.map(lambda leaf, i=i: leaf[i : i + size], (keys, start))))
        before, after, overflow = jax.tree.map(lambda *parts: np.concatenate(parts), *found)
        notes = {"overflow": int(np.sum(overflow)), "active": float(np.mean(after["active"]))}
        verdict = judge_changes(before, after, notes)
        if abs(verdict.z[verdict.worst]) > until:
            break
    return verdict


def calibrate(case: Case, *, n_sets: int, seed: int) -> Ranked:
    """Ranks of the truth among states of chains that start at other draws of the prior."""
    rng = np.random.default_rng(seed)
    truth = draw_states(rng, case.design, case.draw_values, n_sets, case.room)
    start = draw_states(rng, case.design, case.draw_values, n_sets, case.room)

    def one(key: Key, known: Features, state: Features) -> tuple[dict, dict, Array]:
        key_rows, key_sweeps = jax.random.split(key)
        rows = draw_rows(key_rows, known)

        def turn(number: Array, carry: tuple[Features, Array]) -> tuple[Features, Array]:
            state, overflow = carry
            state, more = sweep(jax.random.fold_in(key_sweeps, number), state, rows, case.design)
            return state, overflow + more

        def draw(carry: tuple[Features, Array], number: Array) -> tuple[object, dict]:
            first = N_WARMUP + number * case.thin
            carry = jax.lax.fori_loop(first, first + case.thin, turn, carry)
            return carry, statistics(carry[0], rows)

        carry = jax.lax.fori_loop(0, N_WARMUP, turn, (state, jnp.zeros((), jnp.int32)))
        (_, overflow), draws = jax.lax.scan(draw, carry, jnp.arange(N_DRAWS))
        return statistics(known, rows), draws, overflow

    keys = jax.random.split(jax.random.key(seed), n_sets)
    found, draws, overflow = _in_batches(one, n_sets)(keys, truth, start)
    draws = {name: many for name, many in draws.items() if name not in FIXED_BY_ROWS}
    n_sweeps = n_sets * (N_WARMUP + N_DRAWS * case.thin)
    return judge_ranks(found, draws, seed=seed, overflow=float(np.sum(overflow) / n_sweeps))
