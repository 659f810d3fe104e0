"""Redrawing assignments: two forms that agree, and the distribution they draw from."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wideangle import machine_code
from wideangle.latent_features import columns as by_columns
from wideangle.latent_features.assignments import decide, draw_randomness, sweep_rows
from wideangle.latent_features.columns import sweep_columns


def problem(seed, n_rows=200, dim=6, room=12, dtype=np.float64):
    rng = np.random.default_rng(seed)
    vectors = 0.3 * rng.normal(size=(room, dim))
    used = (rng.random((n_rows, room)) < 0.1).astype(np.uint8)
    used[:, (3, 8)[seed % 2] :] = 0
    if seed % 5 == 0:
        used[:] = 0
    rows = used @ vectors + rng.normal(size=(n_rows, dim))
    weights = np.sort(rng.beta(1, 20, size=room))[::-1]
    products, inner = rows @ vectors.T, vectors @ vectors.T
    return [np.ascontiguousarray(a, dtype) for a in (products, inner, weights)], used


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_and_columns_give_the_same_assignments(seed, dtype):
    (products, inner, weights), used = problem(seed, dtype=dtype)
    randomness = draw_randomness(jax.random.key(seed), len(weights), dtype)
    columns = jax.jit(sweep_columns)(randomness, used, products, inner, weights, 10, 1.0)
    rows = sweep_rows(randomness, used, products, inner, weights, 10, 1.0)
    np.testing.assert_array_equal(rows, columns)
    assert (rows != used).any()
    assert not rows[:, 10:].any()


@pytest.mark.parametrize("ahead", [1, 3, 64])
@pytest.mark.parametrize("seed", [1, 2, 5])
def test_looking_ahead_changes_nothing(ahead, seed, monkeypatch):
    """Many columns after the last active one, some of which come into use."""
    monkeypatch.setattr(by_columns, "AHEAD", ahead)
    (products, inner, weights), used = problem(seed, n_rows=60, room=90)
    randomness = draw_randomness(jax.random.key(seed), len(weights), np.float64)
    last = used.any(axis=0).nonzero()[0].max(initial=0)
    randomness = randomness._replace(
        any_row=randomness.any_row.at[last].set(0.0)
    )  # it comes out empty
    arguments = (randomness, used, products, inner, weights, 87, 1.0)
    compiled = jax.jit(lambda *a: sweep_columns(*a))  # noqa: PLW0108  (a new one, not from the cache)
    columns = np.asarray(compiled(*arguments))
    np.testing.assert_array_equal(sweep_rows(*arguments), columns)
    begun = np.flatnonzero(columns.any(axis=0) & ~used.any(axis=0))
    assert len(begun) > 3
    assert begun.max() > last + 3
    assert not columns[:, last].any()


def test_a_fixed_length_of_the_loop_and_threads_change_nothing(monkeypatch):
    (products, inner, weights), used = problem(1)
    randomness = draw_randomness(jax.random.key(1), len(weights), np.float64)
    arguments = (randomness, used, products, inner, weights, 10, 1.0)
    reference = sweep_rows(*arguments)
    monkeypatch.setattr(machine_code, "THREADED_WORK", 0)
    np.testing.assert_array_equal(reference, sweep_rows(*arguments))
    fixed = jax.jit(lambda *a: sweep_columns(*a, fixed_length=True))(*arguments)
    np.testing.assert_array_equal(reference, fixed)


def test_more_room_changes_nothing():
    (products, inner, weights), used = problem(3)
    key = jax.random.key(3)
    small = sweep_rows(
        draw_randomness(key, 12, np.float64), used, products, inner, weights, 10, 1.0
    )
    wide = [np.pad(products, ((0, 0), (0, 4))), np.pad(inner, (0, 4)), np.pad(weights, (0, 4))]
    randomness = draw_randomness(key, 16, np.float64)
    large = sweep_rows(randomness, np.pad(used, ((0, 0), (0, 4))), *wide, 10, 1.0)
    np.testing.assert_array_equal(small, large[:, :12])


def test_one_column_is_drawn_from_its_conditional_distribution():
    """Against all states of the last columns, with the density of the level."""
    n_rows, variance = 2, 0.7
    weights = np.array([0.6, 0.3, 0.1])
    vectors = np.array([[1.0, 0.2], [0.4, -0.9], [0.5, 0.5]])
    rows = np.array([[0.9, -0.3], [0.2, 0.8]])
    used = np.array([[1, 0, 0], [0, 0, 0]], np.uint8)

    def log_joint(z):
        residual = rows - z @ vectors
        prior = np.sum(z * np.log(weights) + (1 - z) * np.log1p(-weights))
        active = z.any(axis=0)
        bound = min(weights[active].min() if active.any() else 1.0, 1 / n_rows)
        return prior - 0.5 * np.sum(residual**2) / variance - np.log(bound)

    def conditional(z, k):
        """Probability of each state of column k given the others."""
        states = [np.array(state) for state in product((0, 1), repeat=n_rows)]
        logs = []
        for state in states:
            changed = z.copy()
            changed[:, k] = state
            logs.append(log_joint(changed))
        share = np.exp(np.array(logs) - np.logaddexp.reduce(logs))
        return states, share

    exact: dict[tuple[int, ...], float] = {}

    def spread(z, k, mass):
        if k == len(weights):
            exact[tuple(z.ravel())] = exact.get(tuple(z.ravel()), 0.0) + mass
            return
        for state, share in zip(*conditional(z, k), strict=True):
            changed = z.copy()
            changed[:, k] = state
            spread(changed, k + 1, mass * share)

    spread(used.astype(int), 0, 1.0)
    n = 40_000

    def draw(key):
        randomness = draw_randomness(key, len(weights), jnp.float64)
        products, inner = jnp.asarray(rows @ vectors.T), jnp.asarray(vectors @ vectors.T)
        return sweep_columns(
            randomness, jnp.asarray(used), products, inner, jnp.asarray(weights), 3, variance
        )

    drawn = np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(0), n)))
    codes, counts = np.unique(drawn.reshape(n, -1), axis=0, return_counts=True)
    found = {
        tuple(int(v) for v in code): count / n for code, count in zip(codes, counts, strict=True)
    }
    for state, share in exact.items():
        error = np.sqrt(share * (1 - share) / n) + 1e-9
        assert abs(found.get(state, 0.0) - share) < 4.5 * error, state


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_decisions_are_right_at_both_ends(dtype):
    uniforms = (jnp.arange(2**16, dtype=dtype) + 0.5) / 2**16
    for logit in (-3.0, 0.0, 2.0):
        share = float(jnp.mean(decide(jnp.full_like(uniforms, logit), uniforms)))
        assert share == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-4)
    nearly_one = jnp.asarray(1 - 1e-9, dtype)
    assert bool(decide(jnp.asarray(60.0, dtype), nearly_one))
    assert not bool(decide(jnp.asarray(-60.0, dtype), jnp.asarray(1e-10, dtype)))
