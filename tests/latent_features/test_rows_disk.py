import jax
import jax.numpy as jnp
import numpy as np
import pytest

from wideangle import LatentFeatureModel, Sampling
from wideangle.latent_features import disk
from wideangle.latent_features.chain import begin_chain
from wideangle.latent_features.directions import start_tuning, steps_of
from wideangle.latent_features.disk import DiskRows
from wideangle.latent_features.memory import MemoryRows
from wideangle.latent_features.settings import Scaling
from wideangle.latent_features.state import Design, Hyper
from wideangle.priors.stick_breaking import Buffet
from wideangle.streaming import NpyRows

N, DIM = 230, 6


def make_rows(n=N, seed=0, noise=0.4, rare=0.02):
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(3, DIM)) * 2
    used = generator.random((n, 3)) < [0.5, 0.3, rare]
    return used @ features + noise * generator.normal(size=(n, DIM)), features, used


def make_chain(design, key):
    _, features, used = make_rows()
    number = jnp.asarray
    rate = number(1.0)
    buffet = Buffet(number(1.5), number(0.0), number(1.0))
    kappa = number(2.0 if design.ordered else 0.0)
    hyper = Hyper(buffet, number(0.16), kappa, rate)
    return begin_chain(key, features, used.astype(np.uint8), hyper)


LEARNED = frozenset({"mass", "noise", "rate"})
SAMPLE = np.arange(0, N, 7)


def on_disk(rows, folder, sample=SAMPLE):
    source = NpyRows(rows, block_rows=13)
    return DiskRows(source, Scaling(np.zeros(DIM), 1.0), folder, "chain", sample)


@pytest.mark.slow  # the assignments alone, in little time: test_assignment_blocks.py
@pytest.mark.parametrize("ordered", [True, False])
def test_sweeps_in_blocks_are_the_sweeps_of_rows_in_memory(ordered, key, tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "BLOCK_ROWS", 32)
    design = Design(ordered=ordered, learned=LEARNED).without_births()
    data, _, _ = make_rows(rare=0.0)  # the rare feature that chains begin with dies
    rows, memory = on_disk(data, tmp_path), MemoryRows(data)
    chain = make_chain(design, key)
    one = rows.begin(chain.key, chain.features)
    # Begin from the assignments that have been given to all rows.
    first = np.zeros((N, one.room), np.uint8)
    begun = rows._open().read(0, N)
    first[:, : begun.shape[1]] = begun
    two = chain.features._replace(assignments=jnp.asarray(first))
    steps = steps_of(start_tuning(), True)
    changes = {int(two.n_live)}
    for index in range(8):
        one, info = rows.sweep(jax.random.fold_in(chain.key, index), one, design, steps)
        two, wanted = memory.sweep(jax.random.fold_in(chain.key, index), two, design, steps)
        np.testing.assert_allclose(info.log_joint, wanted.log_joint, rtol=1e-9)
        assert int(one.n_live) == int(two.n_live)
        changes.add(int(two.n_live))
        left, right = rows.keep(one), memory.keep(two)
        np.testing.assert_allclose(left.vectors, right.vectors, atol=1e-8)
        np.testing.assert_allclose(left.worth, right.worth, atol=1e-6)
        np.testing.assert_array_equal(left.assignments, right.assignments[SAMPLE])
    assert len(changes) > 1  # features came and went, so the coupled columns were drawn
    rows.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_level_too_low_leaves_the_assignments_on_disk_alone(key, tmp_path, monkeypatch):
    design = Design("gaussian", False, learned=frozenset({"noise"})).without_births()
    data, _, _ = make_rows()
    rows = on_disk(data, tmp_path, np.arange(N))
    chain = make_chain(design, key)
    steps = steps_of(chain.tuning, True)
    features = rows.begin(chain.key, chain.features)
    features, _ = rows.sweep(jax.random.fold_in(chain.key, 0), features, design, steps)
    before = rows.keep(features)
    right = DiskRows._start
    monkeypatch.setattr(DiskRows, "_start", lambda *a: (right(*a)[0], False))
    for index in (1, 2):
        features, _ = rows.sweep(jax.random.fold_in(chain.key, index), features, design, steps)
        after = rows.keep(features)
        columns = [sorted(map(tuple, one.assignments.T)) for one in (before, after)]
        assert columns[0] == columns[1]  # in the order of new weights
        sums = rows._sums
        np.testing.assert_array_equal(
            sums.gram, after.assignments.T.astype(int) @ after.assignments
        )
        np.testing.assert_allclose(sums.cross, after.assignments.T @ data, atol=1e-9)
        assert (np.diff(after.weights) <= 0).all()
    assert not np.allclose(before.vectors, after.vectors)  # they still move
    rows.close()


QUICK = {
    "inference": Sampling(n_chains=2, n_warmup=8, n_draws=6, thin=2, hops=0),
    "verbose": False,
}


@pytest.mark.slow
def test_a_stream_finds_the_features_and_the_noise():
    rows, features, _ = make_rows(3000)
    model = LatentFeatureModel(prior="vmf", random_state=0, **QUICK)
    with pytest.warns(UserWarning):  # so few draws
        model.fit_stream(NpyRows(rows, block_rows=500))
    assert abs(model.noise_scale_ - 0.4) < 0.02
    found = model.components_
    gap = np.min(np.linalg.norm(found[:, None] - features[None], axis=2), axis=0)
    assert np.all(gap[:2] < 0.15)
    assert model.transform(rows[:10]).shape == (10, len(found))


def test_what_a_stream_cannot_do_is_refused(tmp_path):
    rows, _, _ = make_rows()
    with pytest.raises(ValueError, match="checkpoint"):
        LatentFeatureModel(checkpoint=tmp_path, **QUICK).fit_stream(NpyRows(rows))
    rows[17, 2] = np.nan
    with pytest.raises(ValueError, match="row 17"):
        LatentFeatureModel(**QUICK).fit_stream(NpyRows(rows))
