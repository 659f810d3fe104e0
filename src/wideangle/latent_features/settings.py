"""From what a user passes to what the latent feature sampler wants: units, rows, design."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from wideangle.latent_features.fit import Values
from wideangle.latent_features.rows.imputed import ImputedRows
from wideangle.latent_features.rows.memory import FeatureRows
from wideangle.latent_features.sampler.design import UNIT, Design, Gamma
from wideangle.sharding import current_mesh
from wideangle.sphere.bessel import inverse_mean_resultant
from wideangle.storage import fingerprint

PAPER_NOISE = 0.25
"""Noise variance of the paper's rule, for data of unit variance."""
MAX_CONCENTRATION = 1e6
SMALLEST, LARGEST = 1e-120, 1e120
"""Sizes of data whose squares are numbers."""
FARTHEST = 1e15
"""Most that an entry of new rows may be, in units of the spread of the rows fitted to."""
RANGE = 1e8
"""Settings in units of the data may be this many times larger or smaller than the spread."""
BLOCK_ENTRIES = 2**20
"""Entries looked at together."""


class Units(NamedTuple):
    """Rows are shifted by column and divided by one number before they are modelled."""

    shift: np.ndarray
    scale: float

    def apply(self, X: Any) -> tuple[Any, np.ndarray | None]:
        """Scaled rows, and the offset still to be subtracted from them; sparse stays sparse."""
        dtype = jnp.result_type(float)
        if sparse.issparse(X):
            rows = sparse.csr_matrix(X, dtype=np.float64, copy=True)
            rows.data = self._scaled(rows.data, dtype)
        else:
            rows = self._scaled(np.asarray(X, np.float64), dtype)
        offset = self.shift / self.scale if np.any(self.shift) else None
        return rows, offset

    def _scaled(self, entries: np.ndarray, dtype: Any) -> np.ndarray:
        largest = np.fmax.reduce(np.abs(entries), axis=None, initial=0.0)  # NaN is left out
        if largest > FARTHEST * self.scale:
            raise ValueError(
                f"X: an entry has size {largest:g}, and the rows that the model was fitted to vary "
                f"by {self.scale:g}: more than {FARTHEST:g} times as much is not a number to "
                "compute with. Look for the row, or fit to rows like it."
            )
        return (entries / self.scale).astype(dtype)


def learn_units(X: Any, *, centre: bool) -> Units:
    """Column means if wanted, and the standard deviation of all entries around the common mean.

    One scale for all columns keeps the noise the same in all of them, as the model has it.
    """
    dim = X.shape[1]
    largest = _largest(X)
    if not SMALLEST <= largest <= LARGEST:
        raise ValueError(
            f"X: its largest entry has size {largest:g}, and must be between {SMALLEST:g} and "
            f"{LARGEST:g} (or all entries 0): use other units."
        )
    counts, sums = np.zeros(dim), np.zeros(dim)
    for block in _blocks(X):
        counts += block.counts
        sums += block.column_sums(block.values / largest)  # divided: no square overflows
    total = max(counts.sum(), 1.0)
    means = sums / np.maximum(counts, 1)
    middles = means if centre else np.full(dim, sums.sum() / total)
    energy = around = 0.0
    for block in _blocks(X):
        scaled = block.values / largest
        energy += np.sum(scaled**2)
        # Around the middle, not as a difference of squares, which would lose every digit.
        stored = np.sum((scaled - middles[block.columns]) ** 2)
        around += stored + np.sum(block.n_zeros * middles**2)
    scale = np.sqrt(around / total) if around > 1e-20 * energy else 0.0
    if scale == 0.0:  # all entries are the same: any unit will do
        scale = np.sqrt(energy / total) or 1.0
    return Units(means * largest if centre else np.zeros(dim), float(scale * largest))


class _Block(NamedTuple):
    """Stored entries of some rows that are not missing, by column."""

    values: np.ndarray
    columns: np.ndarray
    counts: np.ndarray
    """(D,) entries that are not missing, stored or not."""

    @property
    def n_zeros(self) -> np.ndarray:
        """(D,) entries that are zero because they are not stored."""
        return self.counts - np.bincount(self.columns, minlength=len(self.counts))

    def column_sums(self, values: np.ndarray) -> np.ndarray:
        """Sums of values at the places of the entries, (D,)."""
        return np.bincount(self.columns, weights=values, minlength=len(self.counts))


def _blocks(X: Any) -> Iterator[_Block]:
    """The entries in float64, some rows at a time."""
    n_rows, dim = X.shape
    size = max(1, BLOCK_ENTRIES // dim)
    for first in range(0, n_rows, size):
        part = X[first : first + size]
        if sparse.issparse(part):
            values, columns = part.data, part.indices
        else:
            values, columns = np.ravel(part), np.tile(np.arange(dim), len(part))
        seen = ~np.isnan(values)
        counts = part.shape[0] - np.bincount(columns[~seen], minlength=dim)
        yield _Block(values[seen].astype(np.float64), columns[seen], counts)


def _largest(X: Any) -> float:
    """Largest absolute entry, 1 where there is none."""
    return max((np.max(np.abs(b.values), initial=0.0) for b in _blocks(X)), default=0.0) or 1.0


def make_rows(matrix: Any, offset: np.ndarray | None) -> FeatureRows:
    """Rows for one chain; with missing entries every chain gets a copy."""
    entries = matrix.data if sparse.issparse(matrix) else matrix
    kind = ImputedRows if np.isnan(entries).any() else FeatureRows
    return kind(matrix, offset)


def n_seen(X: Any) -> np.ndarray:
    """Entries of each row that are not missing."""
    if sparse.issparse(X):
        missing = np.concatenate([[0], np.cumsum(np.isnan(X.data))])[X.indptr]
        return X.shape[1] - np.diff(missing)
    return (~np.isnan(X)).sum(axis=1)


def use_device(device: str | None, matrix: Any) -> bool:
    """Whether the sweeps run as one program on devices: asked for, spread, or JAX's default."""
    entries = matrix.data if sparse.issparse(matrix) else matrix
    spread = current_mesh() is not None and not sparse.issparse(matrix)
    wanted = jax.default_backend() != "cpu" or spread if device is None else device == "gpu"
    if device == "gpu" and jax.default_backend() == "cpu":
        raise ValueError("device='gpu': JAX sees no GPU here; install jax[cuda12] or leave it out.")
    return wanted and not np.isnan(entries).any()


def design_of(model: Any, dim: int, units: Units, on_device: bool = False) -> tuple[Design, Values]:
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
    for name in ("noise_scale", "magnitude_rate"):
        _check_unit(name, getattr(model, name), units.scale, model.prior == "gaussian")
    noise = value("noise", 1.0 if model.noise_scale == "paper" else model.noise_scale, None)
    if noise is not None:
        noise = PAPER_NOISE if model.noise_scale == "paper" else (noise / units.scale) ** 2
    rate = None
    if model.magnitude_rate != "auto":
        rate = value("rate", model.magnitude_rate, None)
    gaussian = model.prior == "gaussian"
    if rate is not None:
        rate *= units.scale**2 if gaussian else units.scale
    design = Design(
        features="gaussian" if gaussian else "polar",
        ordered=concentration > 0,
        magnitude_shape=float(model.magnitude_shape),
        learned=frozenset(learned),
        hamiltonian=on_device,
        noise=Gamma(1.0, 0.05),
        # Lengths of the order of sqrt(D), entries of the order of 1.
        rate=UNIT if gaussian else Gamma(1.0, 0.5 * dim**0.5),
    )
    return design, Values(alpha, discount, strength, noise, concentration, rate)


def _check_unit(name: str, setting: Any, scale: float, gaussian: bool) -> None:
    """Refuse a setting in units of the data that has nothing to do with them."""
    if isinstance(setting, str):
        return
    size = setting
    if name == "magnitude_rate":  # of an inverse length, or for Gaussian features its square
        size = setting**-0.5 if gaussian else 1.0 / setting
    if not 1.0 / RANGE <= size / scale <= RANGE:
        raise ValueError(
            f"{name}={setting:g} stands for a size of {size:g}, and the entries of X vary by "
            f"{scale:g}: must be within a factor of {RANGE:g} of that."
        )


def _concentration(model: Any, dim: int, value: Any) -> float:
    start = float(inverse_mean_resultant(jnp.asarray(max(model.cosine, 1e-3), float), dim))
    if model.concentration is not None:
        return min(value("concentration", model.concentration, start), MAX_CONCENTRATION)
    return start if model.cosine > 0 else 0.0


def fingerprint_of(model: Any, matrix: Any, offset: np.ndarray | None, seed: int) -> str:
    """A hash of data and settings, so that a checkpoint of another fit is refused."""
    if model.checkpoint is None:
        return ""
    apart = ("checkpoint", "progress", "random_state", "n_jobs", "min_presence", "price", "device")
    meta = {k: repr(v) for k, v in model.get_params(deep=False).items() if k not in apart}
    # A device moves features by other moves: its chains cannot be taken up on the host.
    meta["on_device"] = repr(use_device(model.device, matrix))
    is_sparse = sparse.issparse(matrix)
    parts = (matrix.data, matrix.indices, matrix.indptr) if is_sparse else (matrix,)
    arrays = {f"rows_{i}": np.asarray(part) for i, part in enumerate(parts)}
    arrays["seed"] = np.array(seed)
    if offset is not None:
        arrays["offset"] = offset
    return fingerprint(arrays, meta)
