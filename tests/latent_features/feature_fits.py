"""Small fits of the latent feature model that tests share: one shape, so one compilation."""

import warnings
from contextlib import contextmanager
from functools import cache

import numpy as np

from compiling import optimised
from wideangle import LatentFeatureModel
from wideangle.convergence import ConvergenceWarning

N_WARMUP, N_DRAWS, N_CHAINS = 5, 10, 2
QUICK = {
    "prior": "gaussian",
    "inference__n_warmup": N_WARMUP,
    "inference__n_draws": N_DRAWS,
    "inference__n_chains": N_CHAINS,
    "inference__thin": 1,
    "inference__hops": 0,
    "verbose": False,
    "random_state": 0,
}
TRUTH = np.array([[3.0, 3.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 3.0, 0.0, 3.0]])


def data(n_rows=60, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, (n_rows, 2)) @ TRUTH + 0.3 * rng.normal(size=(n_rows, 6))


X = data()
GAPS = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.nan, X)
NOISE = np.random.default_rng(2).normal(size=X.shape)


@contextmanager
def quiet():
    """Compile without optimising, and expect short chains to be called short."""
    with optimised(False), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def quick(**settings):
    """A model with short chains; settings of objects by their nested names."""
    return LatentFeatureModel().set_params(**(QUICK | settings))


def fit(rows=X, **settings):
    with quiet():
        return quick(**settings).fit(rows)


@cache
def fitted(name="complete"):
    """A fit that no test may change."""
    return fit({"complete": X, "gaps": GAPS, "noise": NOISE}[name])
