"""Where the rows of a fit live: in memory, on a device, on disk. It is decided here."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from scipy import sparse

from wideangle.latent_features.rows.memory import MemoryRows
from wideangle.latent_features.rows.protocol import Rows
from wideangle.sharding import current_mesh, dividing

WORTH_A_DEVICE = 2**20
"""Entries from which rows are: fewer are swept over faster where every small step is."""


def home_of(matrix: Any) -> AbstractContextManager[Any]:
    """Where a fit of these rows runs: on JAX's default device, and on the CPU if there are few.

    A device that the user has chosen stays.
    """
    chosen = jax.config.jax_default_device is not None or current_mesh() is not None  # pyright: ignore[reportAttributeAccessIssue]
    if chosen or jax.default_backend() == "cpu" or np.prod(matrix.shape) >= WORTH_A_DEVICE:
        return nullcontext()
    return jax.default_device(jax.devices("cpu")[0])


def has_gaps(matrix: Any) -> bool:
    """Whether entries are missing."""
    return bool(np.isnan(matrix.data if sparse.issparse(matrix) else matrix).any())


def on_device(matrix: Any) -> bool:
    """Whether the sweeps run as one program on devices: rows spread over several, or a GPU.

    JAX's default device decides. Rows with missing entries stay on the host.
    """
    spread = current_mesh() is not None and not sparse.issparse(matrix)
    (device,) = jnp.zeros(()).devices()
    return (spread or device.platform != "cpu") and not has_gaps(matrix)


def rows_in_memory(matrix: Any, offset: np.ndarray | None, n_chains: int = 1) -> list[MemoryRows]:
    """Rows for the searches of some chains: shared, unless each has its own missing entries."""
    if not has_gaps(matrix):
        return [MemoryRows(matrix, offset)] * n_chains
    from wideangle.latent_features.rows.imputed import ImputedRows

    return [ImputedRows(matrix, offset) for _ in range(n_chains)]


def rows_for_sweeps(
    matrix: Any, offset: np.ndarray | None, in_memory: list[MemoryRows]
) -> list[Rows]:
    """Rows for the sweeps of the same chains: those in memory, or on a device."""
    if not on_device(matrix):
        return [*in_memory]
    from wideangle.latent_features.rows.device import DeviceRows

    mesh: Mesh | None = current_mesh()
    mesh = None if mesh is None else dividing(mesh, matrix.shape[0])
    return [DeviceRows(matrix, offset, mesh)] * len(in_memory)
