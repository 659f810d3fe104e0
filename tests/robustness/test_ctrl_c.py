"""Ctrl-C in the middle of an ascent: what was reached is kept, and said to be unfinished."""

import numpy as np
import pytest

from wideangle import Maximise, MixtureOfExpertsClassifier, Variational
from wideangle.frames.encoding import Reading
from wideangle.infer.ascent import Minibatches
from wideangle.runs import train

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(700, 3))
Y = (X[:, 0] > 0).astype(int)


@pytest.fixture
def ctrl_c(monkeypatch):
    """Press it when the rows of a later call are asked for."""
    take, calls = Minibatches.take, []

    def pressed(self, first):
        calls.append(first)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return take(self, first)

    monkeypatch.setattr(Minibatches, "take", pressed)
    return calls


@pytest.mark.parametrize(
    "inference",
    [
        Maximise(n_starts=1, n_passes=200),
        pytest.param(Variational(n_starts=1, n_passes=200, batch_size=128), marks=pytest.mark.slow),
    ],
)
def test_an_ascent_keeps_where_it_was(inference, ctrl_c):
    model = MixtureOfExpertsClassifier(
        2, inference=inference, prior="gaussian", verbose=False, random_state=0
    )
    with pytest.warns(RuntimeWarning, match="interrupted after [1-9]"):
        model.fit(X, Y)
    assert len(ctrl_c) == 3
    assert "stopped early" in model.summary()
    assert np.isfinite(model.predict_proba(X)).all()
    assert model.score(X, Y) > 0.8  # a hundred steps are enough for two halves


def test_a_command_writes_the_model_it_has(ctrl_c, tmp_path):
    table = tmp_path / "rows.csv"
    np.savetxt(table, np.column_stack([X, Y]), delimiter=",", header="a,b,c,y", comments="")
    job = train.Job(
        "moe", table, "y", Reading(), checkpoint=tmp_path / "checkpoint",
        options={"inference": Maximise(n_starts=1, n_passes=200), "prior": "gaussian",
                 "n_experts": 2, "verbose": False},
    )  # fmt: skip
    run = train.train(job, lambda _: None)
    assert len(ctrl_c) == 3
    assert any("interrupted after" in sentence for sentence in run.metrics["warnings"])
    assert run.metrics["accuracy"] > 0.8
