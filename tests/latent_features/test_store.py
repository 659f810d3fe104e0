"""Chains and states as files: they come back to the last bit, and only to their own fit."""

import jax
import numpy as np
import pytest

from latent_features.feature_fits import X
from wideangle.latent_features import store as lfm_store
from wideangle.latent_features.chain import State, begin_chain, freeze
from wideangle.latent_features.sampler.design import Design
from wideangle.latent_features.store import ChainFile, as_hyper, pack_states, unpack_states
from wideangle.storage import StorageError

RNG = np.random.default_rng(0)


def state(n_features, n_rows=11, dim=4, dtype=np.float32):
    used = RNG.integers(0, 2, (n_rows, n_features)).astype(np.uint8)
    hyper = as_hyper(RNG.random(6))
    return State(
        RNG.random(n_features),
        RNG.normal(size=(n_features, dim)).astype(dtype),
        np.packbits(used, axis=1),
        hyper,
    ), used


def same(left, right):
    leaves = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    for a, b in leaves:
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        assert np.asarray(a).dtype == np.asarray(b).dtype


@pytest.mark.parametrize("sizes", [[3, 0, 17, 8], [0, 0], [1], []])
def test_states_of_any_size_come_back(sizes):
    states, used = zip(*map(state, sizes), strict=True) if sizes else ((), ())
    again = unpack_states(pack_states(list(states)))
    same(list(states), again)
    for one, z in zip(again, used, strict=True):
        np.testing.assert_array_equal(one.assignments, z)


def test_sizes_that_do_not_add_up_are_refused():
    packed = pack_states([state(3)[0], state(9)[0]])
    for name, wrong in (("weights", packed["weights"][:-1]), ("bits", packed["bits"][:, :-1])):
        with pytest.raises(ValueError, match="add up"):
            unpack_states(packed | {name: wrong})


@pytest.fixture
def chain():
    used = RNG.integers(0, 2, (len(X), 2)).astype(np.uint8)
    hyper = jax.tree.map(jax.numpy.asarray, as_hyper(np.array([1.0, 0.0, 1.0, 0.5, 0.0, 2.0])))
    made = begin_chain(jax.random.key(3), X[:2], used, hyper, Design(features="gaussian"))
    made.n_done, made.trace = 4, {"n_active": [2.0, 3.0], "log_lik": [-1.5, 0.1]}
    made.kept = [freeze(made.features), state(3, len(X), 6, float)[0]]
    return made


def test_a_chain_comes_back_to_the_last_bit(chain, tmp_path):
    file = ChainFile(tmp_path / "new" / "chain", "mine")
    file.objectives = np.array([1.0, np.nan])
    file.save(chain, now=True)
    other = ChainFile(tmp_path / "new" / "chain", "mine")
    again = other.load()
    same((again.features, again.tuning, again.kept), (chain.features, chain.tuning, chain.kept))
    same(jax.random.key_data(again.key), jax.random.key_data(chain.key))
    assert (again.n_done, again.trace) == (chain.n_done, chain.trace)
    same(other.objectives, file.objectives)


def test_the_chain_of_another_fit_is_refused(chain, tmp_path):
    ChainFile(tmp_path / "chain", "mine").save(chain, now=True)
    with pytest.raises(StorageError, match=r"chain belongs to a fit with other data, settings"):
        ChainFile(tmp_path / "chain", "yours").load()


def test_a_damaged_chain_is_refused(chain, tmp_path):
    ChainFile(tmp_path / "chain", "mine").save(chain, now=True)
    content = bytearray((tmp_path / "chain").read_bytes())
    content[-3] ^= 1
    (tmp_path / "chain").write_bytes(content)
    with pytest.raises(StorageError, match="chain"):
        ChainFile(tmp_path / "chain", "mine").load()


def test_saves_are_not_too_frequent(chain, tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(lfm_store.time, "monotonic", lambda: clock[0])
    file = ChainFile(tmp_path / "chain", "mine")
    file.save(chain)
    for seconds, n_done in ((0.9, 5), (1.1, 6)):
        clock[0] = seconds * lfm_store.EVERY
        chain.n_done = n_done
        file.save(chain)
        assert file.load().n_done == (4 if seconds < 1 else n_done)
    chain.n_done = 7
    file.save(chain, now=True)
    assert file.load().n_done == 7


def test_slow_saves_are_rare(chain, tmp_path, monkeypatch):
    clock = iter([0.0, 10.0, 150.0, 201.0, 201.0])
    monkeypatch.setattr(lfm_store.time, "monotonic", lambda: next(clock))
    file = ChainFile(tmp_path / "chain", "mine")
    file.save(chain)  # takes ten seconds
    chain.n_done = 5
    file.save(chain)
    assert file.load().n_done == 4
    chain.n_done = 6
    monkeypatch.setattr(lfm_store.time, "monotonic", lambda: 211.0)
    file.save(chain)
    assert file.load().n_done == 6


def test_removal_leaves_what_is_not_ours(chain, tmp_path):
    folder = tmp_path / "folder"
    file = ChainFile(folder / "chain", "mine")
    file.save(chain, now=True)
    (folder / "notes").write_text("mine")
    file.remove()
    assert [path.name for path in folder.iterdir()] == ["notes"]
    (folder / "notes").unlink()
    file.remove()
    assert not folder.exists()


def test_without_a_path_nothing_is_written(chain, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = ChainFile(None, "")
    file.save(chain, now=True)
    assert file.load() is None
    file.remove()
    assert not any(tmp_path.iterdir())
