"""Records made by hand, so that tables and verdicts can be checked against known numbers."""

import numpy as np
import pytest

from wideangle.paper.cells import QUICK, Cell
from wideangle.paper.records import Outcome, keep

WHERE = {
    "machine": {"cores": 2, "processor": "a processor"},
    "versions": {"python": "3", "jax": "0", "numpy": "2"},
    "commit": "abc",
}


def outcome(losses, accuracy=80.0, groups=None, **diagnostics):
    losses = np.asarray(losses, float)
    metrics = {
        "n_test": len(losses),
        "accuracy": accuracy,
        "log_loss": float(losses.mean()),
        "calibration_error": 0.01,
        "brier": 0.2,
        "groups": groups or {},
    }
    return Outcome(metrics, losses, {"fit": 1.0}, {"scale": 0.3}, diagnostics)


@pytest.fixture(name="outcome")
def outcome_fixture():
    return outcome


@pytest.fixture
def where():
    return WHERE


@pytest.fixture
def store(tmp_path):
    """Write a record: ``store("adult9", "LR", losses, ...)``."""

    def write(data, method, losses, k=0, seed=0, n_train=0, suite="classifiers", **more):
        cell = Cell(suite, data, method, k, seed, n_train, QUICK)
        return keep(tmp_path, cell, outcome(losses, **more), WHERE)

    write.folder = tmp_path
    return write
