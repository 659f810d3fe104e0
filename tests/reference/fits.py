"""Fits of the reference problems by every sampler and guide, and how far they are off."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from reference.compare import discrepancy, z_scores
from reference.problems import (
    PROBES,
    PROBLEMS,
    class_numbers,
    cluster_numbers,
    feature_numbers,
    quantity_numbers,
)
from wideangle import Sampling, Variational
from wideangle.latent_features.state import probes

SAMPLERS = {
    "experts-classes hmc": Sampling(n_warmup=1000, n_draws=2000, kernel="hmc"),
    "experts-classes geodesic": Sampling(n_warmup=1000, n_draws=1000, thin=8, kernel="geodesic"),
    "experts-classes metropolis": Sampling(
        n_warmup=3000, n_draws=1000, thin=60, kernel="metropolis"
    ),
    "experts-quantity hmc": Sampling(n_warmup=1000, n_draws=4000),
    "features-ibp gibbs": Sampling(n_warmup=200, n_draws=6000, thin=1, kernel="gibbs"),
    "features-pitman-yor gibbs": Sampling(n_warmup=200, n_draws=3000, thin=1, kernel="gibbs"),
    "clusters-finite gibbs": Sampling(n_warmup=300, n_draws=3000),
    "clusters-infinite gibbs": Sampling(n_warmup=300, n_draws=3000),
}

GUIDES = {
    "experts-classes diagonal": Variational(guide="diagonal", temperature=1.0),
    "experts-classes vmf": Variational(guide="vmf", temperature=1.0),
    "experts-quantity diagonal": Variational(guide="diagonal", temperature=1.0),
}
TOLERANCE = {"experts-classes": 0.1, "experts-quantity": 0.3}
"""What the mean prediction of an approximation may be off: a probability, and a quantity in units
of its standard deviation. Starts that reach different optima are averaged."""


def fitted(name, inference, **settings):
    """A fit of a problem as a user calls it."""
    problem = PROBLEMS[name]
    model: Any = clone(problem.model)
    model.set_params(inference=inference, random_state=3, verbose=False, **settings)
    return model.fit(*problem.data)


def experts(name, model):
    """Numbers of the draws of a mixture of experts."""
    weights, values = model.posterior_.values["weights"], model.posterior_.values
    gate, vectors = (np.asarray(one, np.float64) for one in weights)
    if name == "experts-classes":
        return class_numbers(gate, vectors[..., 0, :])
    scales = {key: np.asarray(value, np.float64) for key, value in values.get("scales", {}).items()}
    return quantity_numbers(gate, vectors, scales)


def features(name, model):
    """Numbers of every sweep of latent features."""
    (X,) = PROBLEMS[name].data
    trace = {key: np.asarray(value) for key, value in model.trace_.values.items()}
    entries = trace["signal"][..., places(X)]
    residual = X.size * trace["residual_rms"] ** 2
    noise = trace["noise_scale"] ** 2
    return feature_numbers(X.size, residual, entries, noise, trace["n_active"], trace["alpha"])


def places(X):
    """Where the entries of the problem are among those that the library watches."""
    rows, columns = probes(*X.shape)
    watched = list(zip(rows.tolist(), columns.tolist(), strict=True))
    return [watched.index(one) for one in PROBES.values()]


def clusters(name, model):
    """Numbers of every draw of clusters."""
    trace = {key: np.asarray(value) for key, value in model.trace_.values.items()}
    others = {key: trace[key] for key in ("n_used", "concentration")}
    if name == "clusters-finite":
        others["log alpha"] = np.log(trace["alpha"])
    places = np.linspace(0, 17, trace["density"].shape[-1]).astype(int).tolist()
    density = np.full((*trace["log_lik"].shape, 18), np.nan)
    density[..., places] = trace["density"]
    return cluster_numbers(density, **others) | {"log_lik": trace["log_lik"]}


NUMBERS = {"experts": experts, "features": features, "clusters": clusters}


def numbers_of(name, model):
    """Of the draws of a model."""
    return NUMBERS[name.partition("-")[0]](name, model)


def verdict(draws, known):
    """The worst of the numbers, how far it is off, and the p-value of the discrepancy."""
    scores = z_scores(draws, known)
    worst = max(scores, key=lambda one: abs(scores[one]))
    return worst, abs(scores[worst]), discrepancy(draws, known)[1]


def mean_predictions(numbers):
    """Posterior means at the points of a problem."""
    return np.array([numbers[f"prediction {i}"].mean() for i in range(3)])
