import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer.invariance import FAIL, PASS, gamma_magnitudes, two_bumps, worst_z
from marks import first_quick
from statistical import measured
from wideangle.infer import on_log_scale, slice_sampler

module = importlib.import_module("wideangle.infer.slice")

CASES = {
    "two bumps": (slice_sampler(1.5), two_bumps()),
    "two bumps, budget used up": (slice_sampler(0.5, max_steps=4), two_bumps()),
    "two bumps, no stepping out": (slice_sampler(20.0, max_steps=1), two_bumps()),
    "bounded, by coordinate": (slice_sampler(2.0), gamma_magnitudes()),
    "pole at the edge": (on_log_scale(slice_sampler(1.5)), gamma_magnitudes(shape=0.5)),
}


@pytest.mark.parametrize("name", CASES)
def test_target_is_left_alone(name):
    assert worst_z(*CASES[name]) < PASS


def one_sided(key, max_steps):
    return jnp.int32(max_steps - 1), jnp.int32(0)


def wrong_side(left, right, tried, start, tries):
    """Cuts on the right, whichever side of the current point was rejected."""
    return left, jnp.where(tries > 0, tried, right)


def keeps_the_height(key, log_density):
    return log_density


def double_height(key, log_density):
    return log_density - 2.0 * jax.random.exponential(key, dtype=log_density.dtype)


FAULTS = {
    "budget not split at random": ("two bumps, budget used up", "_split_budget", one_sided),
    "shrinks past the current point": ("two bumps, no stepping out", "_shrink", wrong_side),
    "level at the density itself": ("two bumps", "_draw_level", keeps_the_height),
    "level from the wrong distribution": ("two bumps", "_draw_level", double_height),
    "Jacobian of the log left out": (
        "pole at the edge",
        "_log_jacobian",
        lambda logs, live: 0.0,
    ),
}


@pytest.mark.parametrize("fault", first_quick(FAULTS))
def test_a_fault_is_found(monkeypatch, fault):
    case, name, wrong = FAULTS[fault]
    monkeypatch.setattr(module, name, wrong)
    assert measured("max |z|", worst_z(*CASES[case]), FAIL) > FAIL


def step_once(kernel, key, position, log_density):
    return jax.jit(lambda k: kernel.step(k, kernel.init(position, log_density), log_density))(key)


def test_points_outside_the_support_are_never_returned(key):
    target = gamma_magnitudes()
    keys = jax.random.split(key, 500)
    kernel = slice_sampler(5.0)

    @jax.jit
    @jax.vmap
    def step(key):
        state = kernel.init(jnp.full(3, 0.01), target.log_density)
        state, _ = kernel.step(key, state, target.log_density)
        return state, target.log_density(state.position)

    state, again = step(keys)
    assert (state.position > 0).all()
    np.testing.assert_allclose(state.log_density, again)


def test_a_density_that_is_not_a_number_ends_and_does_not_move(key):
    state, info = step_once(slice_sampler(1.0), key, jnp.ones(2), lambda x: jnp.sum(x) * jnp.nan)
    np.testing.assert_array_equal(state.position, 1.0)
    assert info.acceptance == 1 / module.MAX_SHRINKS  # it gave up, for both entries


def test_evaluations_and_acceptance_are_what_happened(key):
    count = 0

    def log_density(x):
        def tick(_):
            nonlocal count
            count += 1

        jax.debug.callback(tick, x)
        return -0.5 * jnp.sum(x**2)

    kernel = slice_sampler(0.7)
    state = kernel.init(jnp.array([0.3, -1.0]), log_density)
    jax.effects_barrier()
    count = 0
    _, info = kernel.step(key, state, log_density)
    jax.effects_barrier()
    assert info.evaluations == count
    assert 0 < info.acceptance <= 1


def test_acceptance_falls_with_the_width(key):
    def log_density(x):
        return -0.5 * x**2

    @jax.jit
    def mean_acceptance(width):
        kernel = slice_sampler(width)
        state = kernel.init(jnp.zeros(()), log_density)
        infos = jax.vmap(lambda k: kernel.step(k, state, log_density)[1])(
            jax.random.split(key, 2000)
        )
        return infos.acceptance.mean()

    shares = [float(mean_acceptance(width)) for width in (0.3, 3.0, 30.0)]
    assert shares == sorted(shares, reverse=True)


def test_padded_entries_stay_zero_on_the_log_scale(key):
    def log_density(g):
        return -jnp.sum(g)

    state, _ = step_once(on_log_scale(slice_sampler(1.0)), key, jnp.array([1.0, 0.0]), log_density)
    assert state.position[1] == 0.0
    assert state.position[0] not in (0.0, 1.0)
