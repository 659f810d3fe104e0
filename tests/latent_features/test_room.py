"""Room for features: arrays grow and shrink with them; else the distribution stays."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from feature_geweke import geweke
from latent_features.test_chain import begin
from statistical import measured
from wideangle.latent_features import births
from wideangle.latent_features import state as lfm_state
from wideangle.latent_features.chain import Plan, run_chain
from wideangle.latent_features.directions import Steps
from wideangle.latent_features.rows import DenseRows
from wideangle.latent_features.state import (
    Design,
    attached,
    detached,
    more_room,
    room_for,
    with_room,
)
from wideangle.latent_features.sweep import sweep_without_assignments
from wideangle_lab.calibration import features as calibration
from wideangle_lab.calibration.features import pitman_yor

LIMIT = 4.2
POWER_LAW = Design("gaussian", False)
MANY_BIRTHS = Design("gaussian", False, n_births=20)


def test_arrays_of_another_size_hold_the_same_features():
    chain, _ = begin(Design())
    features = chain.features
    room, n_live = features.room, int(features.n_live)
    used = features.assignments
    for made in (features, detached(features)):
        wider = with_room(made, room + 10)
        assert wider.room == wider.assignments.shape[1] == room + 10
        for size in (room, n_live):
            back = with_room(wider, size)
            assert back.room == back.assignments.shape[1] == size
            whole = with_room(back, room)
            if made is not features:
                whole = attached(whole, used)
            jax.tree.map(np.testing.assert_array_equal, whole, features)


def test_wide_arrays_grow_only_for_features_in_use():
    chain, _ = begin(POWER_LAW)
    small = chain.features
    assert more_room(small, POWER_LAW) == room_for(small.room) > small.room
    wide = with_room(small, lfm_state.WIDE)
    assert more_room(wide, POWER_LAW) is None
    assert more_room(wide, Design()) == room_for(lfm_state.WIDE)
    full = wide._replace(n_live=jnp.array(lfm_state.WIDE // 2 + 1))
    assert more_room(full, POWER_LAW) == room_for(lfm_state.WIDE)
    largest = with_room(small, lfm_state.ROOMS[-1])
    assert more_room(largest, POWER_LAW) is None
    with pytest.raises(lfm_state.RoomError, match="larger noise"):
        more_room(largest._replace(n_live=jnp.array(lfm_state.ROOMS[-1] - 1)), POWER_LAW)


@pytest.mark.slow
@pytest.mark.usefixtures("compile_quickly")
def test_host_and_device_leave_the_same_assignments_alone(monkeypatch):
    """Arrays that never grow: some sweeps do without assignments, on the device the same ones."""
    monkeypatch.setattr(lfm_state, "WIDE", 0)
    design = Design("gaussian", False, n_births=2)
    plan = Plan(1, 12, 1)
    chains = []
    for place in ("host", "device"):
        chain, rows = begin(design, place=place)
        hyper = chain.features.hyper
        hyper = hyper._replace(buffet=hyper.buffet._replace(mass=jnp.array(6.0)))
        chain.features = with_room(chain.features, 16)._replace(hyper=hyper)
        run_chain(chain, rows, design, plan)
        assert chain.features.room == 16
        assert chain.n_done == plan.n_sweeps
        assert len(chain.trace["n_active"]) == len(chain.draws) == 12
        chains.append(chain)
    host, device = chains
    same = []
    for left, right in zip(host.draws, device.draws, strict=True):
        np.testing.assert_array_equal(left.assignments, right.assignments)
        np.testing.assert_allclose(left.vectors, right.vectors, atol=1e-6)
        same.append(sorted(map(tuple, left.assignments.T)))  # in the order of new weights
    assert 0 < sum(before == after for before, after in pairwise(same)) < 8


def _or_else(fallback):
    """The sweep of the bench, with ``fallback(key, old, rows, moved, design)`` without room."""
    right = calibration.sweep

    def sweep(key, features, rows, design):
        moved, overflow = right(key, features, rows, design)
        other = fallback(key, features, rows, moved, design)
        chosen = jax.tree.map(lambda a, b: jnp.where(overflow, a.astype(b.dtype), b), other, moved)
        return chosen, overflow

    return sweep


def _left_alone(key, features, rows, moved, design):
    """What chains do."""
    steps = Steps(jnp.array(calibration.STEPS), jnp.array(calibration.STEPS))
    return sweep_without_assignments(key, features, DenseRows(rows), design, steps)[0]


def _weights_kept(key, features, rows, moved, design):
    """Weights that led to a low level taken back: small ones become too rare."""
    return features


def _cut_off(key, features, rows, moved, design):
    """What has no room left out."""
    return moved


def worst_change(monkeypatch, fallback, design=POWER_LAW, n=6000):
    """Of sweeps that may begin with at most 12 features."""
    monkeypatch.setattr(lfm_state, "WIDE", 0)
    monkeypatch.setattr(calibration, "sweep", _or_else(fallback))
    room = 12 + design.n_spare
    verdict = geweke(design, pitman_yor, n=n, n_sweeps=6, room=room, seed=4)
    assert verdict.n_overflow > 600
    return measured("max |z|", verdict.worst, LIMIT)


@pytest.mark.slow
@pytest.mark.parametrize("design", [POWER_LAW, MANY_BIRTHS], ids=["few births", "many births"])
def test_sweeps_without_assignments_leave_the_joint_distribution_alone(monkeypatch, design):
    assert worst_change(monkeypatch, _left_alone, design) < LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("fault", [_weights_kept, _cut_off])
def test_a_wrong_end_of_room_is_noticed(monkeypatch, fault):
    assert worst_change(monkeypatch, fault) > LIMIT


@pytest.mark.slow
def test_births_that_could_not_be_undone_are_noticed(monkeypatch):
    monkeypatch.setattr(births, "most_slots", lambda pool, design: pool.weights.shape[0])
    assert worst_change(monkeypatch, _left_alone, MANY_BIRTHS, n=16_000) > LIMIT
