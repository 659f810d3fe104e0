"""Where the rows of a fit live (memory, a device, disk), and what a chain needs from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from wideangle.latent_features.directions import Steps, Tuning, learn_steps, steps_of
from wideangle.latent_features.state import (
    Design,
    Draw,
    Features,
    FeatureStats,
    Hyper,
    more_room,
    with_room,
    worth,
)
from wideangle.latent_features.sweep import (
    SweepInfo,
    SweepStart,
    finish_sweep,
    start_sweep,
)
from wideangle.sharding import current_mesh
from wideangle.types import Array, Key

if TYPE_CHECKING:
    from wideangle.latent_features.memory import MemoryRows

WORTH_A_DEVICE = 2**20
"""Least number of entries for an accelerator: the CPU sweeps over fewer faster."""
NO_STEPS = Steps(np.zeros(()), np.zeros(()))


_key_of_sweep = jax.jit(jax.random.fold_in)


class Span(NamedTuple):
    """The next sweeps of a chain."""

    first: int
    n_sweeps: int
    n_warmup: int
    """Warm-up sweeps of the whole chain: step sizes are learned in these."""


class Advance(NamedTuple):
    """A chain after some sweeps, one for each report; possibly fewer than requested."""

    features: Features
    tuning: Tuning
    reports: list[tuple[SweepInfo, Hyper]]


class Rows(ABC):
    """Rows of one chain."""

    n_rows: int
    dim: int
    at_once = 1
    """Most sweeps between two checks."""
    turn: AbstractContextManager[Any] = nullcontext()
    """Held while a chain runs: chains that share a device take turns."""

    def begin(self, key: Key, features: Features) -> Features:
        """The state of a chain, with assignments stored where these rows keep them."""
        return features

    def compile(self, key: Key, features: Features, design: Design) -> None:  # noqa: B027
        """Compile what :meth:`advance` needs, if that saves time; else its first call does it."""

    @abstractmethod
    def advance(
        self, key: Key, span: Span, features: Features, tuning: Tuning, design: Design
    ) -> Advance:
        """Make sweeps."""

    @abstractmethod
    def keep(self, features: Features) -> Draw:
        """The state as a draw."""


class HostRows(Rows):
    """A sweep of rows on the host; how assignments are redrawn depends on where they are stored."""

    def refresh(self, key: Key, features: Features) -> None:
        """Redraw missing entries; complete rows have none."""

    @abstractmethod
    def detached(self, features: Features) -> Features:
        """The state with stored assignments, for the part of a sweep before the rows."""

    @abstractmethod
    def redraw(self, key: Key, start: SweepStart, features: Features, design: Design) -> Features:
        """New assignments, births and deaths."""

    @abstractmethod
    def leave(self, start: SweepStart, features: Features, design: Design) -> Features:
        """The old assignments, in the order that a sweep gave them."""

    @abstractmethod
    def sums(self, features: Features) -> tuple[np.ndarray, np.ndarray, float]:
        """Z'Z, Z'X of the live features, and the sum of squares of all entries."""

    @abstractmethod
    def probed(self, features: Features) -> np.ndarray:
        """Assignments of the rows that are watched, after :meth:`sums`; (P, room)."""

    def advance(
        self, key: Key, span: Span, features: Features, tuning: Tuning, design: Design
    ) -> Advance:
        """One sweep."""
        warming, key = span.first < span.n_warmup, _key_of_sweep(key, span.first)
        steps = steps_of(tuning, warming) if design.hamiltonian else NO_STEPS
        self.refresh(key, features)
        features, info = self.sweep(key, features, design, steps)
        if design.hamiltonian and warming:
            tuning = learn_steps(tuning, info.moved)
        return Advance(features, tuning, [jax.device_get((info, features.hyper))])

    def sweep(
        self, key: Key, features: Features, design: Design, steps: Steps
    ) -> tuple[Features, SweepInfo]:
        """The sweep of this key."""
        start, fits = self._start(key, features, design)
        if fits:
            features = self.redraw(key, start, features, design)
        else:
            features = self.leave(start, features, design)
        stats = self._stats(features)
        return finish_sweep(key, features, stats, self.probed(features), design, steps)

    def _stats(self, features: Features) -> FeatureStats:
        """Statistics of the rows, padded to the size of the arrays."""
        n_live, room, dtype = int(features.n_live), features.room, features.weights.dtype
        gram, cross = np.zeros((room, room), dtype), np.zeros((room, self.dim), dtype)
        gram[:n_live, :n_live], cross[:n_live], energy = self.sums(features)
        count = np.asarray(self.n_rows * self.dim, dtype)
        return FeatureStats(gram, cross, np.asarray(energy, dtype), count)

    def _start(self, key: Key, features: Features, design: Design) -> tuple[SweepStart, bool]:
        """The part of a sweep before the rows, in large enough arrays if these are allowed.

        If the arrays are too small it is repeated with larger ones and the same key. The random
        numbers of a feature do not depend on the size of the arrays, so the result is the same as
        with larger arrays from the start.
        """
        features = self.detached(features)
        while True:
            start = start_sweep(key, features, design)
            if not bool(start.slice.overflow):
                return start, True
            room = more_room(features, design)
            if room is None:
                return start, False
            features = with_room(features, room)


def kept(features: Features, packed: np.ndarray, gram: Any, cross: Any, n_rows: int) -> Draw:
    """A draw from the state of a chain, packed assignments and sums over the rows."""
    n_live = int(features.n_live)
    vectors = vectors_of(features)
    hyper = jax.device_get(features.hyper)
    worths = worth(vectors, float(hyper.noise_variance), gram, cross, n_rows)
    return Draw(np.asarray(features.weights)[:n_live], vectors, hyper, packed, worths)


def vectors_of(features: Features) -> np.ndarray:
    """The live features in NumPy: there is nothing to compile."""
    n_live = int(features.n_live)
    directions, lengths = (np.asarray(part)[:n_live] for part in features.components)
    return lengths[:, None] * directions


# ---------------------------------------------------------------- rows for compiled programs


class DenseRows(NamedTuple):
    """All rows as one array, (N, D)."""

    rows: Array

    def products(self, vectors: Array) -> Array:
        """Inner products of each row with each vector, (N, K)."""
        return self.rows @ vectors.T

    def cross(self, assignments: Array) -> Array:
        """Sum of the rows that use each feature, (K, D)."""
        return assignments.T @ self.rows

    def take(self, numbers: Array) -> Array:
        """Some rows."""
        return self.rows[numbers]

    def energy(self) -> Array:
        """Squared lengths of the rows."""
        return jnp.sum(self.rows**2, axis=1)


# ---------------------------------------------------------------- where rows live


def home_of(matrix: Any) -> AbstractContextManager[Any]:
    """Where a fit of these rows runs: on JAX's default device, or on the CPU if there are few.

    A device that the user has chosen is kept.
    """
    chosen = jax.config.jax_default_device is not None or current_mesh() is not None  # pyright: ignore[reportAttributeAccessIssue]
    if chosen or jax.default_backend() == "cpu" or np.prod(matrix.shape) >= WORTH_A_DEVICE:
        return nullcontext()
    return jax.default_device(jax.devices("cpu")[0])


def has_gaps(matrix: Any) -> bool:
    """Whether entries are missing."""
    return bool(np.isnan(matrix.data if sparse.issparse(matrix) else matrix).any())


def on_device(matrix: Any) -> bool:
    """Whether the sweeps run as one program on devices: rows spread over several, or a GPU.

    JAX's default device decides. Rows with missing entries stay on the host.
    """
    spread = current_mesh() is not None and not sparse.issparse(matrix)
    (device,) = jnp.zeros(()).devices()
    return (spread or device.platform != "cpu") and not has_gaps(matrix)


def rows_in_memory(matrix: Any, offset: np.ndarray | None, n_chains: int = 1) -> list[MemoryRows]:
    """Rows for the searches of some chains: shared, unless each has its own missing entries."""
    from wideangle.latent_features.imputed import ImputedRows
    from wideangle.latent_features.memory import MemoryRows

    if not has_gaps(matrix):
        return [MemoryRows(matrix, offset)] * n_chains

    return [ImputedRows(matrix, offset) for _ in range(n_chains)]


def rows_on_device(in_memory: list[MemoryRows]) -> list[Rows]:
    """The same rows on a device, for the sweeps of the same chains."""
    from wideangle.latent_features.device import DeviceRows

    return [DeviceRows(in_memory[0])] * len(in_memory)
