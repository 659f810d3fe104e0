"""Settings of a fit in the units of its rows: scaling, design and values of the sampler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from wideangle.latent_features.rows import Rows
from wideangle.latent_features.start import Start
from wideangle.latent_features.state import UNIT, Design, Gamma, Hyper
from wideangle.priors.stick_breaking import Buffet
from wideangle.settings import AUTO, LEARN, GaussianPrior, MutualAngularPrior, PitmanYor
from wideangle.sharding import ALONE, Share, of_all, total
from wideangle.sphere.vmf import inverse_on_host
from wideangle.storage import fingerprint
from wideangle.streaming.sources import chunks

GAMMA_SHAPE = 2.0
"""Default shape of the distribution of lengths."""

PAPER_NOISE = 0.25
"""Noise variance of the paper's rule, for data of unit variance."""
MAX_CONCENTRATION = 1e6
DEFAULT_COSINE = 0.1
"""Default strength of the repulsion."""
SMALLEST, LARGEST = 1e-120, 1e120
"""Range of data whose squares neither overflow nor underflow."""
FARTHEST = 1e15
"""Largest entry of new rows, in units of the spread of the training rows."""
RANGE = 1e8
"""Settings in units of the data may be this many times larger or smaller than the spread."""
BIRTH_ENTRIES, CYCLE_ENTRIES = 2**20, 2**21
"""Entries that births and cycles of small features may read in a sweep: small data allow more
passes."""
PASS_ENTRIES = 2**20
"""Entries up to half of which features are moved twice in a sweep; for more, once."""
BLOCK_ENTRIES = 2**20
"""Entries read at once."""


class Scaling(NamedTuple):
    """Rows are shifted by column and divided by one number before they are modelled."""

    shift: np.ndarray
    scale: float

    def apply(self, X: Any) -> tuple[Any, np.ndarray | None]:
        """Scaled rows, and the offset still to be subtracted from them; sparse stays sparse."""
        dtype = jnp.result_type(float)
        if not sparse.issparse(X):
            # In double precision: far from 0, single precision has no digits left for differences.
            return self._scaled(np.asarray(X, np.float64) - self.shift, dtype), None
        rows = sparse.csr_matrix(X, dtype=np.float64, copy=True)
        rows.data = self._scaled(rows.data, dtype)
        return rows, self.shift / self.scale if np.any(self.shift) else None

    def _scaled(self, entries: np.ndarray, dtype: Any) -> np.ndarray:
        largest = np.fmax.reduce(np.abs(entries), axis=None, initial=0.0)  # NaN is left out
        if largest > FARTHEST * self.scale:
            raise ValueError(
                f"X: an entry has size {largest:g}, and the rows that the model was fitted to vary "
                f"by {self.scale:g}: more than {FARTHEST:g} times as much is not a number to "
                "compute with. Look for the row, or fit to rows like it."
            )
        return (entries / self.scale).astype(dtype)


def learn_scaling(X: Any, *, standardise: bool, share: Share = ALONE) -> Scaling:
    """Column means if wanted, and the standard deviation of all entries around the common mean.

    One scale for all columns keeps the noise the same in all of them, as the model assumes. ``X``
    is an array, a CSR matrix or a source of rows; of several processes each has some of the rows.
    """
    dim = X.shape[1]
    largest = float(np.max(of_all(_largest(X), share)))
    if not SMALLEST <= largest <= LARGEST:
        raise ValueError(
            f"X: its largest entry has size {largest:g}, and must be between {SMALLEST:g} and "
            f"{LARGEST:g} (or all entries 0): use other units."
        )
    counts, sums = np.zeros(dim), np.zeros(dim)
    for values, columns, known in _blocks(X):
        counts += known
        sums += np.bincount(columns, values / largest, dim)  # divided: no square overflows
    counts, sums = total(counts, share), total(sums, share)
    n_entries = max(counts.sum(), 1.0)
    means = sums / np.maximum(counts, 1)
    middles = means if standardise else np.full(dim, sums.sum() / n_entries)
    energy = around = 0.0
    for values, columns, known in _blocks(X):
        scaled = values / largest
        energy += np.sum(scaled**2)
        # Deviations from the mean: a difference of squares would lose every digit.
        stored = np.sum((scaled - middles[columns]) ** 2)
        n_zeros = known - np.bincount(columns, minlength=dim)
        around += stored + np.sum(n_zeros * middles**2)
    energy, around = total([energy, around], share)
    scale = np.sqrt(around / n_entries) if around > 1e-20 * energy else 0.0
    if scale == 0.0:  # all entries are the same: any unit will do
        scale = np.sqrt(energy / n_entries) or 1.0
    return Scaling(means * largest if standardise else np.zeros(dim), float(scale * largest))


def _blocks(X: Any) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Known entries in float64 and their columns, some rows at a time.

    The last array, (D,), counts the known entries of each column, also zeros that are not stored.
    """
    n_rows, dim = X.shape
    size = max(1, BLOCK_ENTRIES // dim)
    if hasattr(X, "read"):  # rows on disk
        pieces: Any = chunks(X, size)
        parts = (rows for _, rows in pieces)
    else:
        parts = (X[first : first + size] for first in range(0, n_rows, size))
    for part in parts:
        if sparse.issparse(part):
            values, columns = part.data, part.indices
        else:
            values, columns = np.ravel(part), np.tile(np.arange(dim), len(part))
        known = ~np.isnan(values)
        counts = part.shape[0] - np.bincount(columns[~known], minlength=dim)
        yield values[known].astype(np.float64), columns[known], counts


def _largest(X: Any) -> float:
    """Largest absolute entry; 1 if there is none."""
    sizes = (np.max(np.abs(values), initial=0.0) for values, *_ in _blocks(X))
    return max(sizes, default=0.0) or 1.0


def n_observed(X: Any) -> np.ndarray:
    """Entries of each row that are not missing."""
    if sparse.issparse(X):
        missing = np.concatenate([[0], np.cumsum(np.isnan(X.data))])[X.indptr]
        return X.shape[1] - np.diff(missing)
    return (~np.isnan(X)).sum(axis=1)


def check_choices(prior: Any, process: Any, kernel: str | None, dim: int) -> None:
    """Reject settings that this model cannot use, for rows with so many columns."""
    ordered = isinstance(prior, MutualAngularPrior)
    if ordered and isinstance(process, PitmanYor):
        raise ValueError(
            "process='pitman-yor' needs features without an order: use prior='gaussian' or "
            "prior='vmf' (the mutual-angular prior ties their order to their weights)."
        )
    if ordered and prior.kind not in (None, "I"):
        raise ValueError(
            f"prior.kind={prior.kind!r}: the infinite prior of features is of kind 'I'; leave "
            "it out."
        )
    if getattr(prior, "common", None):
        raise ValueError("prior.common=True: features have no common part; leave it None.")
    if not isinstance(prior, GaussianPrior) and dim == 1:
        raise ValueError(
            "X has n_features = 1: directions need at least two columns; use prior='gaussian'."
        )
    if kernel not in (None, "gibbs", "hmc"):
        raise ValueError(
            f"inference.kernel={kernel!r} does not move features: use 'gibbs' or 'hmc'."
        )


def magnitude_shape_of(prior: Any) -> float | None:
    """Shape of the Gamma distribution of lengths; None for Gaussian features."""
    if isinstance(prior, GaussianPrior):
        return None
    return GAMMA_SHAPE if prior.magnitude_shape is None else float(prior.magnitude_shape)


def design_of(
    prior: Any,
    process: Any,
    noise_scale: Any,
    shape: tuple[int, int],
    scale: float,
    *,
    hamiltonian: bool = False,
) -> tuple[Design, Hyper]:
    """The sampler's settings and initial values, for rows divided by ``scale``.

    None stands for a value that :func:`first_guess` fits to the start of a chain.
    """
    learned = set()
    dim = shape[1]

    def value(name: str, setting: Any, start: float | None) -> Any:
        if setting == LEARN:
            learned.add(name)
            return start
        return float(setting)

    pitman_yor = isinstance(process, PitmanYor)
    alpha = value("mass", process.alpha, None)
    discount = value("discount", process.discount, 0.25) if pitman_yor else 0.0
    strength = value("strength", process.strength, 1.0) if pitman_yor else 1.0
    concentration = 0.0
    if isinstance(prior, MutualAngularPrior):
        concentration = _concentration(prior, dim, value)
    _check_unit("noise_scale", noise_scale, scale)
    _check_unit("prior.scale", prior.scale, scale)
    noise = value("noise", 1.0 if noise_scale == "paper" else noise_scale, None)
    if noise is not None:
        noise = PAPER_NOISE if noise_scale == "paper" else (noise / scale) ** 2
    gaussian = isinstance(prior, GaussianPrior)
    magnitude_shape = magnitude_shape_of(prior) or GAMMA_SHAPE
    size = value("rate", prior.scale, None) if prior.scale not in (None, AUTO) else None
    rate = None
    if size is not None:
        rate = (scale / size) ** 2 if gaussian else magnitude_shape * scale / (size * dim**0.5)
    design = Design(
        features="gaussian" if gaussian else "polar",
        ordered=concentration > 0,
        magnitude_shape=magnitude_shape,
        learned=frozenset(learned),
        hamiltonian=hamiltonian,
        noise=Gamma(1.0, 0.05),
        # Lengths of the order of sqrt(D), entries of the order of 1.
        rate=UNIT if gaussian else Gamma(1.0, 0.5 * dim**0.5),
        n_passes=_affordable(PASS_ENTRIES, shape, (1, 2)),
        n_births=_affordable(BIRTH_ENTRIES, shape, (1, 24)),
        n_cycles=_affordable(CYCLE_ENTRIES, shape, (1, 40)),
    )
    buffet: Any = Buffet(alpha, discount, strength)
    return design, Hyper(buffet, noise, concentration, rate)


def first_guess(start: Start, values: Hyper, design: Design, rows: Rows) -> Hyper:
    """Initial hyperparameters; learned ones are fitted to the start."""
    n_features = len(start.features)
    harmonic = np.sum(1.0 / np.arange(1, rows.n_rows + 1))
    lengths = np.linalg.norm(start.features, axis=1)
    rate = values.rate
    if rate is None and design.features == "gaussian":
        rate = (n_features * rows.dim + 1.0) / (float(np.sum(lengths**2)) + 1.0)
    elif rate is None:
        shape = design.magnitude_shape
        rate = (shape * n_features + design.rate.shape) / (lengths.sum() + design.rate.rate)
    mass, discount, strength = values.buffet
    mass = max(n_features, 1) / harmonic if mass is None else mass
    noise = start.noise_variance if values.noise_variance is None else values.noise_variance

    def number(value: Any) -> jax.Array:
        return jnp.asarray(value, jnp.result_type(float))

    buffet = Buffet(*map(number, (mass, discount, strength)))
    return Hyper(buffet, *map(number, (max(noise, 1e-8), values.concentration, rate)))


def _affordable(n_entries: int, shape: tuple[int, int], limits: tuple[int, int]) -> int:
    """Number of passes over the rows that read this many entries, within limits."""
    return int(np.clip(n_entries // (shape[0] * shape[1]), *limits))


def _check_unit(name: str, setting: Any, scale: float) -> None:
    """Reject a setting whose size cannot be in units of the data."""
    if setting is None or isinstance(setting, str):
        return
    if not 1.0 / RANGE <= setting / scale <= RANGE:
        raise ValueError(
            f"{name}={setting:g}, and the entries of X vary by {scale:g}: must be within a factor "
            f"of {RANGE:g} of that."
        )


def _concentration(prior: MutualAngularPrior, dim: int, value: Any) -> float:
    cosine = DEFAULT_COSINE if prior.cosine is None else prior.cosine
    start = float(inverse_on_host(max(cosine, 1e-3), dim))
    if prior.concentration is not None:
        return min(value("concentration", prior.concentration, start), MAX_CONCENTRATION)
    return start if cosine > 0 else 0.0


def fingerprint_of(
    settings: dict[str, Any], matrix: Any, offset: np.ndarray | None, seed: int
) -> str:
    """A hash of data and settings, so that a checkpoint of another fit is rejected."""
    is_sparse = sparse.issparse(matrix)
    parts = (matrix.data, matrix.indices, matrix.indptr) if is_sparse else (matrix,)
    arrays = {f"rows_{i}": np.asarray(part) for i, part in enumerate(parts)}
    arrays["seed"] = np.array(seed)
    if offset is not None:
        arrays["offset"] = offset
    return fingerprint(arrays, {name: repr(value) for name, value in settings.items()})
