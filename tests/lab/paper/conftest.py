"""Records made by hand, so that tables and verdicts can be checked against known numbers."""

import numpy as np
import pytest

from wideangle_lab.paper.cells import Cell
from wideangle_lab.paper.efforts import QUICK
from wideangle_lab.paper.records import Outcome, keep

WHERE = {
    "machine": {"cores": 2, "processor": "a processor"},
    "versions": {"python": "3", "jax": "0", "numpy": "2"},
    "commit": "abc",
}


def outcome(losses, accuracy=80.0, groups=None, fit=1.0, **diagnostics):
    losses = np.asarray(losses, float)
    metrics = {
        "n_test": 30,
        "n_train": 70,
        "accuracy": accuracy,
        "log_loss": float(losses.mean()),
        "calibration_error": 0.01,
        "brier": 0.2,
        "groups": groups or {},
    }
    return Outcome(metrics, {"fit": fit}, {"scale": 0.3}, diagnostics)


@pytest.fixture(name="outcome")
def outcome_fixture():
    return outcome


@pytest.fixture
def where():
    return WHERE


@pytest.fixture
def store(tmp_path):
    """Write a record: ``store("adult9", "LR", losses, ...)``."""

    def write(data, method, losses=(0.4,), k=0, seed=0, **more):
        cell = Cell("classifiers", data, method, k, seed, QUICK)
        return keep(tmp_path / "cells", cell, outcome(losses, **more), {**WHERE, "device": "cpu"})

    write.folder = tmp_path
    return write
