"""Small fitted models that tests of pictures, pages and the demo share; none may be changed.

A fit is nearly all compilation: the first process of a test run that needs one leaves it in a file
for the others.
"""

import os
import tempfile
import time
import warnings
from functools import cache
from pathlib import Path

import numpy as np
from sklearn.datasets import load_wine

from compiling import optimised
from wideangle import (
    LatentFeatureModel,
    Maximise,
    MixtureOfExpertsClassifier,
    Sampling,
)
from wideangle.datasets import block_images

PATIENCE = 60
"""Seconds to wait for another process before fitting here."""


def shared(name, fit):
    """What ``fit()`` returns, from one fit in all processes of this test run."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return fit()
    folder = Path(tempfile.gettempdir()) / f"wideangle-fits-{run}"
    folder.mkdir(exist_ok=True)
    done, begun = folder / f"{name}.done", folder / f"{name}.begun"
    try:
        os.close(os.open(begun, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        deadline = time.monotonic() + PATIENCE
        while not done.exists() and time.monotonic() < deadline:
            time.sleep(0.2)
        kinds = {"features": LatentFeatureModel}
        kind = kinds.get(name, MixtureOfExpertsClassifier)
        return kind.load(done) if done.exists() else fit()
    model = fit()
    part = folder / f"{name}.part"
    model.save(part)
    os.replace(part, done)
    return model


def quick(model, *data):
    """Fit without optimising the programs; short chains may warn."""
    with optimised(False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(*data)


def plane(n_rows=150, seed=0):
    """Two rules, one for each half of the plane."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 2)) * 1.5
    return X, np.where((X[:, 0] > 0) ^ (X[:, 1] > 0), "yes", "no")


def images(n_rows=80, seed=0):
    return block_images(seed, n_rows, noise=0.3).X


@cache
def experts():
    """Two columns, two classes, chains."""
    chains = Sampling(n_warmup=30, n_draws=25, n_chains=2)
    model = MixtureOfExpertsClassifier(3, inference=chains, verbose=False, random_state=0)
    return shared("experts", lambda: quick(model, *plane()))


@cache
def wine_experts():
    """Thirteen columns, three classes, the most probable weights."""
    data = load_wine(as_frame=True)
    ascent = Maximise(n_starts=1, n_passes=5)
    model = MixtureOfExpertsClassifier(2, inference=ascent, verbose=False, random_state=0)
    return shared("wine_experts", lambda: quick(model, data.data, data.target))


@cache
def features():
    """Images of 6 x 6 pixels, chains; a Gaussian prior is the quickest to compile."""
    model = LatentFeatureModel(
        "gaussian",
        inference=Sampling(n_warmup=5, n_draws=6, thin=2, n_chains=2, hops=0),
        n_jobs=1,
        verbose=False,
        random_state=0,
    )
    return shared("features", lambda: quick(model, images()))
