"""Running the sweeps of one chain with the rows on the host, and keeping what comes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.infer import adapt
from wideangle.latent_features.rows import columns as host_columns
from wideangle.latent_features.rows.imputed import ImputedRows
from wideangle.latent_features.rows.memory import FeatureRows
from wideangle.latent_features.sampler import design as lfm_design
from wideangle.latent_features.sampler import sweep as lfm_sweep
from wideangle.latent_features.sampler.assignment_rows import sweep_rows
from wideangle.latent_features.sampler.design import Design
from wideangle.latent_features.sampler.pool import Seen
from wideangle.latent_features.sampler.vectors import Steps
from wideangle.latent_features.state import (
    Features,
    FeatureStats,
    Hyper,
    with_room,
)
from wideangle.types import Array, Components, Key

NONE = np.zeros((), np.int32)
TARGETS = {"directions": 0.8, "lengths": 0.8}
"""Acceptance that the Hamiltonian moves are tuned to in warm-up."""
ROOMS = (48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
"""Sizes of the arrays: few, because each is a compilation."""


class RoomError(RuntimeError):
    """More features than the arrays may ever hold."""


class State(NamedTuple):
    """One draw as it is kept: live features only, assignments as bits."""

    weights: np.ndarray
    vectors: np.ndarray
    bits: np.ndarray
    """(N, ceil(K / 8)) uint8: assignments, eight to a byte."""
    hyper: Hyper

    @property
    def assignments(self) -> np.ndarray:
        """(N, K) uint8."""
        return np.unpackbits(self.bits, axis=1, count=len(self.weights))


@dataclass
class Chain:
    """Where a chain is and what it has left behind."""

    key: Key
    features: Features
    tuning: dict[str, adapt.DualAveraging]
    n_done: int = 0
    trace: dict[str, list[float]] = field(default_factory=dict)
    """Numbers of every sweep after warm-up that do not depend on the numbering of features."""
    kept: list[State] = field(default_factory=list)


class Plan(NamedTuple):
    """How long a chain is, and which of its states are kept."""

    n_warmup: int = 100
    n_draws: int = 25
    thin: int = 8

    @property
    def n_sweeps(self) -> int:
        """Sweeps in all."""
        return self.n_warmup + self.n_draws * self.thin

    def keeps(self, sweep: int) -> bool:
        """Whether the state after this sweep (0, 1, ... after warm-up) is kept."""
        return (sweep + 1) % self.thin == 0


def room_for(n_features: int) -> int:
    """Smallest size of the arrays that leaves space for some more features.

    Every sweep draws inactive ones below the last, in proportion to alpha, and so to the number of
    features; too little space costs a compilation, too much costs every sweep.
    """
    wanted = n_features + max(min(32 + n_features, 80), n_features // 6)
    for room in ROOMS:
        if room >= wanted:
            return room
    raise RoomError(
        f"the chain wants more than {n_features} features; the data may not be a sum of a few "
        "features with Gaussian noise: try a larger noise, or a smaller alpha."
    )


def more_room(features: Features, design: Design) -> int | None:
    """Size of the arrays for a sweep that found them too small; None if it must do without.

    The level of the slice can fall so low, above all under the power law, that thousands of unused
    features lie above it. A sweep with such a level draws new weights and leaves the assignments
    as they are. What decides this, the level and how many features are above it, is not changed by
    assignments or (``lfm_pool.most_slots``) by births, so their law stays what it is. Ordered
    features follow the Indian buffet, whose levels hold few unused ones.
    """
    wide = features.room >= lfm_design.WIDE and 2 * int(features.n_live) < features.room
    return None if wide and not design.ordered else room_for(features.room)


def begin_chain(
    key: Key, vectors: np.ndarray, assignments: np.ndarray, hyper: Hyper, design: Design
) -> Chain:
    """A chain that starts from given features and assignments; unused features are left out."""
    key_weights, key_chain = jax.random.split(key)
    used = assignments.any(axis=0)
    vectors, assignments = vectors[used], assignments[:, used]
    n_rows, n_live = assignments.shape
    counts = assignments.sum(axis=0)
    seed = np.asarray(jax.random.key_data(key_weights)).astype(np.uint64)
    weights = np.random.default_rng(seed).beta(np.maximum(counts, 1), n_rows - counts + 1)
    weights = np.clip(weights, 1e-12, 1 - 1e-6)
    order = np.argsort(-weights)
    dtype = hyper.noise.dtype
    components = Components.from_vectors(jnp.asarray(vectors[order], dtype))
    features = Features(
        jnp.asarray(weights[order], dtype),
        components,
        jnp.asarray(assignments[:, order], jnp.uint8),
        jnp.asarray(n_live, jnp.int32),
        hyper,
    )
    tuning = {name: adapt.start(0.1) for name in TARGETS}
    return Chain(key_chain, with_room(features, room_for(n_live)), tuning)


def run_chain(
    chain: Chain,
    rows: FeatureRows,
    design: Design,
    plan: Plan,
    *,
    after: Callable[[Chain], bool] | None = None,
) -> Chain:
    """Sweep until the plan is done; ``after`` is called after each sweep and may end the run."""
    steps = steps_of(chain.tuning, False)
    for index in range(chain.n_done, plan.n_sweeps):
        warming = index < plan.n_warmup
        if design.hamiltonian and (warming or index == plan.n_warmup):
            steps = steps_of(chain.tuning, warming)
        if isinstance(rows, ImputedRows):
            _impute(chain, rows, index)
        features, account = _sweep(chain, rows, design, index, steps)
        chain.features = features
        if design.hamiltonian and warming:
            chain.tuning = learn_steps(chain.tuning, account)
        if not warming:
            record(chain, features, account, rows)
            if plan.keeps(index - plan.n_warmup):
                chain.kept.append(freeze(features))
        chain.n_done = index + 1
        if after is not None and after(chain):
            break
    return chain


def _impute(chain: Chain, rows: ImputedRows, index: int) -> None:
    """Redraw the missing entries; the random numbers depend on chain and sweep alone."""
    key = jax.random.fold_in(jax.random.fold_in(chain.key, index), 1)
    seed = np.asarray(jax.random.key_data(key)).astype(np.uint64)
    features = chain.features
    n_live = int(features.n_live)
    rows.impute(
        np.random.default_rng(seed),
        np.asarray(features.assignments)[:, :n_live],
        np.asarray(features.components.vectors)[:n_live],
        float(features.hyper.noise),
    )


def record(chain: Chain, features: Features, account: lfm_sweep.Account, rows: FeatureRows) -> None:
    """Add the numbers of one sweep to the trace."""
    numbers, hyper = jax.device_get((account, features.hyper))
    record_numbers(chain, numbers, hyper, rows.n_rows * rows.dim)


def record_numbers(chain: Chain, account: lfm_sweep.Account, hyper: Hyper, n_entries: int) -> None:
    """As :func:`record`, with everything on the host."""
    numbers = {
        "n_active": account.n_active,
        "log_lik": account.log_lik,
        "log_joint": account.log_joint,
        "residual_rms": np.sqrt(account.residual / n_entries),
        "alpha": hyper.buffet.mass,
        "noise_variance": hyper.noise,
        "concentration": hyper.concentration,
        "rate": hyper.rate,
        "discount": hyper.buffet.discount,
        "strength": hyper.buffet.strength,
        "acceptance": account.moved.directions.acceptance,
    }
    for name, value in numbers.items():
        chain.trace.setdefault(name, []).append(float(value))


def freeze(features: Features) -> State:
    """The state as it is kept."""
    n_live = int(features.n_live)
    directions, lengths = (np.asarray(part)[:n_live] for part in features.components)
    used = np.ascontiguousarray(np.asarray(features.assignments)[:, :n_live])
    return State(
        np.asarray(features.weights)[:n_live],
        lengths[:, None] * directions,
        np.packbits(used, axis=1),
        jax.device_get(features.hyper),
    )


def learn_steps(tuning: dict[str, Any], account: lfm_sweep.Account) -> dict[str, Any]:
    """Step sizes after one more sweep of warm-up."""
    return {
        name: adapt.learn(one, getattr(account.moved, name).acceptance, TARGETS[name])
        for name, one in tuning.items()
    }


def steps_of(tuning: dict[str, adapt.DualAveraging], warming: bool) -> Steps:
    """Step sizes to use now."""
    return Steps(**{name: adapt.current(one, warming) for name, one in tuning.items()})


def _sweep(
    chain: Chain, rows: FeatureRows, design: Design, index: int, steps: Steps
) -> tuple[Features, lfm_sweep.Account]:
    """One sweep; where the arrays are too small it is repeated with larger ones and the same key.

    The random numbers of a feature do not depend on the size of the arrays, so this is the sweep
    that larger arrays would have given at once. They are as small as before afterwards if what is
    left of the features allows it.
    """
    features = host_columns.set_aside(chain.features)
    columns, n_moved = np.asarray(chain.features.assignments), NONE
    begun, fits = begin_with_room(chain.key, index, features, design)
    if fits:
        begun, seen = _assign(begun, columns, rows, design)
        features, columns, n_moved = _finish_assignments(chain.key, index, begun, seen, design)
    else:
        features = without_unused(begun.features, design)
    room = chain.features.room
    if room < features.room and room < room_for(int(features.n_live)):
        room = features.room
    features = host_columns.taken_up(with_room(features, room), np.asarray(columns), room)
    stats = host_columns.summarise(features, rows)
    return finish_sweep(chain.key, index, features, stats, design, steps, n_moved)


def begin_with_room(
    key: Key, index: int, features: Features, design: Design
) -> tuple[lfm_sweep.Begun, bool]:
    """The part of a sweep before the rows, in arrays large enough, or that these may not be."""
    while True:
        begun = begin_sweep(key, index, features, design)
        if not bool(begun.slice.overflow):
            return begun, True
        room = more_room(features, design)
        if room is None:
            return begun, False
        features = with_room(features, room)


without_unused = jax.jit(lfm_sweep.without_unused, static_argnums=1)


def _assign(
    begun: lfm_sweep.Begun, used: np.ndarray, rows: FeatureRows, design: Design
) -> tuple[lfm_sweep.Begun, Seen]:
    """Products of the rows with the features and newborns in one pass, and new assignments."""
    n_live = int(begun.features.n_live)
    width = host_columns.width_for(n_live, begun.features.room, rows.n_rows)
    features = host_columns.taken_up(begun.features, used, width)
    vectors = np.asarray(begun.vectors)[:n_live]
    newborns = np.asarray(begun.newborns.vectors)[: design.n_null_moves]
    found = rows.products(np.concatenate([vectors, newborns]))
    assignments = sweep_rows(
        begun.noise,
        features.assignments,
        found[:, :n_live],
        np.asarray(begun.inner),
        np.asarray(features.weights),
        n_live,
        float(features.hyper.noise),
    )
    products = np.zeros((rows.n_rows, width), vectors.dtype)
    products[:, :n_live] = found[:, :n_live]
    new = found[:, n_live:].astype(vectors.dtype)
    seen = Seen(
        products,
        new,
        begun.seeds,
        rows.dense_block(np.asarray(begun.seeds)).astype(vectors.dtype),
        rows.row_energy().astype(vectors.dtype),
    )
    return begun._replace(features=features._replace(assignments=assignments)), seen


@partial(jax.jit, static_argnames="design")
def begin_sweep(key: Key, index: Array, features: Features, design: Design) -> lfm_sweep.Begun:
    """The part of sweep ``index`` before the rows are touched."""
    return lfm_sweep.begin(_keys(key, index), features, design)


@partial(jax.jit, static_argnames="design")
def _finish_assignments(
    key: Key, index: Array, begun: lfm_sweep.Begun, seen: Seen, design: Design
) -> tuple[Features, Array, Array]:
    return lfm_sweep.finish_assignments(_keys(key, index), begun, seen, design)


@partial(jax.jit, static_argnames="design")
def finish_sweep(
    key: Key,
    index: Array,
    features: Features,
    stats: FeatureStats,
    design: Design,
    steps: Steps,
    n_moved: Array,
) -> tuple[Features, lfm_sweep.Account]:
    """The part after it, through the statistics of the rows."""
    return lfm_sweep.finish(_keys(key, index), features, stats, design, steps, n_moved)


def _keys(key: Key, index: Array) -> lfm_sweep.Keys:
    return lfm_sweep.split(jax.random.fold_in(key, index))


def each(chains: Iterable[Chain], name: str) -> np.ndarray:
    """One number of the trace of every chain, (chain, draw); cut to the shortest."""
    series = [chain.trace.get(name, []) for chain in chains]
    length = min(map(len, series))
    return np.array([one[:length] for one in series])
