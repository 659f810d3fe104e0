import sys

import jax.numpy as jnp
import numpy as np
import pytest

from wideangle.arviz_adapter import to_arviz

CHAINS, DRAWS, K, P = 2, 5, 3, 4


@pytest.fixture
def groups():
    random = np.random.default_rng(0)
    return {
        "posterior": {
            "directions": random.normal(size=(CHAINS, DRAWS, K, P)),
            "noise": jnp.asarray(random.normal(size=(CHAINS, DRAWS))),
        },
        "sample_stats": {"diverging": random.random((CHAINS, DRAWS)) < 0.5},
        "observed_data": {"x": random.normal(size=7)},
    }


@pytest.fixture
def data(groups):
    pytest.importorskip("arviz")
    return to_arviz(
        groups,
        coords={"component": ["a", "b", "c"]},
        dims={"directions": ("component", "axis"), "x": ["row"]},
    )


def test_container_is_that_of_the_installed_arviz(data):
    arviz = pytest.importorskip("arviz")
    old = arviz.__version__.startswith("0.")
    assert type(data).__name__ == ("InferenceData" if old else "DataTree")


def test_every_value_arrives(data, groups):
    for group, variables in groups.items():
        assert set(data[group].data_vars) == set(variables)
        for name, values in variables.items():
            stored = data[group][name].values
            assert stored.dtype == np.asarray(values).dtype
            np.testing.assert_array_equal(stored, values)


def test_dimensions_and_labels_are_named(data):
    directions = data["posterior"]["directions"]
    assert directions.dims == ("chain", "draw", "component", "axis")
    assert list(directions.coords["component"].values) == ["a", "b", "c"]
    assert data["sample_stats"]["diverging"].dims == ("chain", "draw")
    assert data["observed_data"]["x"].dims == ("row",)


def test_names_are_optional(groups):
    pytest.importorskip("arviz")
    directions = to_arviz(groups)["posterior"]["directions"]
    assert directions.dims[:2] == ("chain", "draw")
    assert directions.shape == (CHAINS, DRAWS, K, P)


@pytest.mark.parametrize("shape", [(DRAWS,), (CHAINS, DRAWS + 1), ()])
def test_arrays_that_disagree_on_chain_and_draw_are_refused(groups, shape):
    groups["posterior"]["extra"] = np.zeros(shape)
    with pytest.raises(ValueError, match=r"'posterior'.*chain, draw"):
        to_arviz(groups)


def test_missing_arviz_says_how_to_get_it(groups, monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[arviz\]"'):
        to_arviz(groups)
