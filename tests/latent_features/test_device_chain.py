"""A chain that runs on a device as one program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wideangle.datasets.block_images import block_images
from wideangle.latent_features import chain as lfm_chain
from wideangle.latent_features import device_chain as lfm_device
from wideangle.latent_features.chain import Plan
from wideangle.latent_features.rows import columns as host_columns
from wideangle.latent_features.rows.memory import FeatureRows
from wideangle.latent_features.sampler.design import Design
from wideangle.latent_features.state import Hyper, with_room
from wideangle.priors.stick_breaking import Buffet


def begin(design, seed=0):
    data = block_images(seed, 60)
    hyper = Hyper(
        Buffet(jnp.array(1.0), jnp.array(0.0), jnp.array(1.0)),
        jnp.array(0.25),
        jnp.array(4.0),
        jnp.array(1.0),
    )
    key = jax.random.key(seed, impl="threefry2x32")
    used = data.assignments.astype(np.uint8)
    chain = lfm_chain.begin_chain(key, data.features, used, hyper, design)
    return chain, FeatureRows(data.X)


@pytest.mark.slow  # of features without an order, in little time: test_lfm_room.py
@pytest.mark.usefixtures("compile_quickly")
def test_the_device_makes_the_sweeps_of_the_host(monkeypatch):
    """The same keys and the same moves: the same chain, up to rounding."""
    design = Design(n_relocations=2, n_null_moves=1, n_single_moves=1)
    plan = Plan(2, 6, 3)
    there, rows = begin(design)
    here, _ = begin(design)
    lfm_device.run_chain_on_device(there, rows.on_device(), design, plan)
    lfm_chain.run_chain(here, rows, design, plan)
    assert there.n_done == here.n_done == plan.n_sweeps
    assert len(there.kept) == len(here.kept) == 3
    monkeypatch.setattr(host_columns, "MANY_ENTRIES", 0)  # arrays as narrow as those of large data
    narrow, _ = begin(design)
    lfm_chain.run_chain(narrow, rows, design, plan)
    assert narrow.trace == here.trace
    np.testing.assert_allclose(there.trace["n_active"], here.trace["n_active"])
    np.testing.assert_allclose(there.trace["log_lik"], here.trace["log_lik"], rtol=1e-6)
    for left, right in zip(there.kept, here.kept, strict=True):
        np.testing.assert_array_equal(left.assignments, right.assignments)
        np.testing.assert_allclose(left.vectors, right.vectors, atol=1e-6)


def test_columns_are_taken_from_where_they_are():
    used = np.random.default_rng(0).integers(0, 2, (7, 6)).astype(np.uint8)
    used[:, 4:] = 0
    np.testing.assert_array_equal(host_columns.counts_in(used, 4), used.sum(axis=0))
    found = np.zeros((7, 5), np.uint8)
    host_columns.take_columns(used, np.array([2, -1, 0]), found)
    none = np.zeros(7)
    np.testing.assert_array_equal(found.T, [used[:, 2], none, used[:, 0], none, none])


def test_large_data_get_narrow_arrays():
    assert host_columns.width_for(19, 96, 1000) == 96
    assert host_columns.width_for(19, 96, 100_000) == 32
    assert host_columns.width_for(0, 96, 100_000) == 16
    assert host_columns.width_for(95, 90, 100_000) == 90


def test_chunks_end_where_a_state_is_kept():
    plan = Plan(25, 10, 2)
    begins, at = [], 0
    while at < plan.n_sweeps:
        begins.append(at)
        at += lfm_device._chunk_length(plan, at)
    assert at == plan.n_sweeps
    assert 25 in begins  # warm-up is a chunk boundary
    kept = {plan.n_warmup + d + 1 for d in range(plan.n_draws) if plan.keeps(d)}
    assert kept <= {*begins, plan.n_sweeps}


def test_plans_keep_evenly_spaced_states():
    plan = Plan(0, 10, 4)
    kept = [d for d in range(10) if plan.keeps(d)]
    assert len(kept) == 4
    assert kept[-1] == 9
    assert sum(Plan(0, 3, 25).keeps(d) for d in range(3)) == 3


def test_more_room_holds_the_same_features():
    chain, _ = begin(Design())
    wider = with_room(chain.features, chain.features.room + 10)
    assert wider.room == chain.features.room + 10
    np.testing.assert_array_equal(
        wider.components.vectors[: chain.features.room], chain.features.components.vectors
    )
    assert not wider.assignments[:, chain.features.room :].any()
