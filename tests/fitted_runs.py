"""Small runs, one of each kind, made once for all tests and processes of a test run."""

import atexit
import os
import shutil
import tempfile
import time
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from compiling import optimised
from wideangle.frames.learn import Plan
from wideangle.runs.folder import write_run
from wideangle.runs.train import Job, train

PATIENCE = 60
"""Seconds to wait for another process before making the run here."""


def people(n_rows=60, seed=0):
    """Words, numbers, holes, and a class that depends on two of the columns."""
    rng = np.random.default_rng(seed)
    age = rng.normal(45, 12, n_rows).round(1)
    job = rng.choice(["clerk", "cook", "smith"], n_rows)
    noise = rng.normal(size=n_rows)
    return pd.DataFrame(
        {
            "id": [f"p{i:03d}" for i in range(n_rows)],
            "age": np.where(rng.random(n_rows) < 0.1, np.nan, age),
            "income": np.exp(rng.normal(10, 0.4, n_rows)).round(),
            "job": np.where(rng.random(n_rows) < 0.1, None, job),
            "ill": np.where((age > 45) ^ (job == "cook") ^ (noise > 1.5), "yes", "no"),
        }
    )


@cache
def folder():
    """A folder for this test run."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        place = Path(tempfile.mkdtemp(prefix="wideangle-runs-"))
        atexit.register(shutil.rmtree, place, ignore_errors=True)
        return place
    place = Path(tempfile.gettempdir()) / f"wideangle-runs-{run}"
    place.mkdir(exist_ok=True)
    return place


def make(name, job):
    """The folder of a run, from one fit in all processes of this test run."""
    place, begun = folder() / name, folder() / f"{name}.begun"
    try:
        os.close(os.open(begun, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        deadline = time.monotonic() + PATIENCE
        while not place.exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        if place.exists():
            return place
    with optimised(False):
        write_run(train(job, lambda _: None), place)
    return place


def table():
    """The file that all runs were trained on."""
    path = folder() / f"people-{os.getpid()}.csv"
    people().to_csv(path, index=False)
    return path


@cache
def experts():
    """Folder of a mixture of experts, by maximisation."""
    options = {"n_experts": 2, "inference": "map", "verbose": False}
    options |= {"inference__n_starts": 1, "inference__n_passes": 5}
    return make("experts", Job("moe", table(), "ill", options=options))


@cache
def regression():
    """Folder of a mixture of regressions, by maximisation."""
    options = {"n_experts": 2, "inference": "map", "prior": "gaussian", "verbose": False}
    options |= {"prior__common": False, "inference__n_starts": 1, "inference__n_passes": 50}
    plan = Plan(ignore=("ill",))
    return make("regression", Job("regression", table(), "income", plan=plan, options=options))


@cache
def features():
    """Folder of a latent feature model, one short chain; Gaussian features compile fastest."""
    options = {"prior": "gaussian", "standardise": True, "verbose": False}
    lengths = {"n_warmup": 1, "n_draws": 4, "thin": 1, "n_chains": 1}
    options |= {f"inference__{name}": value for name, value in lengths.items()}
    plan = Plan(scale=True, ignore=("ill",))
    return make("features", Job("features", table(), plan=plan, options=options))
