from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wideangle.infer import Info, exactly, metropolis, sweep, within
from wideangle.infer.kernel import accept, make_info
from wideangle.types import Components


class Pair(NamedTuple):
    a: jax.Array
    b: jax.Array


def shift(by):
    """A kernel that moves every leaf by a constant, so that the plumbing is visible."""

    def proposal(key, position):
        return jax.tree.map(lambda leaf: leaf + by, position), jnp.array(jnp.inf)

    return metropolis(proposal)


def test_within_moves_one_field_of_a_namedtuple_and_leaves_the_other(key):
    start = Pair(jnp.zeros(2), jnp.ones(3))
    latents, info = within(shift(1.0), "a", lambda z: -jnp.sum(z.a**2) - jnp.sum(z.b**2))(
        key, start
    )
    np.testing.assert_array_equal(latents.a, [1, 1])
    np.testing.assert_array_equal(latents.b, start.b)
    assert isinstance(latents, Pair)
    assert info.evaluations == 2  # one for the fresh state, one for the proposal


def test_within_takes_dicts_and_several_fields(key):
    start = {"a": jnp.zeros(2), "b": jnp.ones(3), "c": jnp.zeros(())}
    update = within(shift(1.0), ("a", "c"), lambda z: z["a"].sum() + z["c"])
    latents, _ = update(key, start)
    np.testing.assert_array_equal(latents["a"], [1, 1])
    np.testing.assert_array_equal(latents["c"], 1)
    np.testing.assert_array_equal(latents["b"], start["b"])


def test_within_reaches_nested_fields(key):
    start = {"components": Components(jnp.zeros((2, 3)), jnp.ones(2))}
    update = within(shift(1.0), "components.magnitudes", lambda z: z["components"].magnitudes.sum())
    latents, _ = update(key, start)
    np.testing.assert_array_equal(latents["components"].magnitudes, [2, 2])
    np.testing.assert_array_equal(latents["components"].directions, 0)


@pytest.mark.parametrize("latents", [{"a": 0.0}, Pair(jnp.zeros(1), jnp.zeros(1))])
def test_within_refuses_unknown_fields(key, latents):
    with pytest.raises((KeyError, AttributeError)):
        within(shift(1.0), "nothing", lambda z: 0.0)(key, latents)


def test_within_never_uses_a_stale_density(key):
    # A wall at the value of b: a may move to 1 only after b has moved to 5.
    def log_joint(z):
        return jnp.where(z.a <= z.b, 0.0, -jnp.inf)

    move_a = within(
        metropolis(lambda key, position: (position + 1.0, jnp.array(0.0))), "a", log_joint
    )
    move_b = exactly(lambda key, z: z._replace(b=jnp.array(5.0)))
    start = Pair(jnp.array(0.0), jnp.array(0.5))
    assert sweep(a=move_a, b=move_b)(key, start)[0].a == 0.0
    assert sweep(b=move_b, a=move_a)(key, start)[0].a == 1.0


def test_sweep_names_its_infos_and_gives_each_block_its_own_key(key):
    def draw(name):
        return exactly(lambda key, z: z | {name: jax.random.normal(key)})

    latents, infos = sweep(a=draw("a"), b=draw("b"))(key, {"a": 0.0, "b": 0.0})
    assert list(infos) == ["a", "b"]
    assert all(isinstance(info, Info) for info in infos.values())
    assert latents["a"] != latents["b"]
    assert infos["a"].acceptance == 1.0


@pytest.mark.parametrize(
    ("log_ratio", "probability"),
    [(jnp.nan, 0.0), (-jnp.inf, 0.0), (jnp.inf, 1.0), (0.0, 1.0), (-1.0, np.exp(-1.0))],
)
def test_acceptance_probability(key, log_ratio, probability):
    keys = jax.random.split(key, 1000)
    accepted, reported = jax.vmap(accept, (0, None))(keys, jnp.asarray(log_ratio))
    np.testing.assert_allclose(reported, probability)
    assert abs(accepted.mean() - probability) < 0.06


def test_info_has_fixed_dtypes():
    info = make_info(1, True, 3)
    assert info.divergent.dtype == info.evaluations.dtype == jnp.int32
    assert info.acceptance.dtype == jnp.result_type(float)
