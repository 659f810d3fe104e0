"""Chains and draws as files: they come back to the last bit, and only to their own fit."""

import shutil

import jax
import numpy as np
import pytest

from latent_features.feature_fits import X
from wideangle.latent_features.chain import begin_chain
from wideangle.latent_features.files import ChainCheckpoint, as_hyper, pack_draws, unpack_draws
from wideangle.latent_features.memory import MemoryRows
from wideangle.latent_features.state import Draw
from wideangle.storage import StorageError

RNG = np.random.default_rng(0)


def draw(n_features, n_rows=11, dim=4, dtype=np.float32):
    used = RNG.integers(0, 2, (n_rows, n_features)).astype(np.uint8)
    hyper = as_hyper(RNG.random(6))
    return Draw(
        RNG.random(n_features),
        RNG.normal(size=(n_features, dim)).astype(dtype),
        hyper,
        np.packbits(used, axis=1),
        RNG.normal(size=n_features),
    ), used


def same(left, right):
    leaves = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    for a, b in leaves:
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
        assert np.asarray(a).dtype == np.asarray(b).dtype


@pytest.mark.parametrize("sizes", [[3, 0, 17, 8], [0, 0], [1], []])
def test_draws_of_any_size_come_back(sizes):
    draws, used = zip(*map(draw, sizes), strict=True) if sizes else ((), ())
    again = unpack_draws(pack_draws(list(draws)))
    same(list(draws), again)
    for one, z in zip(again, used, strict=True):
        np.testing.assert_array_equal(one.assignments, z)


def test_sizes_that_do_not_add_up_are_refused():
    packed = pack_draws([draw(3)[0], draw(9)[0]])
    for name, wrong in (("weights", packed["weights"][:-1]), ("packed", packed["packed"][:, :-1])):
        with pytest.raises(ValueError, match="add up"):
            unpack_draws(packed | {name: wrong})


@pytest.fixture
def chain():
    used = RNG.integers(0, 2, (len(X), 2)).astype(np.uint8)
    hyper = jax.tree.map(jax.numpy.asarray, as_hyper(np.array([1.0, 0.0, 1.0, 0.5, 0.0, 2.0])))
    made = begin_chain(jax.random.key(3), X[:2], used, hyper)
    made.n_done, made.trace = 4, {"n_active": [2.0, 3.0], "log_lik": [-1.5, 0.1]}
    made.draws = [MemoryRows(X).keep(made.features), draw(3, len(X), 6, float)[0]]
    return made


def at(path, fingerprint="mine", **options):
    return ChainCheckpoint(path, fingerprint=fingerprint, **options)


def assert_same_chain(left, right):
    same((left.features, left.tuning, left.draws), (right.features, right.tuning, right.draws))
    same(jax.random.key_data(left.key), jax.random.key_data(right.key))
    assert (left.n_done, left.trace) == (right.n_done, right.trace)


def test_a_chain_comes_back_to_the_last_bit(chain, tmp_path):
    file = at(tmp_path / "new" / "chain")
    file.objectives = np.array([1.0, np.nan])
    file.save_chain(chain, now=True)
    other = at(tmp_path / "new" / "chain")
    assert_same_chain(other.load_chain(), chain)
    same(other.objectives, file.objectives)


def test_draws_of_several_saves_and_processes_come_back_in_order(chain, tmp_path):
    at(tmp_path).save_chain(chain, now=True)
    file = at(tmp_path)
    file.load_chain()
    for turn in range(3):
        chain.n_done += 1
        for values in chain.trace.values():
            values.append(0.5 + turn)
        if turn != 1:  # a sweep whose state is not kept
            chain.draws.append(draw(turn, len(X), 6, float)[0])
        file.save_chain(chain, now=True)
    file.save_chain(chain, now=True)  # nothing new
    assert_same_chain(at(tmp_path).load_chain(), chain)
    assert len(list(tmp_path.glob("draws-*"))) == 4


def test_the_chain_of_another_fit_is_refused(chain, tmp_path):
    at(tmp_path / "chain").save_chain(chain, now=True)
    with pytest.raises(StorageError, match=r"chain holds the checkpoint of other data, settings"):
        at(tmp_path / "chain", "yours").load_chain()


def test_a_damaged_chain_is_refused(chain, tmp_path):
    at(tmp_path / "chain").save_chain(chain, now=True)
    file = tmp_path / "chain" / "state.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with pytest.raises(StorageError, match="chain"):
        at(tmp_path / "chain").load_chain()


def test_saves_are_not_too_frequent(chain, tmp_path):
    file = at(tmp_path, every_seconds=1000.0)
    file.save_chain(chain)
    chain.n_done = 5
    file.save_chain(chain)
    assert at(tmp_path).load_chain().n_done == 4
    file.save_chain(chain, now=True)
    assert at(tmp_path).load_chain().n_done == 5


def test_a_place_that_cannot_be_written_to_is_an_error_at_first_and_a_warning_later(
    chain, tmp_path
):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="cannot make the folder"):
        at(tmp_path / "file" / "chain").save_chain(chain, now=True)
    file = at(tmp_path / "chain")
    file.save_chain(chain, now=True)
    shutil.rmtree(tmp_path / "chain")
    (tmp_path / "chain").write_text("in the way")
    with pytest.warns(RuntimeWarning, match="continues without a new checkpoint"):
        file.save_chain(chain, now=True)
