"""A file larger than the memory of a fit: seconds per pass, and peak memory."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from wideangle import Maximise, SphericalMixture
from wideangle.streaming import NpyRows
from wideangle_lab.bench.probe import forget_peak, peak_bytes

SIZES = {True: (40_000, 50, 10), False: (1_000_000, 1000, 50)}
"""Rows, columns and clusters."""
N_PASSES = 2
STEP = 10_000


def measure(*, quick: bool, seed: int) -> dict[str, Any]:
    """Fit rows around known centres, read from a file in every pass."""
    n_rows, dim, n_clusters = SIZES[quick]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        write_rows(path, seed, n_rows, dim, n_clusters)
        forget_peak()
        before, began, worked = peak_bytes(), time.perf_counter(), time.process_time()
        inference = Maximise(n_starts=1, n_passes=N_PASSES)
        model = SphericalMixture(n_clusters, inference=inference, random_state=seed)
        model.fit_stream(NpyRows(path))
        return {
            "rows": n_rows, "columns": dim, "clusters": n_clusters, "passes": N_PASSES,
            "seconds": round(time.perf_counter() - began, 1),
            "cpu_seconds": round(time.process_time() - worked, 1),
            "file_mib": round(path.stat().st_size / 2**20),
            "peak_mib": round((peak_bytes() - before) / 2**20),
            "n_used": model.n_used_,
        }  # fmt: skip


def write_rows(path: Path, seed: int, n_rows: int, dim: int, n_clusters: int) -> None:
    """Rows of all clusters in random order, in single precision."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((n_clusters, dim), np.float32)
    with path.open("wb") as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (n_rows, dim)}
        np.lib.format.write_array_header_1_0(file, header)
        for first in range(0, n_rows, STEP):
            n = min(STEP, n_rows - first)
            rows = centres[rng.integers(n_clusters, size=n)]
            file.write((rows + rng.standard_normal((n, dim), np.float32)).tobytes())
