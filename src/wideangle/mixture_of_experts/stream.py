"""Stochastic VI of the mixture of experts on rows that stay on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from wideangle.mixture_of_experts import variational
from wideangle.mixture_of_experts.data import Data, seed_of
from wideangle.mixture_of_experts.predict import log_lik_of_rows
from wideangle.mixture_of_experts.prepare import Scaling, scaling_from
from wideangle.mixture_of_experts.task import Fitted, Task, checkpoint_of
from wideangle.mixture_of_experts.variational import VariationalFit
from wideangle.settings import Settings, Variational
from wideangle.sharding import reading_share
from wideangle.streaming.minibatches import StreamedMinibatches
from wideangle.streaming.sources import RowSource
from wideangle.streaming.survey import Survey, survey
from wideangle.types import Key

SAMPLE_BYTES, SAMPLE_ROWS = 2**25, (4096, 2**17)
"""Sample for starts, bound and diagnostics: its memory, and bounds on its rows."""
BUFFER_BYTES = 2**26
"""Default size of the buffer in which rows are shuffled."""
PREDICT_ROWS = 4096


class Prepared(NamedTuple):
    """What one pass through the source found."""

    scaling: Scaling
    encode: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
    """Prepared rows and targets, and weights, of rows and targets in the source."""
    sample: Data
    """Some prepared rows, weighted to represent all."""
    n_rows: int
    key: Key
    survey: Survey


def check_inference(inference: Settings) -> None:
    """Reject inference that needs all rows in memory."""
    if not isinstance(inference, Variational):
        raise ValueError(f"inference={inference}: rows on disk are fitted with inference='vi'.")


def prepare(
    source: RowSource,
    seed: int,
    learn_targets: Callable[[Survey], np.ndarray],
    encoded: Callable[[np.ndarray, int], np.ndarray],
    *,
    quantity: bool,
    standardise: bool,
    limited: Callable[[Scaling, float], Scaling],
    verbose: bool | None,
) -> Prepared:
    """One pass: targets, weights of classes, scales of columns, a sample."""
    key, key_sample = jax.random.split(jax.random.key(seed))
    n_rows, width = source.shape
    n_sample = int(np.clip(SAMPLE_BYTES // (4 * width), *SAMPLE_ROWS))
    share = reading_share(len(source.starts) - 1)
    found = survey(source, seed_of(key_sample), n_sample, verbose, quantity=quantity, share=share)
    class_weights, counts = learn_targets(found), found.moments.counts
    mean, variance = found.moments.weighted(class_weights)
    scaling = scaling_from(
        *(part[:width] for part in (mean, np.sqrt(variance), found.moments.binary)),
        standardise=standardise,
        dtype=source.dtype,
        sparse=getattr(source, "sparse", False),
    )
    scaling = limited(scaling, float(class_weights @ counts))

    def encode(rows: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        values = encoded(targets, len(rows))
        weights = np.ones(len(values)) if quantity else class_weights[values]
        return scaling.apply(rows), values, weights

    rows, targets, weights = encode(found.rows, found.targets)
    share = class_weights @ counts / max(weights.sum(), 1e-300)
    sample = Data(rows, targets, weights * share)
    return Prepared(scaling, encode, sample, n_rows, key, found)


def fit(
    task: Task,
    source: RowSource,
    found: Prepared,
    buffer_bytes: int = BUFFER_BYTES,
) -> Fitted:
    """Draws of the approximations reached on minibatches from the source."""
    key_fit, key_draw = jax.random.split(found.key)
    sample = found.sample
    stream = partial(
        StreamedMinibatches,
        source=source,
        encode=found.encode,
        width=sample.rows.shape[1],
        size=task.inference.batch_size,
        buffer_bytes=buffer_bytes,
        share=reading_share(len(source.starts) - 1),
    )
    moments = found.survey.moments
    facts = {"sums": moments.sums, "squares": moments.squares, "counts": moments.counts}
    facts |= {"rows": sample.rows, "targets": sample.targets, "starts": source.starts}
    facts["buffer"] = np.array(buffer_bytes)
    checkpoint = checkpoint_of(found.key, task, facts)
    fits = variational.fit_starts(key_fit, task, sample, checkpoint=checkpoint, stream=stream)
    fits = [_with_sampling_error(fit, sample, found.n_rows) for fit in fits]
    fitted = variational.draws_of(key_draw, fits)
    fitted.notes["n_rows"] = found.n_rows
    return fitted


def _with_sampling_error(fit: VariationalFit, sample: Data, n_rows: int) -> VariationalFit:
    r"""Add to the error of the bound that from using a sample of n of N rows.

    .. math:: N \,\mathrm{sd}(w_i \log p(y_i\mid x_i)) \sqrt{(1 - n/N) / n}

    with the mean weights in place of their distribution.
    """
    mean = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32)[None], fit.mean)
    n = len(sample.targets)
    found = log_lik_of_rows(fit.expert, mean, sample.rows, sample.targets)
    values = found[0] * sample.weights
    # Weights of the sample already represent N / n rows each.
    error = n * np.std(values) * np.sqrt(max(1.0 - n / n_rows, 0.0) / n)
    return replace(fit, elbo_error=float(np.hypot(fit.elbo_error, error)))


def blocks(
    source: RowSource,
    n_features: int,
    prepare: Callable[[np.ndarray], np.ndarray],
    *,
    complete: bool,
) -> Iterator[np.ndarray]:
    """Prepared rows, a block at a time, in the order of the source.

    Entries may be missing only if rows need not be ``complete``.
    """
    if source.shape[1] != n_features:
        raise ValueError(
            f"the source has {source.shape[1]} columns, but the model was fitted with {n_features}."
        )
    for block in range(len(source.starts) - 1):
        rows, _ = source.read(block)
        wrong = ~np.isfinite(rows) if complete else np.isinf(rows)
        if wrong.any():
            row = int(source.starts[block] + np.argwhere(wrong)[0, 0])
            raise ValueError(f"X: row {row} holds {'NaN or ' * complete}infinity.")
        for first in range(0, len(rows), PREDICT_ROWS):
            yield prepare(rows[first : first + PREDICT_ROWS])
