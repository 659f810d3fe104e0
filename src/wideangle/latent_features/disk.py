"""Rows that stay on disk, with their assignments: memory holds one block of rows.

A sweep is that of rows in memory without the moves of small features, each of which would read all
rows: features come and go through the slice alone. The sweep is as exact, draws the same random
numbers, and reads the rows twice, once to redraw assignments and once for their sums. Assignments
are a byte for each row and feature.

Of several processes each keeps neighbouring rows and their assignments, and all of them add up what
they have counted. The draws are those of one process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.latent_features.assignments import (
    Conditionals,
    conditionals,
    draw_randomness,
    sweep_block,
    sweep_coupled,
)
from wideangle.latent_features.chain import Chain, Plan, run_chain
from wideangle.latent_features.fit import Fitted
from wideangle.latent_features.memory import gram_of, take_columns
from wideangle.latent_features.rows import HostRows, kept
from wideangle.latent_features.state import (
    Design,
    Draw,
    Features,
    StoredAssignments,
    probes,
)
from wideangle.latent_features.sweep import SweepStart, drop_unused
from wideangle.progress import Progress
from wideangle.sharding import ALONE, Share, in_company, of_all, total
from wideangle.streaming.sources import RowSource, Scratch, chunks, neighbours
from wideangle.types import Key

BLOCK_ROWS = 2**15
"""Rows handled at once."""
SAMPLE_ENTRIES, SAMPLE_ROWS = 2**21, (2000, 20_000)
"""The sample that chains begin on: number of entries, and bounds on the number of rows."""
SAMPLE_SWEEPS = 50
"""Fewest sweeps on the sample, where they are cheap."""


class Sums(NamedTuple):
    """Sums over all rows for the features of a sweep."""

    gram: np.ndarray
    cross: np.ndarray
    packed: np.ndarray
    """Assignments of the sample, eight to a byte."""


class DiskRows(HostRows):
    """All rows of a source, and the assignments of one chain in a separate file.

    Parameters
    ----------
    source
        The rows.
    scaling
        Shift and scale of the rows.
    folder, name
        Where assignments are kept, and the beginning of the names of their files.
    sample
        Indices of some rows, in order; a draw keeps the assignments of these.
    share
        Part of the rows that is that of this process.
    """

    def __init__(
        self,
        source: RowSource,
        scaling: Any,
        folder: Path,
        name: str,
        sample: np.ndarray,
        share: Share = ALONE,
    ) -> None:
        self.n_rows, self.dim = source.shape
        self._first, self._source = neighbours(source, share)
        self._n_own, self._share = self._source.shape[0], share
        self._sample = inside(sample, self._first, self._n_own)
        self._dtype = np.dtype(jnp.result_type(float))
        self._shift = (scaling.shift / scaling.scale).astype(self._dtype)
        self._factor = self._dtype.type(1.0 / scaling.scale)
        self._folder, self._name, self._turn = folder, name, 0
        self._stored: Scratch | None = None
        self._sums: Sums | None = None

    def close(self) -> None:
        """Delete the file."""
        if self._stored is not None:
            self._stored.close()

    def begin(self, key: Key, features: Features) -> Features:
        """Assign each row separately to the features of a chain: a start, not a draw."""
        n_live = int(features.n_live)
        vectors = np.asarray(features.components.vectors)[:n_live].astype(self._dtype)
        given = conditionals(
            draw_randomness(key, features.room, vectors.dtype), vectors @ vectors.T,
            features.weights, np.zeros(n_live), n_live, float(features.hyper.noise_variance),
            vectors.dtype,
        )._replace(last=n_live)  # fmt: skip
        self._stored = self._new_store(n_live)
        counts = np.zeros(n_live, np.int64)
        for first, rows in self._blocks():
            products = rows @ vectors.T
            assignments = np.zeros((len(rows), n_live), np.uint8)
            for _ in range(2):
                sweep_block(given, self._first + first, assignments, products)
            self._stored.write(first, assignments)
            counts += assignments.sum(axis=0, dtype=np.int64)
        return self._with_counts(features, total(counts, self._share))

    def detached(self, features: Features) -> Features:
        """Nothing to do: assignments are never in the state."""
        return features

    def redraw(self, key: Key, start: SweepStart, features: Features, design: Design) -> Features:
        """New assignments of all rows."""
        features = start.features
        n_live = int(features.n_live)
        vectors = np.asarray(start.vectors)[:n_live].astype(self._dtype)
        stored = _stored_of(features)
        given = conditionals(
            start.randomness, start.inner, features.weights, stored.counts, n_live,
            float(features.hyper.noise_variance), vectors.dtype,
        )  # fmt: skip
        old, new = self._open(), self._new_store(n_live)
        try:
            counts = self._redraw_rows(given, vectors, np.asarray(stored.columns)[:n_live], new)
        except BaseException:
            new.close()  # the chain is unchanged
            raise
        old.close()
        self._stored = new
        return drop_unused(self._with_counts(features, counts), design)

    def leave(self, start: SweepStart, features: Features, design: Design) -> Features:
        """The old assignments of the features that stay."""
        return drop_unused(start.features, design)

    def _redraw_rows(
        self, given: Conditionals, vectors: np.ndarray, columns: np.ndarray, new: Scratch
    ) -> np.ndarray:
        """Fill ``new`` with assignments; returns the counts of the live features."""
        old, n_coupled = self._open(), given.n_live - given.last
        left = Scratch(self._folder / f"{self._name}-left", self._n_own, n_coupled, self._dtype)
        counts = np.zeros(given.n_live, np.int64)
        try:
            for first, rows in self._blocks():
                assignments = take_columns(old.read(first, len(rows)), columns)
                products = rows @ vectors.T
                left.write(first, sweep_block(given, self._first + first, assignments, products))
                new.write(first, assignments)
                counts += assignments.sum(axis=0, dtype=np.int64)
            counts = total(counts, self._share)
            blocks = _OnDisk(new, left, self._first, self._n_own, self._share)
            sweep_coupled(given, blocks, counts[: given.last] > 0, self.n_rows)
        finally:
            left.close()
        coupled = np.zeros(n_coupled, np.int64)
        for first in range(0, self._n_own, BLOCK_ROWS):
            part = new.read(first, min(BLOCK_ROWS, self._n_own - first))
            coupled += part[:, given.last :].sum(axis=0, dtype=np.int64)
        counts[given.last :] = total(coupled, self._share)
        return counts

    def probed(self, features: Features) -> np.ndarray:
        """Assignments of some rows of the sample."""
        assert self._sums is not None
        chosen, n_live = probes(len(self._sums.packed), self.dim)[0], int(features.n_live)
        assignments = np.unpackbits(self._sums.packed[chosen], axis=1, count=n_live)
        return np.pad(assignments, ((0, 0), (0, features.room - n_live)))

    def sums(self, features: Features) -> tuple[np.ndarray, np.ndarray, float]:
        """Z'Z, Z'X of the live features, and the sum of squares of all entries."""
        n_live = int(features.n_live)
        columns = np.asarray(_stored_of(features).columns)[:n_live]
        gram, cross, energy = np.zeros((n_live, n_live)), np.zeros((n_live, self.dim)), 0.0
        packed = []
        for first, rows in self._blocks():
            assignments = take_columns(self._open().read(first, len(rows)), columns)
            gram += gram_of(assignments)
            cross += assignments.astype(rows.dtype).T @ rows
            energy += float(np.einsum("nd,nd->", rows, rows, dtype=np.float64))
            sample = inside(self._sample, first, len(rows))
            packed.append(np.packbits(assignments[sample], axis=1))
        gram, cross, energy = (total(own, self._share) for own in (gram, cross, energy))
        everywhere = of_all(np.concatenate(packed), self._share)
        self._sums = Sums(gram, cross, np.concatenate(everywhere))
        return gram, cross, float(energy)

    def keep(self, features: Features) -> Draw:
        """The state as a draw, with the assignments of the sample from the last sums."""
        assert self._sums is not None
        sums = self._sums
        return kept(features, sums.packed, sums.gram, sums.cross, self.n_rows)

    def _blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """First row and scaled rows of every block."""
        for first, rows in chunks(self._source, BLOCK_ROWS):
            scaled = rows.astype(self._dtype) * self._factor
            yield first, scaled - self._shift if np.any(self._shift) else scaled

    def _with_counts(self, features: Features, counts: np.ndarray) -> Features:
        """Features whose columns are the stored ones, in order."""
        extra = features.room - len(counts)
        stored = StoredAssignments(
            jnp.asarray(np.pad(counts, (0, extra)), jnp.int32),
            jnp.asarray(np.pad(np.arange(len(counts)), (0, extra), constant_values=-1), jnp.int32),
            self.n_rows,
        )
        return features._replace(assignments=stored)

    def _open(self) -> Scratch:
        assert self._stored is not None, "begin() comes first"
        return self._stored

    def _new_store(self, width: int) -> Scratch:
        self._turn = 1 - self._turn
        path = self._folder / f"{self._name}-assignments-{self._turn}"
        return Scratch(path, self._n_own, width, np.uint8)


class _OnDisk(NamedTuple):
    """Blocks of assignments and of the products of residuals with coupled columns."""

    assignments: Scratch
    left: Scratch
    first: int
    n_rows: int
    share: Share

    def read(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        for place in range(0, self.n_rows, BLOCK_ROWS):
            size = min(BLOCK_ROWS, self.n_rows - place)
            parts = self.assignments.read(place, size), self.left.read(place, size)
            yield self.first + place, *parts

    def write(self, first: int, assignments: np.ndarray, left: np.ndarray) -> None:
        self.assignments.write(first - self.first, assignments)
        self.left.write(first - self.first, left)

    def place(self, log_unused: float) -> tuple[float, float]:
        ends = np.cumsum([0.0, *map(float, of_all(log_unused, self.share))])
        return float(ends[self.share.index]), float(ends[-1])


def inside(numbers: np.ndarray, first: int, size: int) -> np.ndarray:
    """Those of the rising numbers that are in a range, counted from its beginning."""
    low, high = np.searchsorted(numbers, [first, first + size])
    return numbers[low:high] - first


def _stored_of(features: Features) -> StoredAssignments:
    assert isinstance(features.assignments, StoredAssignments)
    return features.assignments


def draw_sample(
    source: RowSource, seed: int, share: Share = ALONE
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of random rows, in order, and these rows; checks all rows while reading."""
    n_rows, dim = source.shape
    size = int(np.clip(SAMPLE_ENTRIES // dim, *SAMPLE_ROWS))
    if n_rows <= size:
        numbers = np.arange(n_rows)
    else:
        generator = np.random.default_rng([seed, 1])
        numbers = np.sort(generator.choice(n_rows, size, replace=False, shuffle=False))
    begin, own = neighbours(source, share)
    parts, wrong = [], -1
    for place, rows in chunks(own, BLOCK_ROWS):
        if not np.isfinite(rows).all():
            wrong = begin + place + int(np.argwhere(~np.isfinite(rows))[0, 0])
            break
        parts.append(rows[inside(numbers, begin + place, len(rows))])
    for row in of_all(wrong, share):  # one that ended alone would leave the others waiting
        if row >= 0:
            raise ValueError(f"X: row {row} holds NaN or infinity; a stream must be complete.")
    return numbers, np.concatenate(of_all(np.concatenate(parts), share))


def fit_on_disk(
    fitted: Fitted,
    source: RowSource,
    scaling: Any,
    sample: np.ndarray,
    design: Design,
    plan: Plan,
    folder: Any,
    verbose: bool | None,
    share: Share = ALONE,
) -> Fitted:
    """Continue chains of a sample on all rows, which stay on disk, one chain after the other.

    Assignments are kept in ``folder`` during the fit.
    """
    chains, interrupted = [], fitted.interrupted
    n_sweeps = len(fitted.chains) * plan.n_sweeps
    with (
        in_company(),
        tempfile.TemporaryDirectory(prefix="wideangle-", dir=folder) as place,
        Progress(n_sweeps, 0, verbose) as bar,
    ):
        for number, warm in enumerate(fitted.chains):
            if interrupted:
                break
            chain = Chain(jax.random.fold_in(warm.key, 1), warm.features, warm.tuning)
            rows = DiskRows(source, scaling, Path(place), f"chain-{number}", sample, share)
            done = number * plan.n_sweeps

            def after(chain: Chain, done: int = done) -> bool:
                bar.at(done + chain.n_done)
                return False

            try:
                chain.features = rows.begin(chain.key, chain.features)
                run_chain(chain, rows, design.without_births(), plan, after=after)
            except KeyboardInterrupt:
                interrupted = True
            finally:
                rows.close()
            if chain.draws:
                chains.append(chain)
    if not chains:
        raise KeyboardInterrupt("stopped before the first draw that is kept")
    return Fitted(chains, fitted.objectives, interrupted)
