"""One seed, one set of draws: threads, jobs and processes change nothing; devices only rounding."""

import jax
import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor
from sklearn.model_selection import cross_val_predict

from robustness import devices, draws
from wideangle import Maximise, MixtureOfExpertsClassifier


@pytest.mark.slow
@pytest.mark.usefixtures("compile_quickly")
@pytest.mark.parametrize(
    ("family", "models"), [("experts", draws.EXPERTS), ("features", draws.FEATURES)]
)
def test_draws_do_not_depend_on_threads_or_jobs(family, models):
    settings = "one thread, one job", "seven threads, three jobs"
    found = draws.compare([family], settings)
    assert found["differ"] == {name: [] for name in settings}
    assert found["models"] == [f"{family}, {name}" for name in models]


@pytest.mark.slow
@pytest.mark.usefixtures("compile_quickly")
def test_jobs_of_joblib_give_the_folds_of_one_process(monkeypatch):
    # Workers inherit the environment, not what this process has told JAX since.
    monkeypatch.setenv("JAX_ENABLE_X64", "1")
    get_reusable_executor().shutdown(wait=True)
    jax.clear_caches()  # an earlier test may have compiled the same programs with other options
    generator = np.random.default_rng(0)
    X = generator.normal(size=(90, 3))
    y = (X[:, 0] > 0).astype(int)
    model = MixtureOfExpertsClassifier(2, inference=Maximise(n_passes=20), random_state=0)
    alone, together = (
        cross_val_predict(model, X, y, cv=4, method="predict_proba", n_jobs=n) for n in (1, 2)
    )
    np.testing.assert_array_equal(alone, together)


@pytest.mark.skipif(jax.default_backend() == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("case", devices.CASES)
def test_a_gpu_draws_from_the_same_posterior(case):
    found = devices.compare(case, jax.devices("cpu")[0], jax.devices()[0])
    assert found["numbers"] >= 3
    assert found["farthest"] < devices.LIMIT, found["distances"]


def test_posteriors_that_differ_are_noticed():
    """Means half a standard deviation apart are many standard errors apart."""
    generator = np.random.default_rng(0)
    one, same, other = (
        devices.Draws({"x": generator.normal(shift, size=(4, 500))}) for shift in (0, 0, 0.5)
    )
    assert abs(devices.distances(one, same)["x"]) < devices.LIMIT
    assert abs(devices.distances(one, other)["x"]) > devices.LIMIT
