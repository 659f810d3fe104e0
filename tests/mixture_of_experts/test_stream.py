import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.metrics import log_loss

from wideangle import MixtureOfExpertsClassifier, Variational
from wideangle.streaming import NpyRows


def make(n_passes=60, seed=0, **settings):
    inference = Variational(n_starts=4, n_passes=n_passes, batch_size=128)
    return MixtureOfExpertsClassifier(
        4, inference=inference, random_state=seed, verbose=False, **settings
    )


def moons(n=2000, seed=0):
    return make_moons(n, noise=0.25, random_state=seed)


@pytest.fixture(scope="module")
def pair():
    X, y = moons()
    words = np.array(["low", "high"])[y]
    streamed = make().fit_stream(NpyRows(X, words, block_rows=10), buffer_bytes=500 * 16)
    return streamed, make().fit(X, words)


def test_a_stream_is_fitted_as_well_as_rows_in_memory(pair):
    X, y = moons(2000, 1)
    words = np.array(["low", "high"])[y]
    streamed, whole = (log_loss(words, model.predict_proba(X)) for model in pair)
    # Seeds differ as much from each other; one expert alone reaches 0.27.
    assert abs(streamed - whole) < 0.03
    assert streamed < 0.19
    assert pair[0].classes_.tolist() == ["high", "low"]
    # All rows are in the sample here, so the bounds are of the same thing.
    assert abs(max(pair[0].notes_["elbo"]) - max(pair[1].notes_["elbo"])) < 10


def test_predictions_in_blocks_are_those_of_all_rows(pair):
    X, _ = moons(300, 2)
    blocks = list(pair[0].predict_proba_stream(NpyRows(X, block_rows=70)))
    assert len(blocks) == 5
    np.testing.assert_allclose(np.concatenate(blocks), pair[0].predict_proba(X), atol=1e-6)
    with pytest.raises(ValueError, match="3 columns"):
        next(pair[0].predict_proba_stream(NpyRows(np.ones((5, 3)))))
    X[211, 1] = np.nan
    with pytest.raises(ValueError, match="row 211"):
        list(pair[0].predict_proba_stream(NpyRows(X, block_rows=70)))


def test_class_weights_count(pair):
    X, y = moons()
    source = NpyRows(X, y, block_rows=50)
    heavy = make(10, class_weight={0: 1.0, 1: 20.0}).fit_stream(source)
    plain = make(10).fit_stream(source)
    assert np.mean(heavy.predict(X)) > np.mean(plain.predict(X)) + 0.05


def test_the_bound_of_a_sample_says_how_wrong_it_may_be(monkeypatch):
    from wideangle.mixture_of_experts import stream as moe_stream

    monkeypatch.setattr(moe_stream, "SAMPLE_ROWS", (400, 400))
    X, y = moons(4000)
    bounds, errors = [], []
    for seed in range(2):
        model = make(5, seed).fit_stream(NpyRows(X, y))
        bounds.append(model.notes_["elbo"][0])
        errors.append(model.notes_["elbo_error"][0])
    assert min(errors) > 20  # the sample, not the draws, is what limits it
    assert abs(bounds[0] - bounds[1]) < 4 * np.hypot(*errors)


def test_a_stopped_fit_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    X, y = moons(1000)
    source = NpyRows(X, y, block_rows=50)
    whole = make(40).fit_stream(source)
    model = make(40, checkpoint=tmp_path / "c")
    from wideangle.streaming.minibatches import StreamedMinibatches

    take = StreamedMinibatches.take

    def stop(self, first):
        if first > 200:
            raise KeyboardInterrupt
        return take(self, first)

    monkeypatch.setattr(StreamedMinibatches, "take", stop)
    with pytest.warns(RuntimeWarning, match="interrupted after"):
        model.fit_stream(source)
    assert model.notes_["interrupted"]
    monkeypatch.setattr(StreamedMinibatches, "take", take)
    model.fit_stream(source)
    assert not model.notes_["interrupted"] and not (tmp_path / "c").exists()
    np.testing.assert_array_equal(model.predict_proba(X), whole.predict_proba(X))


@pytest.mark.parametrize("inference", ["map", "mcmc"])
def test_other_methods_are_refused(inference):
    source = NpyRows(np.ones((3, 2)), np.ones(3))
    with pytest.raises(ValueError, match="rows on disk"):
        MixtureOfExpertsClassifier(2, inference=inference).fit_stream(source)


MEMORY = """
import resource, sys
import numpy as np
from wideangle import MixtureOfExpertsClassifier, Variational
from wideangle.streaming import NpyRows
folder, n = sys.argv[1], int(sys.argv[2])
for name, row in (("X", (32,)), ("y", ())):
    array = np.lib.format.open_memmap(
        f"{folder}/{name}{n}.npy", "w+", np.float32 if row else np.int8, (n, *row)
    )
    generator = np.random.default_rng(0)
    for first in range(0, n, 50_000):
        part = generator.normal(size=(min(50_000, n - first), 32))
        array[first : first + 50_000] = part if row else part[:, 0] > 0
    del array, part
MixtureOfExpertsClassifier(
    2, inference=Variational(n_starts=1, n_passes=1), random_state=0
).fit_stream(NpyRows(f"{folder}/X{n}.npy", f"{folder}/y{n}.npy"), buffer_bytes=2**24)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path):
    def peak(n):
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, str(tmp_path), str(n)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return float(done.stdout)

    # 250 MB more of rows: a mapped or copied file would show.
    assert peak(2_500_000) < peak(500_000) + 60
