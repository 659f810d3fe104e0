"""Geodesics, angles and diversity on the sphere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from statistical import central_difference, relative_error
from wideangle.sphere.geometry import (
    angle_between,
    angular_spread,
    diversity,
    effective_directions,
    geodesic,
    normalise,
    pairwise_angles,
    safe_norm,
    tangent,
)

ROWS = {
    "identical": [[1.0, 0, 0], [1, 0, 0], [0, 1, 0]],
    "opposed": [[1.0, 0, 0], [-1, 0, 0], [0, 0.6, 0.8]],
    "orthogonal": np.eye(3),
    "zero": [[0.0, 0, 0], [1, 0, 0], [0, 0, 0]],
}


def unit_rows(seed, *shape):
    rows = np.random.default_rng(seed).normal(size=shape)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def rotation(seed, dim):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(dim, dim)))[0]


def test_geodesic_is_a_great_circle_at_constant_speed():
    point = unit_rows(0, 50, 6)
    velocity = tangent(point, np.random.default_rng(1).normal(size=(50, 6)))
    moved, carried = geodesic(point, velocity, 0.7)
    np.testing.assert_allclose(safe_norm(moved), 1.0, atol=1e-14)
    np.testing.assert_allclose(jnp.sum(moved * carried, -1), 0.0, atol=1e-13)  # still tangent
    np.testing.assert_allclose(safe_norm(carried), safe_norm(velocity), rtol=1e-13)
    turned = np.abs(np.mod(0.7 * safe_norm(velocity) + np.pi, 2 * np.pi) - np.pi)
    np.testing.assert_allclose(angle_between(point, moved), turned, atol=1e-13)
    # Back along the reversed velocity; and once round.
    back, reversed_velocity = geodesic(moved, -carried, 0.7)
    np.testing.assert_allclose(back, point, atol=1e-14)
    np.testing.assert_allclose(reversed_velocity, -velocity, atol=1e-13)


def test_geodesic_velocity_is_the_derivative_of_the_point():
    point = unit_rows(0, 4)
    velocity = tangent(point, jnp.arange(4.0))
    _, slope = jax.jvp(lambda t: geodesic(point, velocity, t)[0], (0.4,), (1.0,))
    np.testing.assert_allclose(slope, geodesic(point, velocity, 0.4)[1], atol=1e-13)


def test_standing_still_is_a_geodesic_with_a_gradient():
    point = unit_rows(0, 4)
    moved, velocity = geodesic(point, np.zeros(4))
    np.testing.assert_allclose(moved, point, atol=1e-15)
    assert not np.any(velocity)
    slope = jax.jacobian(lambda v: geodesic(jnp.asarray(point), v)[0])(jnp.zeros(4))
    assert np.all(np.isfinite(slope))


@pytest.mark.parametrize("value", [np.zeros(3), np.array([3.0, 0, 4.0])])
def test_norm_and_direction_have_gradients_at_the_origin(value):
    norm = np.linalg.norm(value)
    assert safe_norm(value) == norm
    expected = value / norm if norm else np.zeros(3)
    np.testing.assert_allclose(normalise(value), expected)
    np.testing.assert_allclose(jax.grad(safe_norm)(value), expected)
    assert np.all(np.isfinite(jax.jacobian(normalise)(value)))


@pytest.mark.parametrize("angle", [1e-3, 1e-4])
def test_small_angles_in_single_precision(angle):
    exact = np.array([[1.0, 0, 0], [np.cos(angle), np.sin(angle), 0]])
    rows = jnp.asarray(exact, jnp.float32)
    truth = 2 * np.arcsin(np.linalg.norm(np.diff(np.asarray(rows, float), axis=0)) / 2)
    assert relative_error(pairwise_angles(rows)[0, 1], truth) <= 1e-6
    by_arccos = jnp.arccos(jnp.clip(jnp.sum(rows[0] * rows[1]), -1, 1))
    assert relative_error(by_arccos, truth) > 1e-2


def test_pairwise_angles_are_those_of_arccos_where_arccos_is_good():
    rows = unit_rows(3, 2, 6, 5)
    cosines = np.einsum("bip,bjp->bij", rows, rows)
    expected = np.arccos(np.clip(cosines, -1, 1)) * (1 - np.eye(6))
    np.testing.assert_allclose(pairwise_angles(rows), expected, atol=1e-12)


def test_gradient_of_the_angles_against_differences():
    rows = unit_rows(4, 5, 3)
    weights = np.random.default_rng(0).normal(size=(5, 5))

    def total(raw):
        return jnp.sum(weights * pairwise_angles(normalise(jnp.asarray(raw))))

    np.testing.assert_allclose(
        jax.jit(jax.grad(total))(rows), central_difference(jax.jit(total), rows), atol=1e-7
    )


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_gradients_are_finite_at_singular_sets(rows, dtype):
    rows = jnp.asarray(rows, dtype)
    for summary in (angular_spread, lambda r: jnp.sum(pairwise_angles(normalise(r)))):
        gradient = jax.jit(jax.grad(summary))(rows)
        assert gradient.dtype == dtype
        assert np.all(np.isfinite(gradient))


def test_gradient_of_one_angle_is_a_unit_tangent_even_when_small():
    row, other = np.array([1.0, 0, 0]), np.array([np.cos(1e-5), np.sin(1e-5), 0])
    gradient = jax.grad(lambda r: pairwise_angles(jnp.stack([r, other]))[0, 1])(row)
    np.testing.assert_allclose(gradient, [0, -1, 0], atol=1e-9)


def test_spread_is_the_formula_of_the_paper():
    rows = np.random.default_rng(5).normal(size=(5, 3))
    angles = [
        np.arccos(abs(a @ b) / np.linalg.norm(a) / np.linalg.norm(b))
        for i, a in enumerate(rows)
        for j, b in enumerate(rows)
        if i != j
    ]
    for gamma in (0.0, 1.0, 3.0):
        expected = np.mean(angles) - gamma * np.var(angles)
        assert relative_error(angular_spread(rows, gamma), expected) < 1e-12


@pytest.mark.parametrize("gamma", [0.3, 1.0, 5.0])
def test_spread_lies_between_its_ends(gamma):
    top = np.pi / 2
    low = 0.0 if gamma <= 2 / np.pi else -((gamma * top - 1) ** 2) / (4 * gamma)
    rng = np.random.default_rng(6)
    sets = rng.normal(size=(300, 4, 3)) ** rng.choice([1, 3, 9], size=(300, 1, 1))
    values = angular_spread(sets, gamma)
    assert np.all((values >= low - 1e-12) & (values < top))
    assert angular_spread(np.eye(4)[:3], gamma) == pytest.approx(top)
    # Orthogonal is the only way to reach the top.
    assert angular_spread(np.eye(3) + 1e-3 * np.eye(3, k=1), gamma) < top - 1e-5


@pytest.mark.parametrize(("gamma", "low"), [(1.0, -0.0815), (5.0, -2.3489)])
def test_two_clusters_attain_the_lower_end(gamma, low):
    """A share of pairs at right angles, the rest parallel, is the Bhatia-Davis extreme."""
    sets = np.stack([np.repeat(np.eye(2), [11 - m, m], axis=0) for m in range(1, 6)])
    values = angular_spread(sets, gamma)
    assert min(values) == pytest.approx(low, abs=1e-4)
    assert min(values) >= -((gamma * np.pi / 2 - 1) ** 2) / (4 * gamma) - 1e-12


@pytest.mark.parametrize("summary", [angular_spread, effective_directions])
def test_summaries_ignore_order_rotation_and_length(summary):
    rows = np.random.default_rng(7).normal(size=(5, 4))
    value = summary(rows)
    for other in (rows[[3, 1, 0, 4, 2]], rows @ rotation(8, 4), rows * np.arange(1, 6)[:, None]):
        assert relative_error(summary(other), value) < 1e-10


def test_effective_directions_between_its_limits():
    assert effective_directions(np.eye(5)[:3]) == pytest.approx(3)
    assert effective_directions(np.ones((4, 3))) == pytest.approx(1)
    assert effective_directions([[1.0, 0], [-2.0, 0]]) == pytest.approx(1)
    assert effective_directions(np.repeat(np.eye(2), 3, axis=0)) == pytest.approx(2)
    weights = np.array([0.75, 0.25])  # three along one axis, one along the other
    rows = np.repeat(np.eye(2), [3, 1], axis=0)
    expected = np.exp(-np.sum(weights * np.log(weights)))
    assert effective_directions(rows) == pytest.approx(expected)


def test_diversity_summary():
    summary = diversity([[2.0, 0], [0, 1], [-1, 0]])
    angles = np.array([np.pi / 2, np.pi / 2, np.pi])
    assert summary.mean_angle == pytest.approx(angles.mean())
    assert summary.min_angle == pytest.approx(angles.min())
    assert summary.variance == pytest.approx(angles.var())
    assert summary.angular_spread == pytest.approx(np.pi / 3 - np.var([np.pi / 2, np.pi / 2, 0]))


def test_opposed_vectors_are_widest_apart_but_worst_for_the_spread():
    assert diversity([[1.0, 0], [-1, 0]]).mean_angle == pytest.approx(np.pi)
    assert angular_spread([[1.0, 0], [-1, 0]]) == pytest.approx(0, abs=1e-7)


def test_one_component_has_no_pairs():
    summary = diversity([[1.0, 2, 3]])
    assert np.isnan(summary.mean_angle)
    assert np.isnan(summary.min_angle)
    assert summary.effective_directions == pytest.approx(1)
    assert angular_spread([[1.0, 2, 3]]) == 0
    assert not np.any(jax.grad(angular_spread)(jnp.ones((1, 3))))
