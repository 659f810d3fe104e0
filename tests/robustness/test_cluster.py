"""Many fits on a real Dask cluster of several processes, one of which is killed in the middle."""

import os
import signal
import sys
import threading
import time
from contextlib import contextmanager

import joblib
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from wideangle import (
    LatentFeatureModel,
    Maximise,
    MixtureOfExpertsClassifier,
    Sampling,
)
from wideangle.cluster import on_cluster
from wideangle_lab.paper.records import read_all

distributed = pytest.importorskip("distributed")
# A killed worker is reported by Tornado and by warnings of sockets that nobody closed.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@contextmanager
def cluster(n_workers=2):
    """Workers with one thread each, which compute as this process does."""
    with distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None,
        env={"JAX_ENABLE_X64": "1", "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
    ) as workers:  # fmt: skip
        yield workers


@contextmanager
def one_is_killed(workers, when):
    """Kill a worker that is at work as soon as ``when()`` holds; the killed process ids."""
    killed, over = [], threading.Event()

    def kill(client):
        while not over.is_set() and not killed:
            busy = [address for address, tasks in client.processing().items() if tasks]
            if busy and when():
                pids = client.run(os.getpid, workers=busy[:1])
                killed.extend(pids.values())
                os.kill(killed[0], signal.SIGKILL)
            time.sleep(0.02)

    with distributed.Client(workers) as client:
        thread = threading.Thread(target=kill, args=(client,))
        thread.start()
        try:
            yield killed
        finally:
            over.set()
            thread.join()


class Slowed(MixtureOfExpertsClassifier):
    """Long enough to be killed in."""

    def fit(self, X, y, **named):
        time.sleep(0.3)
        return super().fit(X, y, **named)


def test_a_grid_search_survives_the_loss_of_a_worker():
    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file
    generator = np.random.default_rng(0)
    X = generator.normal(size=(300, 3))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    inference = Maximise(n_passes=20, n_starts=2)
    model = Slowed(inference=inference, prior="gaussian", random_state=0)
    search = GridSearchCV(
        model, {"n_experts": [1, 2, 3], "prior__scale": [0.3, 1.0]}, cv=3, scoring="neg_log_loss"
    )
    alone = search.fit(X, y).cv_results_
    began = time.monotonic()
    with cluster() as workers, one_is_killed(workers, lambda: time.monotonic() > began + 8) as dead:
        with distributed.Client(workers) as client, on_cluster(client):
            together = search.fit(X, y).cv_results_
    assert len(dead) == 1
    np.testing.assert_array_equal(together["mean_test_score"], alone["mean_test_score"])
    np.testing.assert_array_equal(together["std_test_score"], alone["std_test_score"])
    assert together["params"] == alone["params"]


def fit_features(seed, X):
    """One fit of several with different seeds."""
    chain = Sampling(n_warmup=5, n_draws=10, n_chains=1, thin=1, hops=0)
    model = LatentFeatureModel(
        "gaussian", inference=chain, n_jobs=1, verbose=False, random_state=seed
    )
    return model.fit(X).trace_.values["log_joint"]


def test_fits_with_many_seeds_survive_the_loss_of_a_worker():
    import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    X = np.random.default_rng(0).normal(size=(300, 6))
    alone = [fit_features(seed, X) for seed in range(6)]
    began = time.monotonic()
    with cluster() as workers, one_is_killed(workers, lambda: time.monotonic() > began + 8) as dead:
        with distributed.Client(workers) as client, on_cluster(client):
            together = joblib.Parallel()(joblib.delayed(fit_features)(seed, X) for seed in range(6))
    assert len(dead) == 1
    np.testing.assert_array_equal(together, alone)


def test_tables_of_the_paper_survive_the_loss_of_a_worker(tmp_path, command):
    seeds = [part for seed in range(8) for part in ("--seed", str(seed))]
    arguments = ["reproduce", "4", "--quick", "--method", "KSVM", *seeds, "-o", str(tmp_path)]

    def some_are_done():
        return len(list(tmp_path.rglob("KSVM*.json"))) >= 1

    with cluster() as workers, one_is_killed(workers, some_are_done) as dead:
        code, _, told = command(*arguments, "--dask", workers.scheduler_address)
    assert code == 0, told
    assert len(dead) == 1
    assert {record.cell.seed for record in read_all(tmp_path / "cells", "classifiers")} == set(
        range(8)
    )
