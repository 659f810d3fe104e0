"""What every kernel promises, whatever it does inside."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from marks import first_quick
from wideangle.infer import (
    Info,
    each_row,
    geodesic_hmc,
    metropolis,
    on_log_scale,
    positive_walk,
    slice_sampler,
    vmf_walk,
)


def directions():
    return jnp.eye(5)[:3]


def magnitudes():
    return jnp.array([0.5, 1.0, 2.0])


def on_directions(x):
    return jnp.sum(x[:, 0]) + x[0] @ x[1]


def on_magnitudes(g):
    return jnp.where(jnp.all(g > 0), -jnp.sum(g), -jnp.inf)


KERNELS = {
    "metropolis vmf_walk": (metropolis(vmf_walk(0.3)), directions, on_directions),
    "metropolis positive_walk": (metropolis(positive_walk(0.3)), magnitudes, on_magnitudes),
    "each_row vmf_walk": (each_row(vmf_walk(0.3)), directions, on_directions),
    "geodesic_hmc": (geodesic_hmc(0.2, 3), directions, on_directions),
    "slice": (slice_sampler(1.0), magnitudes, on_magnitudes),
    "slice on log scale": (on_log_scale(slice_sampler(1.0)), magnitudes, on_magnitudes),
    "hmc on log scale": (
        on_log_scale(geodesic_hmc(0.2, 3, sphere=False)),
        magnitudes,
        lambda g: -jnp.sum(g),
    ),
}


@pytest.mark.parametrize("dtype", first_quick([jnp.float32, jnp.float64]))
@pytest.mark.parametrize("name", KERNELS)
def test_contract(key, name, dtype):
    kernel, start, log_density = KERNELS[name]
    position = start().astype(dtype)

    @jax.jit
    @jax.vmap
    def two_steps(key):
        state = kernel.init(position, log_density)
        first, _ = kernel.step(key, state, log_density)
        # A step takes what a step returns: the same pytree, shapes and dtypes.
        same = jax.tree.map(lambda a, b: (a.shape, a.dtype) == (b.shape, b.dtype), state, first)
        assert all(jax.tree.leaves(same))
        return kernel.step(key, first, log_density)

    state, info = two_steps(jax.random.split(key, 8))
    assert state.position.dtype == dtype
    assert state.position.shape == (8, *position.shape)
    assert np.isfinite(state.position).all()
    assert isinstance(info, Info)
    assert info.acceptance.shape == info.divergent.shape == info.evaluations.shape == (8,)
    assert ((info.acceptance >= 0) & (info.acceptance <= 1)).all()
    assert (info.divergent == 0).all()
    assert (info.evaluations >= 1).all()
    if position.ndim == 2:
        np.testing.assert_allclose(jnp.linalg.norm(state.position, axis=-1), 1.0, atol=1e-6)
    # Different keys, different moves.
    assert len(np.unique(np.asarray(state.position).reshape(8, -1), axis=0)) > 1
