"""Rows on a device give the sums of rows on the host."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

from wideangle.latent_features import csr
from wideangle.latent_features.device import DeviceRows
from wideangle.latent_features.memory import MemoryRows
from wideangle.latent_features.state import stats_of


@pytest.mark.parametrize("is_sparse", [True, False])
@pytest.mark.parametrize("centred", [True, False])
def test_sums_are_those_of_the_host(monkeypatch, is_sparse, centred):
    monkeypatch.setattr(csr, "BLOCK_ENTRIES", 100)  # several blocks, the last one short
    rng = np.random.default_rng(0)
    matrix = sparse.random(50, 9, density=0.3, random_state=0, format="csr")
    matrix.data[3] = 0.0  # stored, and nothing
    if not is_sparse:
        matrix = matrix.toarray()
    offset = rng.normal(size=9) if centred else None
    host, vectors = MemoryRows(matrix, offset), rng.normal(size=(4, 9))
    used = (rng.random((50, 4)) < 0.3).astype(np.uint8)
    there = DeviceRows(host).arrays
    numbers = np.array([3, 49, 0])
    np.testing.assert_allclose(there.products(vectors), host.products(vectors), atol=1e-12)
    np.testing.assert_allclose(there.cross(jnp.asarray(used, float)), host.cross(used), atol=1e-12)
    np.testing.assert_allclose(
        there.take(jnp.asarray(numbers)), host.dense_block(numbers), atol=1e-12
    )
    np.testing.assert_allclose(there.energy(), host.row_energy, atol=1e-12)
    stats = jax.jit(stats_of)(there, used)
    np.testing.assert_allclose(stats.gram, used.T.astype(float) @ used)
    assert float(stats.energy) == pytest.approx(host.energy)
    assert float(stats.count) == 50 * 9
