"""The sampler of the latent feature model on rows that stay on disk.

A sweep is the one of rows in memory (``latent_features/chain.py``) without births and deaths
outside the slice: those look at all rows at once. It is as exact, draws the same numbers, and
reads the rows twice, once to redraw assignments and once for their sums. Assignments are on disk,
too: a byte for each row and feature. Memory is that of a block of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.latent_features import chain as lfm_chain
from wideangle.latent_features.chain import Chain, Plan, State
from wideangle.latent_features.components import matters
from wideangle.latent_features.predict.held_out import FeatureDraw
from wideangle.latent_features.rows.columns import gram_of
from wideangle.latent_features.sampler import sweep as lfm_sweep
from wideangle.latent_features.sampler.assignment_blocks import given, sweep_block, sweep_tail
from wideangle.latent_features.sampler.design import Design
from wideangle.latent_features.state import Elsewhere, Features, FeatureStats
from wideangle.streaming.scratch import Scratch
from wideangle.streaming.sources import RowSource, chunks

BLOCK_ROWS = 2**15
"""Rows handled at once."""


class Stream(NamedTuple):
    """The rows in scaled units, and where notes about them are kept."""

    source: RowSource
    units: Any
    folder: Path
    sample: np.ndarray
    """Numbers of some rows, in order; of these the assignments are kept with a draw."""
    dtype: Any = np.float32

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        """First row and scaled rows of every block."""
        shift = (self.units.shift / self.units.scale).astype(self.dtype)
        factor = np.dtype(self.dtype).type(1.0 / self.units.scale)
        for first, rows in chunks(self.source, BLOCK_ROWS):
            scaled = rows.astype(self.dtype) * factor
            yield first, scaled - shift if np.any(shift) else scaled


class Sums(NamedTuple):
    """Sums over all rows for the features of a sweep."""

    gram: np.ndarray
    cross: np.ndarray
    energy: float
    bits: np.ndarray
    """Assignments of the sample, eight to a byte."""


class StreamedChain:
    """One chain, its assignments in a file."""

    def __init__(self, chain: Chain, stream: Stream, name: str) -> None:
        """Take up a chain that was run on other rows: keep its features, assign all rows anew."""
        self.chain, self.stream, self._name, self._turn = chain, stream, name, 0
        features = chain.features
        self._used, counts = self._first_assignments(features)
        room = features.room
        elsewhere = Elsewhere(
            jnp.asarray(_padded(counts, room), jnp.int32),
            jnp.asarray(_padded(np.arange(len(counts)), room, -1), jnp.int32),
            stream.source.shape[0],
        )
        chain.features = features._replace(assignments=elsewhere)
        self.masks: list[np.ndarray] = []
        """Which features of each kept state matter."""

    def close(self) -> None:
        """Delete the file."""
        self._used.close()

    def run(self, design: Design, plan: Plan, after: Callable[[Chain], None]) -> None:
        """Sweep until the plan is done."""
        chain = self.chain
        for index in range(chain.n_done, plan.n_sweeps):
            warming = index < plan.n_warmup
            account, sums = self.sweep(index, design, lfm_chain.steps_of(chain.tuning, warming))
            if design.hamiltonian and warming:
                chain.tuning = lfm_chain.learn_steps(chain.tuning, account)
            if not warming:
                numbers, hyper = jax.device_get((account, chain.features.hyper))
                n_rows, dim = self.stream.source.shape
                lfm_chain.record_numbers(chain, numbers, hyper, n_rows * dim)
                if plan.keeps(index - plan.n_warmup):
                    self._keep(sums)
            chain.n_done = index + 1
            after(chain)

    def sweep(self, index: int, design: Design, steps: Any) -> tuple[lfm_sweep.Account, Sums]:
        """One sweep: assignments, then features and hyperparameters."""
        chain, features = self.chain, self.chain.features
        begun, fits = lfm_chain.begin_with_room(chain.key, index, features, design)
        features = begun.features
        if fits:
            counts = self._assign(begun)
            features = features._replace(
                assignments=Elsewhere(
                    jnp.asarray(_padded(counts, features.room), jnp.int32),
                    jnp.asarray(_padded(np.arange(len(counts)), features.room, -1), jnp.int32),
                    self.stream.source.shape[0],
                )
            )
        features = lfm_chain.without_unused(features, design)
        sums = self._sums(features)
        stats = _as_stats(sums, features, self.stream.source.shape)
        chain.features, account = lfm_chain.finish_sweep(
            chain.key, index, features, stats, design, steps, lfm_chain.NONE
        )
        return account, sums

    def _first_assignments(self, features: Features) -> tuple[Scratch, np.ndarray]:
        """Every row by itself, twice over, from nothing: a start, no draw."""
        n_live = int(features.n_live)
        vectors = np.asarray(features.components.vectors)[:n_live].astype(self.stream.dtype)
        noise = lfm_sweep.draw_noise(self.chain.key, features.room, vectors.dtype)
        how = given(
            noise, vectors @ vectors.T, features.weights, np.zeros(n_live), n_live,
            float(features.hyper.noise), vectors.dtype,
        )._replace(last=n_live)  # fmt: skip
        used = self._store(n_live)
        counts = np.zeros(n_live, np.int64)
        for first, rows in self.stream.blocks():
            products = rows @ vectors.T
            block = np.zeros((len(rows), n_live), np.uint8)
            for _ in range(2):
                block, _ = sweep_block(how, first, block, products)
            used.write(first, block)
            counts += block.sum(axis=0, dtype=np.int64)
        return used, counts

    def _assign(self, begun: lfm_sweep.Begun) -> np.ndarray:
        """Redraw the assignments of all rows; the counts of the live features."""
        features, n_rows = begun.features, self.stream.source.shape[0]
        before = _elsewhere(features)
        n_live = int(features.n_live)
        vectors = np.asarray(begun.vectors)[:n_live].astype(self.stream.dtype)
        how = given(
            begun.noise, begun.inner, features.weights, before.counts, n_live,
            float(features.hyper.noise), vectors.dtype,
        )  # fmt: skip
        stored = np.asarray(before.stored)[:n_live]
        old, new = self._used, self._store(n_live)
        rest = Scratch(
            self.stream.folder / f"{self._name}-rest", n_rows, n_live - how.last, vectors.dtype
        )
        counts = np.zeros(n_live, np.int64)
        try:
            for first, rows in self.stream.blocks():
                used = _columns(old.read(first, len(rows)), stored)
                used, left = sweep_block(how, first, used, rows @ vectors.T)
                new.write(first, used)
                rest.write(first, left)
                counts += used.sum(axis=0, dtype=np.int64)
            sweep_tail(how, new, rest, counts, n_rows, BLOCK_ROWS)
        except BaseException:
            new.close()  # the chain stays where it was
            raise
        finally:
            rest.close()
        old.close()
        self._used = new
        counts[how.last :] = 0
        for first in range(0, n_rows, BLOCK_ROWS):
            part = new.read(first, min(BLOCK_ROWS, n_rows - first))
            counts[how.last :] += part[:, how.last :].sum(axis=0, dtype=np.int64)
        return counts

    def _sums(self, features: Features) -> Sums:
        """Sums of the rows that use each feature, and of pairs of features."""
        n_live, dim = int(features.n_live), self.stream.source.shape[1]
        stored = np.asarray(_elsewhere(features).stored)[:n_live]
        gram, cross, energy = np.zeros((n_live, n_live)), np.zeros((n_live, dim)), 0.0
        sample, bits = self.stream.sample, []
        for first, rows in self.stream.blocks():
            used = _columns(self._used.read(first, len(rows)), stored)
            weights = used.astype(rows.dtype)
            gram += gram_of(used)
            cross += weights.T @ rows
            energy += float(np.einsum("nd,nd->", rows, rows, dtype=np.float64))
            low, high = np.searchsorted(sample, [first, first + len(rows)])
            bits.append(np.packbits(used[sample[low:high] - first], axis=1))
        return Sums(gram, cross, energy, np.concatenate(bits))

    def _keep(self, sums: Sums) -> None:
        features = self.chain.features
        n_live = int(features.n_live)
        state = State(
            np.asarray(features.weights)[:n_live],
            np.asarray(features.components.vectors)[:n_live],
            sums.bits,
            jax.tree.map(np.asarray, features.hyper),
        )
        self.chain.kept.append(state)
        draw = FeatureDraw(state.vectors, state.weights, float(state.hyper.noise), None)
        n_rows = self.stream.source.shape[0]
        self.masks.append(matters(draw, sums.gram, sums.cross, n_rows))

    def _store(self, width: int) -> Scratch:
        self._turn = 1 - self._turn
        path = self.stream.folder / f"{self._name}-used-{self._turn}"
        return Scratch(path, self.stream.source.shape[0], width, np.uint8)


def _as_stats(sums: Sums, features: Features, shape: tuple[int, int]) -> FeatureStats:
    n_live, room = int(features.n_live), features.room
    dtype = features.weights.dtype
    gram, cross = np.zeros((room, room), dtype), np.zeros((room, shape[1]), dtype)
    gram[:n_live, :n_live], cross[:n_live] = sums.gram, sums.cross
    return FeatureStats(
        gram, cross, np.asarray(sums.energy, dtype), np.asarray(shape[0] * shape[1], dtype)
    )


def _elsewhere(features: Features) -> Elsewhere:
    assert isinstance(features.assignments, Elsewhere)
    return features.assignments


def _columns(stored: np.ndarray, which: np.ndarray) -> np.ndarray:
    """Columns of a block by their places; -1 is a column of zeros."""
    if stored.shape[1] == 0:
        return np.zeros((len(stored), len(which)), np.uint8)
    return np.where(which >= 0, stored[:, which], 0).astype(np.uint8)


def _padded(values: np.ndarray, room: int, fill: int = 0) -> np.ndarray:
    return np.concatenate([values, np.full(room - len(values), fill)])


def without_births(design: Design) -> Design:
    """The same design without the moves that look at all rows at once."""
    return replace(design, n_null_moves=0, n_single_moves=0)
