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
