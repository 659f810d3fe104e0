import jax.numpy as jnp
import numpy as np
import pytest

from wideangle import LatentFeatureModel, Sampling, Search
from wideangle.latent_features import chain as lfm_chain
from wideangle.latent_features import disk_chain as lfm_stream
from wideangle.latent_features.chain import begin_chain, steps_of
from wideangle.latent_features.disk_chain import Stream, StreamedChain, without_births
from wideangle.latent_features.rows import columns as host_columns
from wideangle.latent_features.rows.memory import FeatureRows
from wideangle.latent_features.sampler.assignment_rows import sweep_rows
from wideangle.latent_features.sampler.design import Design
from wideangle.latent_features.settings import Scaling
from wideangle.latent_features.state import Hyper
from wideangle.priors.stick_breaking import Buffet
from wideangle.streaming import NpyRows

N, DIM = 230, 6


def make_rows(n=N, seed=0, noise=0.4):
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(3, DIM)) * 2
    used = generator.random((n, 3)) < [0.5, 0.3, 0.02]
    return used @ features + noise * generator.normal(size=(n, DIM)), features, used


def make_chain(design, key):
    _, features, used = make_rows()
    number = jnp.asarray
    rate = number(1.0)
    buffet = Buffet(number(1.5), number(0.0), number(1.0))
    kappa = number(2.0 if design.ordered else 0.0)
    hyper = Hyper(buffet, number(0.16), kappa, rate)
    return begin_chain(key, features, used.astype(np.uint8), hyper, design)


def sweep_in_memory(chain, rows, design, index, steps):
    """A sweep of ``lfm_chain`` without births."""
    begun = lfm_chain.begin_sweep(chain.key, index, chain.features, design)
    assert not bool(begun.slice.overflow)
    features, n_live = begun.features, int(begun.features.n_live)
    products = rows.products(np.asarray(begun.vectors)[:n_live])
    used = sweep_rows(
        begun.noise, np.asarray(features.assignments), products, np.asarray(begun.inner),
        np.asarray(features.weights), n_live, float(features.hyper.noise),
    )  # fmt: skip
    features = features._replace(assignments=jnp.asarray(used))
    features = lfm_chain.without_unused(features, design)
    stats = host_columns.summarise(features, rows)
    chain.features, account = lfm_chain.finish_sweep(
        chain.key, index, features, stats, design, steps, lfm_chain.NONE
    )
    return account


@pytest.mark.slow  # the assignments alone, in little time: test_assignment_blocks.py
@pytest.mark.parametrize("ordered", [True, False])
def test_sweeps_in_blocks_are_the_sweeps_of_rows_in_memory(ordered, key, tmp_path, monkeypatch):
    monkeypatch.setattr(lfm_stream, "BLOCK_ROWS", 32)
    design = without_births(Design(ordered=ordered, learned=frozenset({"mass", "noise", "rate"})))
    rows, _, _ = make_rows()
    units = Scaling(np.zeros(DIM), 1.0)
    sample = np.arange(0, N, 7)
    stream = Stream(NpyRows(rows, block_rows=13), units, tmp_path, sample, np.float64)
    one, two = make_chain(design, key), make_chain(design, key)
    streamed = StreamedChain(one, stream, "chain")
    # Begin from the assignments that the stream has given to all rows.
    first = np.zeros((N, two.features.room), np.uint8)
    begun = streamed._used.read(0, N)
    first[:, : begun.shape[1]] = begun
    two.features = two.features._replace(assignments=jnp.asarray(first))
    steps = steps_of(one.tuning, True)
    changes = set()
    for index in range(8):
        account, sums = streamed.sweep(index, design, steps)
        wanted = sweep_in_memory(two, FeatureRows(rows), design, index, steps)
        np.testing.assert_allclose(account.log_joint, wanted.log_joint, rtol=1e-9)
        n_live = int(two.features.n_live)
        assert int(one.features.n_live) == n_live
        changes.add(n_live)
        np.testing.assert_allclose(
            one.features.components.vectors, two.features.components.vectors, atol=1e-8
        )
        used = np.asarray(two.features.assignments)[:, :n_live]
        np.testing.assert_array_equal(sums.gram, used.T.astype(int) @ used)
        bits = np.unpackbits(sums.bits, axis=1, count=n_live)
        np.testing.assert_array_equal(bits, used[sample])
    assert len(changes) > 1  # features came and went, so the coupled columns were drawn
    streamed.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_level_too_low_leaves_the_assignments_on_disk_alone(key, tmp_path, monkeypatch):
    design = without_births(Design("gaussian", False, learned=frozenset({"noise"})))
    rows, _, _ = make_rows()
    stream = Stream(
        NpyRows(rows, block_rows=13),
        Scaling(np.zeros(DIM), 1.0),
        tmp_path,
        np.arange(N),
        np.float64,
    )
    streamed = StreamedChain(make_chain(design, key), stream, "chain")
    steps = steps_of(streamed.chain.tuning, True)
    _, before = streamed.sweep(0, design, steps)
    vectors = np.asarray(streamed.chain.features.components.vectors)
    right = lfm_chain.begin_with_room
    monkeypatch.setattr(lfm_chain, "begin_with_room", lambda *a: (right(*a)[0], False))
    for index in (1, 2):
        _, after = streamed.sweep(index, design, steps)
        n_live = int(streamed.chain.features.n_live)
        used = [np.unpackbits(one.bits, axis=1, count=n_live) for one in (before, after)]
        columns = [sorted(map(tuple, each.T)) for each in used]  # in the order of new weights
        assert columns[0] == columns[1]
        np.testing.assert_array_equal(after.gram, used[1].T.astype(int) @ used[1])
        np.testing.assert_allclose(after.cross, used[1].T @ rows, atol=1e-9)
        assert (np.diff(np.asarray(streamed.chain.features.weights)[:n_live]) <= 0).all()
    assert not np.allclose(vectors, streamed.chain.features.components.vectors)  # they still move
    streamed.close()


QUICK = {
    "inference": Sampling(n_chains=2, n_warmup=8, n_draws=6, thin=2),
    "search": Search(hops=0),
    "progress": False,
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
