import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infer.invariance import (
    FAIL,
    PASS,
    Target,
    direction_with_magnitude,
    repelling_chain,
    von_mises_fisher,
    worst_z,
)
from marks import first_quick
from statistical import measured
from wideangle.infer import Kernel, geodesic_hmc

module = importlib.import_module("wideangle.infer.geodesic_hmc")

MIXED = {"direction": True, "log": False}
CASES = {
    "vmf p=3": (geodesic_hmc(0.6, 4), von_mises_fisher(3, 5.0)),
    "vmf p=50": (geodesic_hmc(0.5, 4), von_mises_fisher(50, 100.0)),
    "chain": (geodesic_hmc(0.35, 4), repelling_chain()),
    "scaled chain": (
        geodesic_hmc(0.35, 4, scale=jnp.array([0.5, 1.0, 1.3])),
        repelling_chain(),
    ),
    "sphere and line": (
        geodesic_hmc(0.5, 4, sphere=MIXED, scale={"direction": 1.5, "log": 0.7}),
        direction_with_magnitude(),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_target_is_left_alone(name):
    assert worst_z(*CASES[name]) < PASS


def printed_line_2(key, position, charts):
    """Keeps the normal part of the velocity and drops the tangent one."""
    noise = jax.random.normal(key, position.shape)
    return noise - module.tangent(position, noise)


def unprojected(key, position, charts):
    return jax.random.normal(key, position.shape)


def printed_line_9(point, velocity, time=1.0):
    """Turns the velocity with the point that has already moved."""
    speed = jnp.linalg.norm(velocity, axis=-1, keepdims=True)
    angle = speed * time
    moved = point * jnp.cos(angle) + velocity / speed * jnp.sin(angle)
    return moved, velocity * jnp.cos(angle) - moved * speed * jnp.sin(angle)


def printed_lines_7_and_11(state, velocity, size, charts, logdensity):
    """Projects the second half kick at the old point."""
    old = state.position
    velocity = module.kick(old, velocity, state.gradient, size, charts)
    position, velocity = module.drift(old, velocity, size, charts)
    state = module.init(position, logdensity)
    return state, module.kick(old, velocity, state.gradient, size, charts)


FAULTS = {
    "sign of the ratio flipped": ("accept", lambda key, ratio: _right_accept(key, -ratio)),
    "always accepted": ("accept", lambda key, ratio: (jnp.array(True), jnp.ones(()))),
    "line 2: normal part only": ("draw_velocity", printed_line_2),
    "normal part kept": ("draw_velocity", unprojected),
    "line 9: velocity turned with the new point": ("geodesic", printed_line_9),
    "lines 7, 11: projected at the old point": ("leapfrog", printed_lines_7_and_11),
    "kinetic energy left out": ("kinetic_energy", lambda velocity: 0.0),
}
_right_accept = module.accept


@pytest.mark.parametrize("fault", first_quick(FAULTS, 3))
def test_a_fault_is_found(monkeypatch, fault):
    monkeypatch.setattr(module, *FAULTS[fault])
    assert measured("max |z|", worst_z(*CASES["vmf p=3"]), FAIL) > FAIL


def test_a_stale_gradient_is_found():
    # A vMF alone would not do: its gradient is constant.
    kernel, target = geodesic_hmc(0.4, 2), repelling_chain(8.0)

    def step(key, state, logdensity):
        new, info = kernel.step(key, state, logdensity)
        return new._replace(gradient=state.gradient), info

    z = worst_z(Kernel(kernel.init, step), target, n_steps=12)
    assert measured("max |z|", z, FAIL) > FAIL


def test_a_missing_jacobian_on_the_line_is_found():
    kernel, target = CASES["sphere and line"]
    wrong = target._replace(log_density=lambda z: target.log_density(z) - z["log"])
    assert measured("max |z|", worst_z(kernel, wrong), FAIL) > FAIL


def start_of(target: Target, key, dtype=float, **options):
    position = jax.tree.map(lambda leaf: leaf.astype(dtype), target.draw(key))
    charts = module.make_charts(position, options.get("sphere", True), options.get("scale", 1.0))
    state = module.init(position, target.log_density)
    return state, module.draw_velocity(key, position, charts), charts


def energy(state, velocity):
    return module.kinetic_energy(velocity) - state.log_density


@pytest.mark.parametrize(
    "options", [{}, {"sphere": MIXED, "scale": {"direction": 1.3, "log": 0.7}}]
)
def test_the_flow_is_reversible(key, options):
    target = direction_with_magnitude() if options else repelling_chain()
    state, velocity, charts = start_of(target, key, **options)
    there, fast = module.trajectory(state, velocity, 0.2, 40, charts, target.log_density)[:2]
    turned = jax.tree.map(jnp.negative, fast)
    back, slow = module.trajectory(there, turned, 0.2, 40, charts, target.log_density)[:2]
    assert not np.allclose(jax.tree.leaves(there.position)[0], jax.tree.leaves(state.position)[0])
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-11), back.position, state.position
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, -b, atol=1e-11), slow, velocity)


def test_the_energy_error_is_of_second_order(key):
    target = repelling_chain()

    @jax.jit
    def errors(size, n_steps):
        def one(key):
            state, velocity, charts = start_of(target, key)
            end = module.trajectory(state, velocity, size, n_steps, charts, target.log_density)[:2]
            return energy(*end) - energy(state, velocity)

        return jnp.sqrt(jnp.mean(jax.vmap(one)(jax.random.split(key, 200)) ** 2))

    ladder = [float(errors(0.1 / 2**k, 10 * 2**k)) for k in range(3)]
    np.testing.assert_allclose([ladder[0] / ladder[1], ladder[1] / ladder[2]], 4.0, atol=0.15)


def test_points_stay_on_the_sphere_in_float32(key):
    target = von_mises_fisher(10, 20.0)
    state, velocity, charts = start_of(target, key, jnp.float32)
    end, fast = module.trajectory(state, velocity, 0.3, 10_000, charts, target.log_density)[:2]
    assert end.position.dtype == jnp.float32
    assert abs(float(jnp.linalg.norm(end.position)) - 1) < 1e-6
    assert abs(float(jnp.dot(end.position, fast))) < 1e-5
    # And the flow is still the right one: no drift of the energy with time.
    assert abs(float(energy(end, fast) - energy(state, velocity))) < 1.5


def test_the_step_is_an_angle_in_any_dimension(key):
    for p in (3, 30, 300):

        @jax.jit
        def cosines(position):
            charts = module.make_charts(position, True, 1.0)
            velocity = module.draw_velocity(key, position, charts)
            return module.drift(position, velocity, 0.1, charts)[0][:, 0]

        angles = np.arccos(cosines(jnp.tile(jnp.eye(p)[0], (500, 1))))
        assert abs(np.sqrt(np.mean(angles**2)) / 0.1 - 1) < 0.05


@pytest.mark.parametrize(
    "log_density",
    [
        lambda x: 1e6 * jnp.sin(1e4 * x[0]),
        lambda x: jnp.where(x[0] == 1.0, x[0], jnp.nan),
        lambda x: jnp.where(x[0] == 1.0, x[0], -jnp.inf),
        lambda x: jnp.where(x[0] > 0.9999, 1e5 * x[1], x[0] * jnp.nan),
    ],
)
def test_a_divergent_trajectory_is_rejected_and_flagged(key, log_density):
    kernel = geodesic_hmc(0.5, 5)
    state = kernel.init(jnp.eye(4)[0], log_density)
    new, info = kernel.step(key, state, log_density)
    assert info.divergent == 1
    jax.tree.map(np.testing.assert_array_equal, new, state)
    assert 0 <= info.acceptance <= 1


def test_padded_rows_stay_zero_and_do_not_matter(key):
    # Gradient NaN at the padded row, as a density that normalises its input may have.
    def log_density(x):
        return 5 * x[0, 0] + 3 * x[1, 1] + jnp.sqrt(jnp.sum(x[2] ** 2))

    start = jnp.zeros((3, 4)).at[0, 0].set(1.0).at[1, 1].set(1.0)
    kernel = geodesic_hmc(0.3, 5)
    state, info = kernel.step(key, kernel.init(start, log_density), log_density)
    np.testing.assert_array_equal(state.position[2], 0.0)
    assert np.isfinite(state.position).all()
    assert info.acceptance > 0.3
    assert not np.allclose(state.position[:2], start[:2])


def test_one_gradient_per_step(key):
    count = 0

    def log_density(x):
        def tick(_):
            nonlocal count
            count += 1

        jax.debug.callback(tick, x[0])
        return x[0]

    kernel = geodesic_hmc(0.3, 5)
    state = kernel.init(jnp.eye(4)[0], log_density)
    jax.effects_barrier()
    before = count
    _, info = kernel.step(key, state, log_density)
    jax.effects_barrier()
    assert info.evaluations == 5
    assert count - before == 5 * before  # what one evaluation counts, five times


@pytest.mark.parametrize("jitter", [1.0, -0.1])
def test_a_step_that_could_be_zero_is_refused(jitter):
    with pytest.raises(ValueError, match="jitter"):
        geodesic_hmc(0.1, 5, jitter=jitter)
