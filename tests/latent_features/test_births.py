"""The pool of features while some are born and others die."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from latent_features.test_chain import begin
from wideangle.latent_features import births
from wideangle.latent_features.births import Offer, Setting, log_any, log_used, small
from wideangle.latent_features.pool import (
    at_slot,
    empty_slot,
    gather,
    put,
    release,
    take_out,
)
from wideangle.latent_features.state import Design, attached

DESIGN = Design("gaussian", False)
SURE, NEVER = jnp.inf, -jnp.inf


@pytest.fixture
def pool_and_features():
    chain, rows = begin(DESIGN)
    features = chain.features
    products = jnp.asarray(rows.products(np.asarray(features.components.vectors)))
    return gather(features, products, DESIGN), features


def settle(monkeypatch, pool, one, birth, log_ratio):
    """Offer a birth or death whose acceptance is known."""
    monkeypatch.setattr(births, "_log_ratio", lambda *all: log_ratio if birth else -log_ratio)
    without = pool if birth else take_out(pool, one.slot)
    offer = Offer(jnp.array(birth), jnp.array(True), 1)
    setting = Setting(0.0, None, None, None, 1.0, 0.0, 0.0)
    return births._settle(0.5, without, one, offer, 0.0, setting, DESIGN)


def test_a_death_that_is_refused_changes_nothing(pool_and_features, monkeypatch):
    pool, _ = pool_and_features
    after = settle(monkeypatch, pool, at_slot(pool, 2), False, NEVER)
    jax.tree.map(np.testing.assert_array_equal, after, pool)


def test_the_dead_stay_dead(pool_and_features, monkeypatch):
    """Their columns are still there, and must not count."""
    pool, features = pool_and_features
    pool = settle(monkeypatch, pool, at_slot(pool, 0), False, SURE)
    assert pool.weights[0] == pool.counts[0] == 0
    again = settle(monkeypatch, pool, at_slot(pool, 0), False, NEVER)
    assert again.weights[0] == again.counts[0] == 0
    ended, columns = release(again, features)
    assert int(ended.n_live) == int(features.n_live) - 1
    np.testing.assert_array_equal(
        attached(ended, columns).assignments.sum(axis=0), ended.assignments.counts
    )


def test_newborns_take_empty_slots_and_keep_their_columns(pool_and_features, monkeypatch):
    pool, features = pool_and_features
    n_live = int(features.n_live)
    column = jnp.zeros(pool.columns.shape[1]).at[3].set(1.0)
    pool = settle(monkeypatch, pool, at_slot(pool, 1), False, SURE)
    for turn in range(3):
        new = at_slot(pool, 0)._replace(
            slot=empty_slot(pool),
            weight=jnp.asarray(0.01 * (turn + 1)),
            column=jnp.roll(column, turn),
        )
        pool = settle(monkeypatch, pool, new, True, SURE)
    ended, columns = release(pool, features)
    assert int(ended.n_live) == n_live + 2
    assert (jnp.diff(ended.weights) <= 0).all()
    used = np.asarray(attached(ended, columns).assignments)
    np.testing.assert_array_equal(used.sum(axis=0), ended.assignments.counts)
    for turn in range(3):
        k = int(np.argmin(np.abs(np.asarray(ended.weights) - 0.01 * (turn + 1))))
        np.testing.assert_array_equal(used[:, k], jnp.roll(column, turn))


def test_a_birth_that_is_refused_changes_nothing(pool_and_features, monkeypatch):
    pool, _ = pool_and_features
    new = at_slot(pool, 0)._replace(slot=empty_slot(pool))
    jax.tree.map(np.testing.assert_array_equal, settle(monkeypatch, pool, new, True, NEVER), pool)


def test_columns_are_summed_out():
    gain, weight = np.random.default_rng(0).normal(size=4), 0.3
    columns = (np.arange(16)[:, None] >> np.arange(4)) & 1
    prior = np.where(columns, np.log(weight), np.log(1 - weight)).sum(axis=1)
    terms = prior + columns @ gain
    np.testing.assert_allclose(log_used(jnp.asarray(weight), jnp.asarray(gain)), logsumexp(terms))
    exact = logsumexp(terms[1:])
    np.testing.assert_allclose(log_any(jnp.asarray(weight), jnp.asarray(gain)), exact, rtol=1e-12)


@pytest.mark.parametrize("n_rows", [1, 3, 10, 1000])
def test_small_weights_are_above_every_level(n_rows):
    assert 1 / n_rows <= small(n_rows) <= 1


def test_a_feature_that_is_put_back_is_the_same(pool_and_features):
    pool, _ = pool_and_features
    one = at_slot(pool, 1)
    jax.tree.map(np.testing.assert_array_equal, put(take_out(pool, 1), one), pool)
