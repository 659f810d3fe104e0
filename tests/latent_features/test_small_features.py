"""Births, deaths and cycles by themselves: exact restarts of small problems, and their faults."""

import jax
import numpy as np
import pytest

from latent_features.test_sweep import (
    LIMIT,
    _anchor_forgotten,
    _empty_column_in_cycles,
    _no_jacobian_of_lengths_in_cycles,
    _no_jacobian_of_weights_in_cycles,
    _others_forgotten_in_cycles,
    _victims_forgotten,
)
from statistical import measured
from wideangle.latent_features.births import birth_moves
from wideangle.latent_features.rows import DenseRows
from wideangle.latent_features.state import Design, attached, counts_of, level_bound
from wideangle.latent_features.weights import draw_lengths
from wideangle_lab.calibration.feature_problem import (
    N_ROWS,
    draw_rows,
    draw_states,
    fixed_values,
    statistics,
)

ROOM, N_STATES = 40, 4000
CYCLES = {"n_births": 0, "n_cycles": 6}
BIRTHS = {"n_births": 12, "n_cycles": 2}


def restarts(features, moves):
    """Largest z-score of the changes in states, levels and rows of the joint distribution."""
    design = Design(features, False, **moves)
    states = draw_states(np.random.default_rng(0), design, fixed_values, N_STATES, ROOM)

    def one(key, state):
        keys = jax.random.split(key, 4)
        rows = draw_rows(keys[0], state)
        bound = level_bound(state.weights, counts_of(state) > 0, N_ROWS)
        level = jax.random.uniform(keys[1]) * bound
        lengths = draw_lengths(keys[2], state.hyper, (design.n_births,), design)
        known = DenseRows(rows), rows @ state.components.vectors.T
        moved, columns = birth_moves(keys[3], state, *known, lengths, level, design)
        return statistics(state, rows), statistics(attached(moved, columns), rows)

    keys = jax.random.split(jax.random.key(1), N_STATES)
    before, after = jax.jit(jax.vmap(one))(keys, states)
    worst = 0.0
    for name, old in before.items():
        change = np.asarray(after[name] - old)
        if np.ptp(change) > 0:
            worst = max(worst, abs(change.mean()) / (change.std() / np.sqrt(N_STATES)))
    return worst


@pytest.mark.parametrize("moves", [CYCLES, BIRTHS])
@pytest.mark.parametrize("features", ["polar", "gaussian"])
def test_moves_of_small_features_leave_the_joint_distribution_alone(features, moves):
    assert restarts(features, moves) < LIMIT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "moves"),
    [
        (_empty_column_in_cycles, CYCLES),
        (_no_jacobian_of_weights_in_cycles, CYCLES),
        (_no_jacobian_of_lengths_in_cycles, CYCLES),
        (_others_forgotten_in_cycles, CYCLES),
        (_victims_forgotten, BIRTHS),
        (_anchor_forgotten, BIRTHS),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_of_their_own_is_seen(monkeypatch, fault, moves):
    fault(monkeypatch)
    assert measured("max |z|", restarts("polar", moves), LIMIT) > LIMIT
