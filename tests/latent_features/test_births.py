"""The pool of features while some are born and others die."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from latent_features.test_chain import begin
from wideangle.latent_features.sampler.births import (
    RowProducts,
    born,
    cosines_with,
    dies,
    gather,
    release,
    take_out,
)
from wideangle.latent_features.state import Design, attached

DESIGN = Design("gaussian", False)
SURE, NEVER = jnp.inf, -jnp.inf


@pytest.fixture
def pool_and_rows():
    chain, rows = begin(DESIGN)
    features = chain.features
    products = jnp.asarray(rows.products(np.asarray(features.components.vectors)))
    nothing = jnp.zeros((0,))
    of_rows = RowProducts(products, nothing, nothing, nothing, jnp.asarray(rows.row_energy()))
    return *gather(features, of_rows, DESIGN), features


def kill(pool, rows, slot, log_ratio, key):
    old, without = take_out(key, pool, rows, jnp.arange(len(pool.weights)) == slot)
    return old, dies(key, without, old, log_ratio)


def test_a_death_that_is_refused_changes_nothing(pool_and_rows, key):
    pool, rows, _ = pool_and_rows
    old, after = kill(pool, rows, 2, NEVER, key)
    np.testing.assert_array_equal(old.column, rows.assignments[:, 2])
    jax.tree.map(np.testing.assert_array_equal, after, pool)


def test_the_dead_stay_dead_where_there_is_no_candidate(pool_and_rows, key):
    """With none the first slot is looked at: its column is still there, and must not count."""
    pool, rows, features = pool_and_rows
    _, pool = kill(pool, rows, 0, SURE, key)
    assert pool.weights[0] == pool.counts[0] == 0
    nobody = jnp.zeros(len(pool.weights), bool)
    old, without = take_out(key, pool, rows, nobody)
    assert not old.column.any()
    after = dies(key, without, old, NEVER)
    jax.tree.map(np.testing.assert_array_equal, after, pool)
    ended, columns = release(after, rows, features)
    assert int(ended.n_live) == int(features.n_live) - 1
    np.testing.assert_array_equal(
        attached(ended, columns).assignments.sum(axis=0), ended.assignments.counts
    )


def test_newborns_keep_their_columns_through_other_deaths(pool_and_rows, key):
    pool, rows, features = pool_and_rows
    n_live = int(features.n_live)
    column = jnp.zeros(len(rows.assignments)).at[3].set(1.0)
    for turn in range(3):
        old, _ = take_out(key, pool, rows, jnp.arange(len(pool.weights)) == 1)
        new = old._replace(
            slot=pool.n_slots,
            weight=jnp.asarray(0.01 * (turn + 1)),
            cosines=cosines_with(pool, old.direction, pool.n_slots),
            column=jnp.roll(column, turn),
        )
        pool = born(key, pool, new, rows, SURE)
    old, pool = kill(pool, rows, n_live, SURE, key)
    np.testing.assert_array_equal(old.column, column)
    _, pool = kill(pool, rows, 1, SURE, key)
    ended, columns = release(pool, rows, features)
    assert int(ended.n_live) == n_live + 1
    assert (jnp.diff(ended.weights) <= 0).all()
    used = np.asarray(attached(ended, columns).assignments)
    np.testing.assert_array_equal(used.sum(axis=0), ended.assignments.counts)
    for turn in (1, 2):
        k = int(np.argmin(np.abs(np.asarray(ended.weights) - 0.01 * (turn + 1))))
        np.testing.assert_array_equal(used[:, k], jnp.roll(column, turn))
