import jax.numpy as jnp
import numpy as np
import pytest

from wideangle.infer import Info
from wideangle.posterior import Draws
from wideangle.types import Components


def make_draws(n_chains=3, n_draws=50):
    random = np.random.default_rng(0)
    values = Components(
        random.normal(size=(n_chains, n_draws, 2, 4)),
        random.gamma(2.0, size=(n_chains, n_draws, 2)),
    )
    shape = (n_chains, n_draws)
    stats = {"directions": Info(np.ones(shape), np.zeros(shape, int), np.full(shape, 9))}
    return Draws(values, stats)


def test_flat_keeps_the_structure_and_the_order():
    draws = make_draws()
    assert isinstance(draws.flat, Components)
    assert draws.flat.directions.shape == (150, 2, 4)
    np.testing.assert_array_equal(draws.flat.magnitudes[50], draws.values.magnitudes[1, 0])
    assert (draws.n_chains, draws.n_draws) == (3, 50)


def test_sample_takes_draws_without_repetition_while_it_can(key):
    draws = make_draws()
    every = draws.sample(key, 150)
    np.testing.assert_array_equal(
        np.sort(every.magnitudes[:, 0]), np.sort(draws.flat.magnitudes[:, 0])
    )
    assert draws.sample(key, 400).directions.shape == (400, 2, 4)


@pytest.mark.parametrize("batch", [1, 7, 150, 1000])
def test_mean_is_that_of_all_draws_for_any_batch(batch):
    draws = make_draws()
    result = draws.mean(lambda c: {"v": c.vectors, "big": c.magnitudes > 1}, batch=batch)
    flat = draws.flat
    np.testing.assert_allclose(
        result["v"], (flat.magnitudes[..., None] * flat.directions).mean(0), rtol=1e-12
    )
    np.testing.assert_allclose(result["big"], (flat.magnitudes > 1).mean(0))


def test_mean_compiles_one_batch():
    traces = []

    def f(c):
        traces.append(c.magnitudes.shape)
        return c.magnitudes

    make_draws().mean(f, batch=40)
    assert traces == [(2,), (2,)]  # once for the shape of the result, once to compile


def test_mean_keeps_float32():
    draws = Draws(jnp.ones((2, 5, 3), jnp.float32))
    assert draws.mean(lambda x: x).dtype == jnp.float32


def test_mean_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no draws"):
        Draws(np.zeros((2, 0, 3))).mean(lambda x: x)


def test_summary_and_warnings():
    draws = make_draws()
    table = draws.summary()
    assert table.names[0] == "directions[0, 0]"
    assert len(table) == 10
    assert draws.caution(table) is None
    few = Draws({"x": np.asarray(draws.values.magnitudes)[:, :10]})
    assert "too few independent draws" in str(few.caution())


def test_followed_by_joins_along_the_draws():
    draws = make_draws()
    joined = draws.followed_by(draws)
    assert joined.n_draws == 100
    assert joined.stats["directions"].acceptance.shape == (3, 100)
    np.testing.assert_array_equal(joined.values.magnitudes[:, 50:], draws.values.magnitudes)


def test_to_arviz_has_values_and_statistics():
    pytest.importorskip("arviz")
    data = make_draws().to_arviz(dims={"magnitudes": ["component"]})
    assert data["posterior"]["magnitudes"].dims == ("chain", "draw", "component")
    assert data["sample_stats"]["diverging"].shape == (3, 50)
    assert data["sample_stats"]["directions.n_evaluations"].shape == (3, 50)
