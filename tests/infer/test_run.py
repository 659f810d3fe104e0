import io
from functools import partial
from importlib import import_module
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wideangle.infer import RunState, exactly, geodesic_hmc, metropolis, run, sweep, within
from wideangle.infer import program as programs
from wideangle.infer.program import _Traced, compiled
from wideangle.infer.run import run_many
from wideangle.progress import Progress
from wideangle.sharding import rows_over


class Latents(NamedTuple):
    x: jax.Array
    y: jax.Array


def walk(step):
    def propose(key, position):
        return position + step * jax.random.normal(key, position.shape), jnp.zeros(())

    return metropolis(propose)


def log_joint(z):
    return 3.0 * z.x[0] - 0.5 * jnp.sum((z.y - 1.0) ** 2)


def recipe(steps):
    return sweep(
        x=within(geodesic_hmc(steps["x"], 4), "x", log_joint),
        y=within(walk(steps["y"]), "y", log_joint),
    )


def initial(key):
    return Latents(jnp.array([0.0, 0.0, 1.0]), jax.random.normal(key, (2,)))


OPTIONS = {
    "n_warmup": 30,
    "n_draws": 20,
    "n_chains": 2,
    "steps": {"x": 0.3, "y": 1.0},
    "targets": {"x": 0.8, "y": 0.4},
}


def go(**changed):
    return run(jax.random.key(3), recipe, initial, **(OPTIONS | changed))


def assert_same(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


def test_shapes_and_report():
    result = go()
    assert isinstance(result.draws.values, Latents)
    assert result.draws.values.x.shape == (2, 20, 3)
    assert result.draws.stats["x"].acceptance.shape == (2, 20)
    assert isinstance(result.steps["x"], float)
    assert not result.interrupted
    assert result.state.iteration == 50
    assert set(result.acceptance) == {"x", "y"}
    assert 0.2 < result.acceptance["y"] < 1
    assert result.divergences == {"x": 0, "y": 0}
    assert result.evaluations == {"x": 2 * 20 * 5, "y": 2 * 20 * 2}
    assert not np.allclose(result.draws.values.x[0], result.draws.values.x[1])


def test_the_chunk_size_does_not_matter():
    whole = go()
    for chunk in (1, 7):
        other = go(chunk=chunk)
        assert_same(whole.draws.values, other.draws.values)
        assert_same(whole.draws.stats, other.draws.stats)
        assert_same(whole.state, other.state)


@pytest.mark.parametrize("stop", [10, 37])
def test_a_resumed_run_is_the_same_run(stop):
    seen = []

    def remember(state, draws):
        seen.append((jax.tree.map(np.array, state), jax.tree.map(np.array, draws.values)))

    whole = go(chunk=1, on_chunk=remember, thin=2)
    state, values = seen[stop - 1]
    # A plain pytree of arrays: what a file would give back.
    state = jax.tree.unflatten(jax.tree.structure(state), jax.tree.leaves(state))
    rest = go(resume=state, thin=2)
    joined = jax.tree.map(lambda a, b: np.concatenate([a, b], 1), values, rest.draws.values)
    assert_same(whole.draws.values, joined)
    assert_same(whole.state, rest.state)
    assert isinstance(rest.state, RunState)


def test_ctrl_c_keeps_the_draws_and_the_rest_can_follow():
    def stop(state, draws):
        if draws.n_draws == 8:
            raise KeyboardInterrupt

    with pytest.warns(RuntimeWarning, match="8 of 20 draws"):
        half = go(chunk=1, on_chunk=stop)
    assert half.interrupted
    assert half.draws.n_draws == 8
    rest = go(resume=half.state)
    assert_same(half.draws.followed_by(rest.draws).values, go().draws.values)


def test_ctrl_c_in_warm_up_leaves_no_draws():
    def stop(state, draws):
        raise KeyboardInterrupt

    with pytest.warns(RuntimeWarning, match="0 of 20 draws"):
        result = go(chunk=5, on_chunk=stop)
    assert result.draws.n_draws == 0
    assert result.state.iteration == 5


def test_thinning_keeps_every_second_draw():
    dense, sparse = go(n_draws=20), go(n_draws=10, thin=2)
    assert_same(jax.tree.map(lambda leaf: leaf[:, 1::2], dense.draws.values), sparse.draws.values)
    np.testing.assert_allclose(sparse.acceptance["x"], dense.acceptance["x"])
    assert sparse.evaluations == dense.evaluations


def test_a_chain_does_not_depend_on_how_chains_start_together():
    start = jax.vmap(initial)(jax.random.split(jax.random.key(9), 2))
    options = OPTIONS | {"n_warmup": 0}  # in warm-up they tune one step together
    one = run(jax.random.key(3), recipe, start, **options)
    moved = start._replace(y=start.y.at[1].add(1.0))
    two = run(jax.random.key(3), recipe, moved, **options)
    assert_same(one.draws.values.y[0], two.draws.values.y[0])


def test_collect_chooses_what_is_kept():
    result = go(collect=lambda z: {"cosine": z.x[0]})
    assert_same(result.draws.values["cosine"], go().draws.values.x[..., 0])


def test_one_trace_per_shape():
    count = 0

    def counted(z):
        nonlocal count
        count += 1
        return -0.5 * jnp.sum(z["a"] ** 2)

    def own_recipe(steps):
        return sweep(a=within(walk(steps["a"]), "a", counted))

    def again(n_chains=2, **changed):
        options = {"n_warmup": 20, "n_draws": 20, "n_chains": n_chains, "steps": {"a": 1.0}}
        return run(
            jax.random.key(0), own_recipe, {"a": jnp.zeros((n_chains, 2))}, **options | changed
        )

    again(chunk=3)
    once = count
    assert once == 2  # init and step of one Metropolis kernel, in one trace
    result = again(n_draws=50, thin=3, chunk=5)
    again(resume=result.state, n_draws=60, thin=3)
    assert count == once
    again(n_chains=3)
    assert count == 2 * once


def test_steps_reach_their_targets():
    result = go(n_warmup=600, n_draws=600, n_chains=4, targets={"y": 0.3})
    assert abs(result.acceptance["y"] - 0.3) < 0.06
    np.testing.assert_allclose(result.steps["x"], 0.3)  # no target: left alone
    mean = result.draws.values.x[..., 0].mean()
    assert abs(mean - (1 / np.tanh(3) - 1 / 3)) < 0.06


def test_data_do_not_become_constants_of_the_program():
    data = jnp.arange(1000.0)
    traced = _Traced(lambda x: x + data, jax.ShapeDtypeStruct((), float))
    assert [constant.shape for constant in traced.constants] == [(1000,)]
    text = jax.jit(lambda c, x: traced.bind(c)(x)).lower(traced.constants, 1.0).as_text()
    assert "dense<" not in text
    np.testing.assert_array_equal(traced.bind(traced.constants)(jnp.asarray(1.0)), 1.0 + data)


def test_a_bare_update_and_numpy_arrays_will_do(key):
    def plain(steps):
        return exactly(lambda key, z: {"a": z["a"] + 1.0})

    result = run(key, plain, {"a": np.array([0.0, 10.0])}, n_warmup=1, n_draws=2, n_chains=2)
    np.testing.assert_array_equal(result.draws.values["a"], [[2, 3], [12, 13]])
    assert result.acceptance == {"update": 1.0}


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"targets": {"z": 0.5}}, ValueError, "unknown steps"),
        ({"steps": {"x": 0.3, "y": 1.0, "w": 1.0}, "targets": {"w": 0.5}}, ValueError, "blocks"),
        (
            {"n_chains": 3, "initial": Latents(np.ones((2, 3)), np.ones((2, 2)))},
            ValueError,
            "3 chains",
        ),
    ],
)
def test_mistakes_are_named(changed, error, message):
    start = changed.pop("initial", initial)
    with pytest.raises(error, match=message):
        run(jax.random.key(0), recipe, start, **(OPTIONS | changed))


@pytest.mark.parametrize(
    ("value", "message"), [(jnp.zeros(3), r"latents\['a'\]"), (jnp.float32(0), "float32")]
)
def test_an_update_that_changes_shape_or_dtype_is_named(key, value, message):
    def wrong(steps):
        return exactly(lambda key, z: {"a": value})

    with pytest.raises(TypeError, match=message):
        run(key, wrong, {"a": jnp.zeros(2)}, n_warmup=1, n_draws=1, n_chains=2)


def test_the_bar_is_silent_unless_someone_looks(capsys):
    go(verbose=None)
    go(verbose=False)
    assert capsys.readouterr() == ("", "")
    go(verbose=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "50/50" in err


def test_the_bar_waits_and_names_the_phase(monkeypatch):
    monkeypatch.setattr(import_module("wideangle.progress"), "PATIENCE", 0.0)
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with Progress(10, 5) as bar:
        bar.at(2)
        bar._bar.refresh()
        bar.at(7)
        bar._bar.refresh()
    text = terminal.getvalue()
    assert "warm-up" in text
    assert "sampling" in text


def test_data_is_an_argument_of_one_program():
    """Another data set of the same shape gives its own posterior and no new compilation."""
    traces = []

    def recipe(steps, data):
        traces.append(1)
        target = lambda x: -0.5 * jnp.sum((x - data["centre"]) ** 2)  # noqa: E731
        return sweep(x=within(geodesic_hmc(steps["x"], 5, sphere=False), "x", target_of(target)))

    def target_of(target):
        return lambda latents: target(latents["x"])

    def collect(latents, data):
        return latents["x"] - data["centre"]

    options = dict(n_warmup=50, n_draws=200, n_chains=2, steps={"x": 0.5}, collect=collect)
    start = {"x": jnp.zeros((2, 3))}
    means = []
    for centre in (5.0, -5.0):
        data = {"centre": jnp.full(3, centre)}
        result = run(jax.random.key(0), recipe, start, data=data, verbose=False, **options)
        means.append(float(np.mean(result.draws.values[:, 100:])))
    assert len(traces) == 1
    assert np.all(np.abs(means) < 0.5)


def test_a_mesh_has_programs_of_its_own():
    """What is compiled ahead for one device does not take rows that lie on several."""

    state = go(n_warmup=0, n_draws=1).state

    def program():
        return compiled(recipe, state, OPTIONS["targets"], log_joint)

    alone = program()
    with rows_over(jax.devices("cpu")[:1]):
        assert program() is not alone
    assert program() is alone


@pytest.mark.parametrize("device", [False, True])
def test_chains_of_many_data_sets_are_those_of_each(monkeypatch, device):
    if device:
        monkeypatch.setattr(programs, "on_cpu", lambda: False)

    def recipe(steps, data):
        return within(walk(steps["x"]), "x", lambda z: -0.5 * jnp.sum((z["x"] - data) ** 2))

    starts = [{"x": jnp.full((4, 2), 1.0 * i)} for i in range(3)]
    centres = [jnp.full(2, 10.0 * i) for i in range(3)]
    options = {"n_warmup": 20, "n_draws": 10, "steps": {"x": 0.5}}
    options |= {"targets": {"x": 0.4}, "verbose": False, "thin": 2}
    # A single update is a block without a name of its own.
    named = lambda steps, data: sweep(x=recipe(steps, data))  # noqa: E731
    keys = list(jax.random.split(jax.random.key(0), 3))
    many = run_many(keys, named, starts, data=centres, **options)
    longer = run_many(
        keys, named, starts, data=centres, resume=[one.state for one in many],
        **(options | {"n_draws": 15}),
    )  # fmt: skip
    for i, one in enumerate(many):
        alone = run(keys[i], named, starts[i], data=centres[i], **options)
        close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
        jax.tree.map(close, one.draws, alone.draws)
        jax.tree.map(close, one.state.tuning, alone.state.tuning)
        assert one.steps == pytest.approx(alone.steps, rel=1e-4)
        assert longer[i].draws.n_draws == 5
