"""Running the sweeps of one chain on a device: many sweeps in one program, no host in between."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from wideangle.infer import adapt
from wideangle.latent_features.chain import (
    Chain,
    Plan,
    freeze,
    learn_steps,
    more_room,
    record_numbers,
    steps_of,
)
from wideangle.latent_features.rows.device import DenseRows, SparseRows, summarise_on_device
from wideangle.latent_features.sampler import sweep as lfm_sweep
from wideangle.latent_features.sampler.design import Design
from wideangle.latent_features.sampler.vectors import Steps
from wideangle.latent_features.state import Features, with_room
from wideangle.types import Array, Key

CHUNK = 20
"""Sweeps of one program at most; the host looks in between."""


def run_chain_on_device(
    chain: Chain,
    rows: DenseRows | SparseRows,
    design: Design,
    plan: Plan,
    *,
    after: Callable[[Chain], bool] | None = None,
) -> Chain:
    """As ``lfm_chain.run_chain``, with the rows on the device; ``after`` is called per chunk.

    A chunk ends at a state that is kept. A sweep for which there is no room leaves the state as it
    was, and those after it do nothing; it is repeated with larger arrays and the same key, or
    without the assignments (``lfm_chain.more_room``).
    """
    n_entries = rows.energy().shape[0] * chain.features.components.directions.shape[1]
    while chain.n_done < plan.n_sweeps:
        begin = chain.n_done
        wanted = _chunk_length(plan, begin)
        state = chain.features, chain.tuning
        with jax.default_matmul_precision("highest"):
            (chain.features, chain.tuning), accounts, done = _advance(
                chain.key, begin, wanted, plan.n_warmup, state, rows, design
            )
        n_done = int(done)
        _note(chain, n_done, accounts, plan, n_entries)
        if n_done < wanted:
            room = more_room(chain.features, design)
            if room is not None:
                chain.features = with_room(chain.features, room)
            else:
                steps = steps_of(chain.tuning, chain.n_done < plan.n_warmup)
                with jax.default_matmul_precision("highest"):
                    key = jax.random.fold_in(chain.key, chain.n_done)
                    chain.features, account = without_assignments(
                        key, chain.features, rows, design, steps
                    )
                account = jax.tree.map(lambda leaf: leaf[None], (account, chain.features.hyper))
                _note(chain, 1, account, plan, n_entries)
        if after is not None and after(chain):
            break
    return chain


def _note(chain: Chain, n_done: int, accounts: Any, plan: Plan, n_entries: int) -> None:
    """Count sweeps, record those after warm-up, and keep the state if it is one that is kept."""
    begin = chain.n_done
    chain.n_done = begin + n_done
    accounts = jax.device_get(accounts)
    for i in range(max(plan.n_warmup - begin, 0), n_done):
        account, hyper = jax.tree.map(lambda leaf, i=i: leaf[i], accounts)
        record_numbers(chain, account, hyper, n_entries)
    if n_done and chain.n_done > plan.n_warmup and plan.keeps(chain.n_done - 1 - plan.n_warmup):
        chain.kept.append(freeze(chain.features))


def _chunk_length(plan: Plan, begin: int) -> int:
    """Sweeps until the end of warm-up, the next kept state or the end, at most :data:`CHUNK`."""
    length = 1
    while length < CHUNK and begin + length < plan.n_sweeps:
        last = begin + length - 1
        if last == plan.n_warmup - 1:
            break
        if last >= plan.n_warmup and plan.keeps(last - plan.n_warmup):
            break
        length += 1
    return length


@partial(jax.jit, static_argnames="design")
def _advance(
    key: Key,
    begin: Array,
    wanted: Array,
    n_warmup: Array,
    state: tuple[Features, dict[str, adapt.DualAveraging]],
    rows: DenseRows | SparseRows,
    design: Design,
) -> tuple[Any, Any, Array]:
    """``wanted`` sweeps, at most :data:`CHUNK`, or as many as there is room for."""

    def sweep(carry: Any) -> Any:
        (features, tuning), accounts, done, _ = carry
        warming = begin + done < n_warmup
        steps = steps_of(tuning, warming)
        moved, account, overflow = lfm_sweep.sweep_on_device(
            jax.random.fold_in(key, begin + done), features, rows, design, steps, fixed_length=True
        )
        if design.hamiltonian:
            tuning = _choose(warming & ~overflow, learn_steps(tuning, account), tuning)
        moved = _choose(~overflow, moved, features)
        accounts = jax.tree.map(
            lambda all_, one: all_.at[done].set(one), accounts, (account, moved.hyper)
        )
        return (moved, tuning), accounts, done + ~overflow, overflow

    def goes_on(carry: Any) -> Array:
        _, _, done, overflow = carry
        return (done < wanted) & ~overflow

    shapes = jax.eval_shape(partial(sweep_once, design=design), key, state, rows)
    accounts = jax.tree.map(lambda s: jnp.zeros((CHUNK, *s.shape), s.dtype), shapes)
    start = state, accounts, jnp.zeros((), jnp.int32), jnp.array(False)
    state, accounts, done, _ = jax.lax.while_loop(goes_on, sweep, start)
    return state, accounts, done


@partial(jax.jit, static_argnames="design")
def without_assignments(
    key: Key,
    features: Features,
    rows: DenseRows | SparseRows,
    design: Design,
    steps: Steps,
) -> tuple[Features, lfm_sweep.Account]:
    """The sweep of a key, for which there is no room: it leaves the assignments as they are.

    Weights are those that led to the low level; others would make such weights too rare.
    """
    keys = lfm_sweep.split(key)
    features = lfm_sweep.without_unused(lfm_sweep.begin(keys, features, design).features, design)
    stats = summarise_on_device(features.assignments, rows)
    none = jnp.zeros((), jnp.int32)
    return lfm_sweep.finish(keys, features, stats, design, steps, none)


def sweep_once(key: Key, state: Any, rows: Any, design: Design) -> Any:
    """One sweep, for the shapes of what it reports."""
    features, tuning = state
    steps = steps_of(tuning, False)
    moved, account, _ = lfm_sweep.sweep_on_device(key, features, rows, design, steps)
    return account, moved.hyper


def _choose(condition: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda n, o: jnp.where(condition, n, o).astype(o.dtype), new, old)
