"""Large data sets with a known truth, generated on disk in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from wideangle.sharding import n_threads

BLOCK = 65_536
TRUE_EXPERTS, COLUMNS = 5, 31
TRUE_FEATURES, PIXELS, NOISE, SHARE = 8, 64, 0.5, 0.25


class Truth(NamedTuple):
    """Weights of the mixture of experts the classes are drawn from."""

    gate: np.ndarray
    experts: np.ndarray

    def chance(self, rows: np.ndarray) -> np.ndarray:
        """Probability of class 1."""
        scores = rows @ self.gate.T
        gate = np.exp(scores - scores.max(axis=1, keepdims=True))
        answers = 1.0 / (1.0 + np.exp(-(rows @ self.experts.T)))
        return np.sum(gate * answers, axis=1) / gate.sum(axis=1)


def truth(seed: int, columns: int = COLUMNS) -> Truth:
    """Five experts that disagree, and a gate that mostly selects one of them."""
    generator = np.random.default_rng([seed, 1])
    gate, experts = generator.normal(size=(2, TRUE_EXPERTS, columns))
    length = np.sqrt(columns)
    return Truth(4.0 * gate / length, 3.0 * experts / length)


Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, ...]]
"""From a generator and a number of rows to arrays of them."""


def blocks(seed: int, purpose: int, n_rows: int, draw: Draw) -> Iterator[tuple[np.ndarray, ...]]:
    """Every block, with a generator of its own, in order; some are drawn at the same time."""

    def make(place: int) -> tuple[np.ndarray, ...]:
        size = min(BLOCK, n_rows - place * BLOCK)
        return draw(np.random.default_rng([seed, purpose, place]), size)

    places, n = range(-(-n_rows // BLOCK)), n_threads()
    with ThreadPoolExecutor(n) as pool, threadpool_limits(1, "blas"):
        for first in places[::n]:
            yield from pool.map(make, places[first : first + n])


def draw_classes(folder: Path, n_rows: int, seed: int, columns: int = COLUMNS) -> None:
    """``X.npy`` (N, columns) float32 and ``y.npy`` (N,) int8."""
    model = truth(seed, columns)

    def draw(generator: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
        rows = generator.standard_normal((size, columns), np.float32)
        return rows, generator.random(size) < model.chance(rows)

    with _Npy(folder / "X.npy", (n_rows, columns), np.float32) as X:
        with _Npy(folder / "y.npy", (n_rows,), np.int8) as y:
            for rows, targets in blocks(seed, 2, n_rows, draw):
                X.add(rows)
                y.add(targets)


def true_features(seed: int) -> np.ndarray:
    """(8, 64): alternate bars of an 8 by 8 image, four horizontal and four vertical."""
    pictures = np.zeros((TRUE_FEATURES, 8, 8))
    for k in range(TRUE_FEATURES // 2):
        pictures[k, 2 * k] = 1.0
        pictures[TRUE_FEATURES // 2 + k, :, 2 * k + 1] = 1.0
    return pictures.reshape(TRUE_FEATURES, PIXELS)


def draw_features(folder: Path, n_rows: int, seed: int) -> None:
    """``F.npy`` (N, 64) float32: sums of true features, each in a quarter of rows, and noise."""
    features = true_features(seed).astype(np.float32)

    def draw(generator: np.random.Generator, size: int) -> tuple[np.ndarray]:
        used = generator.random((size, TRUE_FEATURES), np.float32) < SHARE
        noise = generator.standard_normal((size, PIXELS), np.float32)
        return (used.astype(np.float32) @ features + np.float32(NOISE) * noise,)

    with _Npy(folder / "F.npy", (n_rows, PIXELS), np.float32) as F:
        for (rows,) in blocks(seed, 3, n_rows, draw):
            F.add(rows)


class _Npy:
    """A ``.npy`` file written sequentially."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: type) -> None:
        self._dtype = np.dtype(dtype)
        self._file = path.open("wb")
        description = np.lib.format.dtype_to_descr(self._dtype)
        header = {"descr": description, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)

    def __enter__(self) -> _Npy:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, rows: np.ndarray) -> None:
        rows.astype(self._dtype).tofile(self._file)
