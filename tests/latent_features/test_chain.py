"""One chain, with its rows on the host or on a device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wideangle.datasets import block_images
from wideangle.latent_features import memory
from wideangle.latent_features.chain import (
    MOST_KEPT,
    Chain,
    Plan,
    begin_chain,
    run_chain,
    thinned,
)
from wideangle.latent_features.device import CHUNK, DeviceRows
from wideangle.latent_features.memory import MemoryRows
from wideangle.latent_features.state import Design, Hyper, with_room
from wideangle.priors.stick_breaking import Buffet


def begin(design, seed=0, place="host"):
    data = block_images(seed, 60)
    hyper = Hyper(
        Buffet(jnp.array(1.0), jnp.array(0.0), jnp.array(1.0)),
        jnp.array(0.25),
        jnp.array(4.0),
        jnp.array(1.0),
    )
    key = jax.random.key(seed, impl="threefry2x32")
    used = data.assignments.astype(np.uint8)
    rows = MemoryRows(data.X)
    chain = begin_chain(key, data.features, used, hyper)
    return chain, rows if place == "host" else DeviceRows(rows)


@pytest.mark.slow  # of features without an order, in little time: test_lfm_room.py
@pytest.mark.usefixtures("compile_quickly")
def test_the_device_makes_the_sweeps_of_the_host(monkeypatch):
    """The same keys and the same moves: the same chain, up to rounding."""
    design = Design(n_relocations=2, n_births=2)
    plan = Plan(n_warmup=2, n_draws=3, thin=2)
    device, host = (run_chain(*begin(design, place=p), design, plan) for p in ("device", "host"))
    assert device.n_done == host.n_done == plan.n_sweeps
    assert len(device.draws) == len(host.draws) == 3
    monkeypatch.setattr(memory, "MANY_ENTRIES", 0)  # arrays as narrow as those of large data
    narrow = run_chain(*begin(design), design, plan)
    assert narrow.trace == host.trace
    np.testing.assert_allclose(device.trace["n_active"], host.trace["n_active"])
    np.testing.assert_allclose(device.trace["log_lik"], host.trace["log_lik"], rtol=1e-6)
    np.testing.assert_allclose(device.trace["signal"], host.trace["signal"], atol=1e-6)
    for left, right in zip(device.draws, host.draws, strict=True):
        np.testing.assert_array_equal(left.assignments, right.assignments)
        np.testing.assert_allclose(left.vectors, right.vectors, atol=1e-6)
        np.testing.assert_allclose(left.worth, right.worth, atol=1e-4)


def test_columns_are_taken_from_where_they_are():
    used = np.random.default_rng(0).integers(0, 2, (7, 6)).astype(np.uint8)
    used[:, 4:] = 0
    found = memory.take_columns(used, np.array([2, -1, 0]))
    np.testing.assert_array_equal(found.T, [used[:, 2], np.zeros(7), used[:, 0]])


def test_large_data_get_narrow_arrays():
    assert memory.width_for(19, 96, 1000) == 96
    assert memory.width_for(49, 96, 100_000) == 64
    assert memory.width_for(0, 96, 100_000) == 48
    assert memory.width_for(95, 90, 100_000) == 90


def test_programs_end_with_warm_up_and_where_a_state_is_kept():
    plan = Plan(n_warmup=25, n_draws=2, thin=CHUNK + 5)
    ends, at = [], 0
    while at < plan.n_sweeps:
        span = plan.span(at, CHUNK)
        assert 1 <= span.n_sweeps <= CHUNK
        at += span.n_sweeps
        ends.append(at)
    assert at == plan.n_sweeps
    kept = [n for n in range(plan.n_sweeps + 1) if plan.keeps(n)]
    assert kept == [25 + plan.thin, 25 + 2 * plan.thin]
    assert {plan.n_warmup, *kept} <= {*ends}


def test_more_room_holds_the_same_features():
    chain, _ = begin(Design())
    wider = with_room(chain.features, chain.features.room + 10)
    assert wider.room == chain.features.room + 10
    np.testing.assert_array_equal(
        wider.components.vectors[: chain.features.room], chain.features.components.vectors
    )
    assert not wider.assignments[:, chain.features.room :].any()


def test_the_states_of_a_shorter_plan_are_among_those_of_a_longer():
    plan = Plan(10, 25, 8)
    chain = Chain(None, None)
    for n_sweeps in (200, 300, 450, 675, 2000):
        longer = plan.lasting(n_sweeps)
        thinned(chain, plan, longer)
        while chain.n_done < longer.n_sweeps:
            chain.n_done += 1
            if longer.keeps(chain.n_done):
                chain.draws.append(chain.n_done - longer.n_warmup)
        assert chain.draws == list(range(longer.thin, longer.n_sweeps - 10 + 1, longer.thin))
        assert longer.n_sweeps >= 10 + n_sweeps
        assert len(chain.draws) <= MOST_KEPT + 1
