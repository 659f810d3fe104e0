"""Stochastic VI of the mixture of experts on rows that stay on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from sklearn.utils.class_weight import compute_class_weight

from wideangle.mixture_of_experts import variational
from wideangle.mixture_of_experts.data import (
    Data,
    Scaling,
    TargetScaling,
    scaling_from,
    seed_of,
    target_scaling_from,
)
from wideangle.mixture_of_experts.predict import log_lik_of_rows
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


class Classes(NamedTuple):
    """Targets that are classes, and how much a row of each counts."""

    labels: np.ndarray
    weights: np.ndarray

    def encode(self, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Classes 0..C-1, and weights of the rows."""
        which = np.searchsorted(self.labels, targets).astype(np.int32)
        return which, self.weights[which]


class Quantity(NamedTuple):
    """Targets that are numbers; all rows have equal weight."""

    scaling: TargetScaling

    def encode(self, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Standardised numbers, and weights of the rows."""
        return self.scaling.apply(targets), np.ones(len(targets))


@dataclass(frozen=True)
class Prepared:
    """What one pass through the source found."""

    targets: Classes | Quantity
    scaling: Scaling
    sample: Data
    """Some prepared rows, weighted to represent all."""
    n_rows: int
    key: Key
    survey: Survey

    def encode(
        self, rows: np.ndarray, targets: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Prepared rows and targets, and weights."""
        return self.scaling.apply(rows), *self.targets.encode(targets)


def check_inference(inference: Settings) -> None:
    """Reject inference that needs all rows in memory."""
    if not isinstance(inference, Variational):
        raise ValueError(f"inference={inference}: rows on disk are fitted with inference='vi'.")


def classes_of(found: Survey, class_weight: Any) -> Classes:
    """Classes of the targets, and their weights."""
    counts = found.moments.counts
    weights = np.ones(len(counts))
    if class_weight == "balanced":
        weights = counts.sum() / (len(counts) * counts)
    elif class_weight is not None:
        weights = compute_class_weight(class_weight, classes=found.classes, y=found.classes)
    return Classes(found.classes, weights)


def quantity_of(found: Survey, intercept: bool) -> Quantity:
    """Mean and standard deviation of the targets."""
    mean, variance = (moment[-1] for moment in found.moments.weighted(np.ones(1)))
    return Quantity(target_scaling_from(mean, np.sqrt(variance), intercept=intercept))


def prepare(
    source: RowSource,
    seed: int,
    targets_of: Callable[[Survey], Classes | Quantity],
    *,
    quantity: bool,
    standardise: bool,
    intercept: bool,
    limited: Callable[[Scaling, float], Scaling],
    verbose: bool | None,
) -> Prepared:
    """One pass: targets, weights, scales of columns, a sample."""
    key, key_sample = jax.random.split(jax.random.key(seed))
    n_rows, width = source.shape
    n_sample = int(np.clip(SAMPLE_BYTES // (4 * width), *SAMPLE_ROWS))
    share = reading_share(len(source.starts) - 1)
    found = survey(source, seed_of(key_sample), n_sample, verbose, quantity=quantity, share=share)
    targets = targets_of(found)
    counts = found.moments.counts
    class_weights = targets.weights if isinstance(targets, Classes) else np.ones(1)
    mean, variance = found.moments.weighted(class_weights)
    scaling = scaling_from(
        *(part[:width] for part in (mean, np.sqrt(variance), found.moments.binary)),
        standardise=standardise,
        intercept=intercept,
        dtype=source.dtype,
        sparse=getattr(source, "sparse", False),
    )
    scaling = limited(scaling, float(class_weights @ counts))
    nothing = Data(np.empty((0, 0)), np.empty(0, np.int32), np.empty(0))
    prepared = Prepared(targets, scaling, nothing, n_rows, key, found)
    rows, encoded, weights = prepared.encode(found.rows, found.targets)
    share = class_weights @ counts / max(weights.sum(), 1e-300)
    return replace(prepared, sample=Data(rows, encoded, weights * share))


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
