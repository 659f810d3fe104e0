from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from wideangle.infer.ascent import Minibatches, adam, ascend, begin, schedule

N, P = 50, 3


@pytest.fixture
def data():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(N, P)) * (generator.uniform(size=(N, P)) < 0.5)
    return rows, generator.integers(0, 2, N), generator.uniform(0.5, 2.0, N)


@dataclass(frozen=True)
class Regression:
    """Least squares of the targets, one value per run; counts how often it is traced."""

    traces: list = field(default_factory=list, hash=False, compare=False)

    def __call__(self, key, position, batch, constants):
        self.traces.append(1)
        rows, targets, weights = batch
        miss = targets - position @ rows.T
        noise = constants * jax.random.normal(key, ())
        return -0.5 * miss**2 @ weights + noise * jnp.sum(position, axis=1)


def least_squares(rows, targets, weights):
    return np.linalg.solve((rows.T * weights) @ rows, (rows.T * weights) @ targets)


def test_a_pass_is_a_partition_whose_mean_is_the_whole(data):
    rows, targets, weights = data
    batches = Minibatches(1, *data, 16, np.float64)
    assert batches.per_pass == 4
    taken = [batches.take(t) for t in range(4)]
    seen = np.concatenate([rows[0] for rows, _, _ in taken])
    sums = [w[0] @ (r[0] * (1 + y[0])[:, None]) for r, y, w in taken]
    assert np.allclose(np.mean(sums, axis=0), weights @ (rows * (1 + targets)[:, None]))
    live = np.concatenate([w[0] for _, _, w in taken]) > 0
    assert live.sum() == N
    assert np.allclose(np.sort(seen[live], axis=0), np.sort(rows, axis=0))


def test_sparse_rows_give_the_same_bits(data):
    rows, targets, weights = data
    dense = Minibatches(1, rows, targets, weights, 16).take(3)
    sparse = Minibatches(1, sp.csr_matrix(rows), targets, weights, 16).take(3)
    assert all(np.array_equal(a, b) for a, b in zip(dense, sparse, strict=True))


def test_a_batch_depends_on_its_number_only(data):
    one, two = Minibatches(1, *data, 16), Minibatches(1, *data, 16)
    two.take(37)
    later = one.take(5)
    assert np.array_equal(two.take(3)[0][2], later[0][0])
    assert not np.array_equal(Minibatches(2, *data, 16).take(5)[0][0], later[0][0])


def test_little_data_is_one_batch_of_all_rows(data):
    batches = Minibatches(1, *data, 1024, np.float64)
    rows, _, weights = batches.take(0)
    assert rows.shape == (1, N, P)
    assert np.array_equal(weights[0], data[2])
    assert batches.take(9)[0] is rows


def test_the_rate_rises_stays_and_falls_to_zero():
    steps = np.array([0, 24, 49, 299, 649, 999])
    assert np.allclose(schedule(steps, 1000), [0.02, 0.5, 1.0, 1.0, 0.5, 0.0], atol=1e-6)


def test_adam_is_that_of_its_authors():
    state = begin({"x": jnp.array([[1.0, -2.0]])})
    x, m, v = np.array([[1.0, -2.0]]), 0.0, 0.0
    for t in range(1, 6):
        gradient = np.array([[0.5 * t, -1.0]])
        state = adam(state, {"x": jnp.array(gradient)}, {"x": 0.1}, jnp.int32(100))
        m, v = 0.9 * m + 0.1 * gradient, 0.99 * v + 0.01 * gradient**2
        rate = 0.1 * schedule(t - 1, 100)
        x = x + rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-8)
    assert np.allclose(state.position["x"], x, rtol=1e-6)
    spoilt = adam(state, {"x": jnp.full((1, 2), jnp.nan)}, {"x": 0.1}, jnp.int32(100))
    assert np.all(np.isfinite(spoilt.position["x"]))


def climb(key, data, objective, size=16, state=None, n_steps=400, noise=0.0, **options):
    state = begin(jnp.array([[0.0, 0.0, 0.0], [3.0, -3.0, 1.0]])) if state is None else state
    batches = Minibatches(1, *data, size, np.float64)
    settings = {"rates": 0.1, "n_steps": n_steps, "verbose": False} | options
    return ascend(key, objective, state, batches, jnp.array(noise), **settings)


@pytest.mark.parametrize("size", [16, 1024])
def test_runs_climb_to_the_top_from_minibatches_or_all_rows(key, data, size):
    objective = Regression()
    result = climb(key, data, objective, size)
    assert np.allclose(result.state.position, least_squares(*data), atol=0.02)
    assert result.trace.shape == (400, 2)
    assert not result.interrupted
    assert len(objective.traces) == 1  # one program for calls of every length


def test_a_run_follows_from_its_key(key, data):
    one, two = (climb(key, data, Regression(), noise=5.0) for _ in range(2))
    other = climb(jax.random.key(1), data, Regression(), noise=5.0)
    assert np.array_equal(one.state.position, two.state.position)
    assert not np.array_equal(one.state.position, other.state.position)


def test_ctrl_c_keeps_the_state_and_resuming_gives_the_same_bits(key, data):
    def stop(state, trace):
        if len(trace) > 100:
            raise KeyboardInterrupt

    whole = climb(key, data, Regression(), noise=5.0)
    with pytest.warns(RuntimeWarning, match="interrupted after 128 of 400"):
        part = climb(key, data, Regression(), noise=5.0, callback=stop)
    assert part.interrupted
    assert len(part.trace) == 128
    rest = climb(key, data, Regression(), noise=5.0, state=part.state)
    assert np.array_equal(rest.state.position, whole.state.position)
    assert np.array_equal(np.concatenate([part.trace, rest.trace]), whole.trace)
    again = climb(key, data, Regression(), state=whole.state)
    assert len(again.trace) == 0


def test_a_forced_bar_is_drawn(key, data, capsys):
    climb(key, data, Regression(), n_steps=65, verbose=True)
    assert "ascent" in capsys.readouterr().err
