import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wideangle.infer.kernel import DualAveraging


def tune(acceptance, target, first, n=1500):
    """Tune against a known curve of acceptance; returns the step that would be used."""

    def turn(state, noise):
        probability = acceptance(state.current(True)) + noise
        return state.learn(probability, target), None

    noise = 0.1 * jax.random.normal(jax.random.key(0), (n,))
    state, _ = jax.lax.scan(turn, DualAveraging.start(first), noise)
    return state.current(False)


@pytest.mark.parametrize("target", [0.3, 0.8])
@pytest.mark.parametrize("first", [1e-4, 0.1, 100.0])
def test_the_target_is_reached_from_any_start(target, first):
    step = tune(lambda step: jnp.exp(-step), target, first)
    assert abs(float(jnp.exp(-step)) - target) < 0.03


@pytest.mark.parametrize("value", [0.0, 1.0, np.nan])
def test_a_hopeless_kernel_leaves_a_finite_step(value):
    step = tune(lambda step: jnp.asarray(value), 0.8, 0.1)
    assert 0 < step < np.inf


def test_the_average_is_used_after_tuning():
    state = DualAveraging.start(0.1)
    for acceptance in (0.0, 1.0, 0.5):
        state = state.learn(acceptance, 0.8)
    assert state.current(True) == pytest.approx(float(jnp.exp(state.log_step)))
    assert state.current(False) == pytest.approx(float(jnp.exp(state.log_average)))


def test_the_dtype_of_the_state_does_not_change():
    state = DualAveraging.start(0.1)
    after = state.learn(jnp.asarray(0.5), 0.8)
    assert [x.dtype for x in after] == [x.dtype for x in state]
