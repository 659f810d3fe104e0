"""From a source of rows to chains of the latent feature model: sample, start, stream."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from wideangle.infer.progress import Progress
from wideangle.latent_features import fit as lfm_fit
from wideangle.latent_features import match as lfm_match
from wideangle.latent_features import posterior as lfm_posterior
from wideangle.latent_features import settings as lfm_prepare
from wideangle.latent_features.chain import Chain, Plan
from wideangle.latent_features.disk_chain import Stream, StreamedChain, without_births
from wideangle.latent_features.rows.memory import FeatureRows
from wideangle.streaming.sources import RowSource, chunks

SAMPLE_ENTRIES, SAMPLE_ROWS = 2**21, (2000, 20_000)
"""The sample that a chain starts from: so many entries, within these numbers of rows."""
SAMPLE_SWEEPS = 50
"""Sweeps on the sample at least: they cost little there."""
READ_ROWS = 2**15


class StreamedFit(NamedTuple):
    """Chains in the posterior of all rows; their assignments are those of the sample."""

    chains: list[Chain]
    matched: lfm_match.Matched
    objectives: np.ndarray
    interrupted: bool
    n_sample: int


def fit_stream(model: Any, source: RowSource, seed: int, folder: Any) -> StreamedFit:
    """Search and warm up on a sample, then sweep over all rows, one chain after the other."""
    model.scaling_ = units = lfm_prepare.learn_scaling(
        _Sliced(source), standardise=model.standardise
    )
    numbers, some = _sample(source, seed)
    design, values = model._design(source.shape[1], False)
    plan, chains_wanted = model._plan(), model.choice("inference").n_chains
    key = jax.random.key(seed, impl="threefry2x32")
    matrix, offset = units.apply(some)
    rows = FeatureRows(matrix, offset)
    how = lfm_fit.Settings(
        Plan(max(plan.n_warmup, SAMPLE_SWEEPS), 1, 1),
        chains_wanted,
        lfm_fit.n_workers(model.n_jobs, chains_wanted),
        model.choice("search").max_features,
        model.choice("search").hops,
        None,
        "",
        model.progress,
    )
    begun = lfm_fit.fit(key, lambda: rows, design, values, how)
    chains, masks, interrupted = [], [], begun.interrupted
    total = len(begun.chains) * plan.n_sweeps
    with (
        tempfile.TemporaryDirectory(prefix="wideangle-", dir=folder) as place,
        Progress(total, 0, model.progress) as bar,
    ):
        dtype = np.dtype(jnp.result_type(float))
        stream = Stream(source, units, Path(place), numbers, dtype)
        for number, chain in enumerate(begun.chains):
            fresh = Chain(jax.random.fold_in(chain.key, 1), chain.features, chain.tuning)
            done = number * plan.n_sweeps
            one = None
            try:
                if not interrupted:
                    one = StreamedChain(fresh, stream, f"chain-{number}")
                    one.run(
                        without_births(design), plan, lambda c, done=done: bar.at(done + c.n_done)
                    )
            except KeyboardInterrupt:
                interrupted = True
            finally:
                if one is not None:
                    one.close()
            if one is not None and fresh.kept:
                chains.append(fresh)
                masks += one.masks
    if not chains:
        raise KeyboardInterrupt("stopped before the first draw that is kept")
    gathered = lfm_posterior.gather(chains)
    matched = lfm_match.match(
        [lfm_posterior.as_draw(state) for state in gathered.states], masks,
        chains=gathered.chains, min_presence=lfm_posterior.MIN_PRESENCE,
    )  # fmt: skip
    return StreamedFit(chains, matched, begun.objectives, interrupted, len(numbers))


def _sample(source: RowSource, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of random rows, in order, and these rows; all rows are checked on the way."""
    n_rows, dim = source.shape
    size = int(np.clip(SAMPLE_ENTRIES // dim, *SAMPLE_ROWS))
    numbers = np.arange(n_rows)
    if n_rows > size:
        generator = np.random.default_rng([seed, 1])
        numbers = np.sort(generator.choice(n_rows, size, replace=False, shuffle=False))
    parts = []
    for first, rows in chunks(source, READ_ROWS):
        if not np.isfinite(rows).all():
            row = first + int(np.argwhere(~np.isfinite(rows))[0, 0])
            raise ValueError(f"X: row {row} holds NaN or infinity; a stream must be complete.")
        low, high = np.searchsorted(numbers, [first, first + len(rows)])
        parts.append(rows[numbers[low:high] - first])
    return numbers, np.concatenate(parts)


class _Sliced:
    """Rows of a source by slices, ``rows[first:last]``, asked for in order."""

    def __init__(self, source: RowSource) -> None:
        self._source, self.shape = source, source.shape

    def __getitem__(self, part: slice) -> np.ndarray:
        start, stop, _ = part.indices(self.shape[0])
        starts = self._source.starts
        first = int(np.searchsorted(starts, start, side="right")) - 1
        last = int(np.searchsorted(starts, stop, side="left"))
        rows = np.concatenate([self._source.read(block)[0] for block in range(first, last)])
        return rows[start - starts[first] : stop - starts[first]]
