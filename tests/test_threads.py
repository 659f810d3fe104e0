"""The caller limits the threads, as with scikit-learn, and no result depends on them."""

import os
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest

from wideangle import MixtureOfExpertsClassifier, Sampling
from wideangle.infer import program
from wideangle.latent_features.fit import n_workers
from wideangle.mixture_of_experts import predict
from wideangle.sharding import n_threads

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@pytest.fixture(autouse=True)
def no_share(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def test_all_cores_unless_a_number_is_given():
    assert n_threads() == n_threads(-1) == CORES
    assert [n_threads(n) for n in (1, 3, -1000)] == [1, 3, 1]
    with joblib.parallel_config(n_jobs=3):
        assert [n_threads(), n_threads(2)] == [3, 2]
    with joblib.parallel_config("threading", n_jobs=-1):
        assert n_threads() == CORES


@pytest.mark.parametrize(("share", "expected"), [("1", 1), ("0", CORES), ("", CORES), ("x", CORES)])
def test_a_process_of_several_has_its_share(monkeypatch, share, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", share)
    assert n_threads() == expected


def test_joblib_gives_its_processes_shares():
    found = joblib.Parallel(n_jobs=2)(joblib.delayed(n_threads)() for _ in range(2))
    assert found == [max(CORES // 2, 1)] * 2


@pytest.mark.filterwarnings("ignore::wideangle.ConvergenceWarning")
def test_one_job_runs_in_one_thread_with_the_same_draws(monkeypatch, compile_quickly):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    chains = Sampling(n_warmup=20, n_draws=10, n_chains=4)
    model = MixtureOfExpertsClassifier(2, inference=chains, random_state=0)
    sizes = []

    def pool(n):
        sizes.append(n)
        return ThreadPoolExecutor(n)

    monkeypatch.setattr(program, "ThreadPoolExecutor", pool)
    monkeypatch.setattr(predict, "ThreadPoolExecutor", pool)
    many = rng.normal(size=(20_000, 2))
    found = []
    for n_jobs in (1, 2):
        sizes.clear()
        with joblib.parallel_config(n_jobs=n_jobs):
            found.append(model.fit(X, X[:, 0] > 0).predict_proba(many))
        assert set(sizes) == {n_jobs}
    np.testing.assert_array_equal(*found)


def test_chains_of_features_at_once_are_the_jobs_of_the_caller():
    with joblib.parallel_config(n_jobs=2):
        assert [n_workers(None, 4), n_workers(1, 4), n_workers(3, 4)] == [2, 1, 3]
