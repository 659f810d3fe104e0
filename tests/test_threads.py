"""The caller limits the threads, as with scikit-learn, and no result depends on them."""

import os
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest

from wideangle import (
    LatentFeatureModel,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    Sampling,
    SphericalMixture,
)
from wideangle.infer import program
from wideangle.latent_features import fit as features
from wideangle.mixture_of_experts import predict
from wideangle.registry import FAMILIES, estimator_of
from wideangle.sharding import in_own_threads, n_threads

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@pytest.fixture(autouse=True)
def no_share(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def test_all_cores_unless_a_number_is_given():
    assert n_threads() == CORES
    for n_jobs, expected in ((1, 1), (3, 3), (-1, CORES), (-CORES - 1000, 1)):
        with joblib.parallel_config(n_jobs=n_jobs):
            assert n_threads() == expected
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


@pytest.mark.parametrize(
    "model", [MixtureOfExpertsClassifier, MixtureOfExpertsRegressor, SphericalMixture]
)
def test_jobs_of_a_model_are_threads_of_its_fit(model):
    found = []
    fit = in_own_threads(lambda model: found.append(n_threads()))
    with joblib.parallel_config(n_jobs=3):
        for n_jobs in (None, 1, 2):
            fit(model(n_jobs=n_jobs))
        assert n_threads() == 3
    assert found == [3, 1, 2]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_chains_of_features_at_once_are_the_jobs_of_the_model(n_jobs, monkeypatch):
    class Enough(Exception):
        """A fit got this far."""

    def pool(n, **more):
        assert n == n_jobs
        raise Enough

    monkeypatch.setattr(features, "ThreadPoolExecutor", pool)
    model = LatentFeatureModel(n_jobs=n_jobs)
    with pytest.raises(Enough):
        model.fit(np.random.default_rng(0).normal(size=(20, 3)))


def test_every_family_is_trained_with_the_jobs_of_a_command():
    for name in FAMILIES:
        offered = {option.flag: option for option in estimator_of(name).presentation.options}
        model = estimator_of(name)().set_params(**{offered["--jobs"].setting: 2})
        assert model.get_params()["n_jobs"] == 2
        assert ("--combine" in offered) == (name != "clusters")


def test_jobs_are_those_of_a_machine_and_not_of_a_model(tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 3))
    model = SphericalMixture(2, n_jobs=1, random_state=0).fit(X)
    model.save(tmp_path / "model")
    assert SphericalMixture.load(tmp_path / "model").n_jobs is None
