"""From what a user passes to what the latent feature sampler wants: units, rows, design."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy import sparse

from wideangle.estimators.lfm_design import UNIT, Design, Gamma
from wideangle.estimators.lfm_fit import Values
from wideangle.models.feature_rows import FeatureRows
from wideangle.models.imputed_rows import ImputedRows
from wideangle.sphere.bessel import inverse_mean_resultant
from wideangle.storage import fingerprint

PAPER_NOISE = 0.25
"""Noise variance of the paper's rule, for data of unit variance."""
MAX_CONCENTRATION = 1e6


class Units(NamedTuple):
    """Rows are shifted by column and divided by one number before they are modelled."""

    shift: np.ndarray
    scale: float

    def apply(self, X: Any) -> tuple[Any, np.ndarray | None]:
        """Scaled rows, and the offset still to be subtracted from them; sparse stays sparse."""
        dtype = jnp.result_type(float)
        if sparse.issparse(X):
            rows = sparse.csr_matrix(X, dtype=np.float64) * (1.0 / self.scale)
            rows.data = rows.data.astype(dtype)
        else:
            rows = (np.asarray(X, np.float64) / self.scale).astype(dtype)
        offset = self.shift / self.scale if np.any(self.shift) else None
        return rows, offset


def learn_units(X: Any, *, centre: bool) -> Units:
    """Column means if wanted, and the standard deviation of all entries around the common mean.

    One scale for all columns keeps the noise the same in all of them, as the model has it.
    """
    n_rows, dim = X.shape
    if sparse.issparse(X):
        seen = ~np.isnan(X.data)
        largest = np.max(np.abs(X.data[seen]), initial=0.0) or 1.0
        counts = n_rows - np.bincount(X.indices[~seen], minlength=dim)
        data = np.where(seen, X.data, 0.0) / largest
        sums = np.bincount(X.indices, weights=data, minlength=dim)
        square = float(np.sum(data**2))
    else:
        seen = ~np.isnan(X)
        largest = np.max(np.abs(X[seen]), initial=0.0) or 1.0
        counts = seen.sum(axis=0)
        data = np.where(seen, X, 0.0) / largest  # so that no square overflows
        sums, square = data.sum(axis=0), float(np.sum(data**2))
    total = max(int(counts.sum()), 1)
    means = sums / np.maximum(counts, 1)
    middle = np.sum(counts * means**2) if centre else float(sums.sum()) ** 2 / total
    variance = max(square - middle, 0.0) / total
    scale = np.sqrt(variance) if variance > 1e-20 * max(square / total, 1e-300) else 0.0
    if scale == 0.0:  # all entries are the same: any unit will do
        scale = np.sqrt(square / total) or 1.0
    shift = means * largest if centre else np.zeros(dim)
    return Units(shift, float(scale * largest))


def make_rows(matrix: Any, offset: np.ndarray | None) -> FeatureRows:
    """Rows for one chain; with missing entries every chain gets a copy."""
    entries = matrix.data if sparse.issparse(matrix) else matrix
    kind = ImputedRows if np.isnan(entries).any() else FeatureRows
    return kind(matrix, offset)


def n_seen(X: Any) -> np.ndarray:
    """Entries of each row that are not missing."""
    if sparse.issparse(X):
        missing = np.add.reduceat(np.append(np.isnan(X.data), False), X.indptr[:-1])
        missing[np.diff(X.indptr) == 0] = 0
        return X.shape[1] - missing
    return (~np.isnan(X)).sum(axis=1)


def design_of(model: Any, dim: int, units: Units) -> tuple[Design, Values]:
    """The sampler's settings and values, in scaled units, from the estimator's parameters."""
    learned = set()

    def value(name: str, setting: Any, start: float | None) -> float | None:
        if setting == "learn":
            learned.add(name)
            return start
        return float(setting)

    pitman_yor = model.process == "pitman-yor"
    alpha = value("mass", model.alpha, None)
    discount = value("discount", model.discount, 0.25) if pitman_yor else 0.0
    strength = value("strength", model.strength, 1.0) if pitman_yor else 1.0
    concentration = 0.0
    if model.prior == "mutual-angular":
        concentration = _concentration(model, dim, value)
    noise = value("noise", 1.0 if model.noise_scale == "paper" else model.noise_scale, None)
    if noise is not None:
        noise = PAPER_NOISE if model.noise_scale == "paper" else (noise / units.scale) ** 2
    rate = value("rate", model.magnitude_rate, None)
    gaussian = model.prior == "gaussian"
    if rate is not None:
        rate *= units.scale**2 if gaussian else units.scale
    design = Design(
        features="gaussian" if gaussian else "polar",
        ordered=concentration > 0,
        magnitude_shape=float(model.magnitude_shape),
        learned=frozenset(learned),
        noise=Gamma(1.0, 0.05),
        # Lengths of the order of sqrt(D), entries of the order of 1.
        rate=UNIT if gaussian else Gamma(1.0, 0.5 * dim**0.5),
    )
    return design, Values(alpha, discount, strength, noise, concentration, rate)


def _concentration(model: Any, dim: int, value: Any) -> float:
    start = float(inverse_mean_resultant(jnp.asarray(max(model.cosine, 1e-3), float), dim))
    if model.concentration is not None:
        return min(value("concentration", model.concentration, start), MAX_CONCENTRATION)
    return start if model.cosine > 0 else 0.0


def fingerprint_of(model: Any, matrix: Any, offset: np.ndarray | None, seed: int) -> str:
    """A hash of data and settings, so that a checkpoint of another fit is refused."""
    if model.checkpoint is None:
        return ""
    apart = ("checkpoint", "progress", "random_state", "n_jobs", "min_presence", "price")
    meta = {k: repr(v) for k, v in model.get_params(deep=False).items() if k not in apart}
    is_sparse = sparse.issparse(matrix)
    parts = (matrix.data, matrix.indices, matrix.indptr) if is_sparse else (matrix,)
    arrays = {f"rows_{i}": np.asarray(part) for i, part in enumerate(parts)}
    arrays["seed"] = np.array(seed)
    if offset is not None:
        arrays["offset"] = offset
    return fingerprint(arrays, meta)
