"""Six small problems whose posterior an independent sampler knows, and the fits to compare with it.

A problem has its rows, the settings of the model as a user would give them, and numbers of a draw
that do not depend on how components are numbered. Those numbers are computed here by NumPy, from
draws of the reference sampler and of the library alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wideangle import (
    GaussianPrior,
    IndianBuffet,
    LatentFeatureModel,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    MutualAngularPrior,
    PitmanYor,
    SphericalMixture,
)

Numbers = dict[str, np.ndarray]
"""By name, one number of each draw: (chain, draw)."""

# ---- the mixture of experts

CLASSES = {"n_experts": 3, "concentration": 3.0, "shape": 3.0, "scale": 1.0}
"""Type II, whose normalisers have a closed form in three dimensions."""
QUANTITY = {"n_experts": 2, "concentration": 1.5, "floor": 0.2, "ceiling": 10.0}
MEAN_SCALES = {"gate": 3.0, "experts": 0.7, "common": 0.7}
"""The default prior; with two experts type I is type II."""


def class_rows() -> tuple[np.ndarray, np.ndarray]:
    """Forty rows of two columns, in which two rules meet."""
    rng = np.random.default_rng(11)
    X = rng.normal(size=(40, 2))
    score = np.where(X[:, 0] > 0, 2.0 * X[:, 1], -1.5 * X[:, 1] + 0.5)
    return X, (rng.uniform(size=40) < 1 / (1 + np.exp(-score))).astype(int)


def quantity_rows() -> tuple[np.ndarray, np.ndarray]:
    """Forty rows of one column; targets have mean 0 and standard deviation 1."""
    rng = np.random.default_rng(12)
    X = rng.uniform(-2, 2, size=(40, 1))
    y = np.abs(X[:, 0]) + rng.normal(size=40) * np.where(X[:, 0] > 0, 0.4, 0.2)
    return X, (y - y.mean()) / y.std()


POINTS = {1: np.array([[-1.5], [0.0], [1.5]]), 2: np.array([[1.0, 1.0], [-1.0, 1.0], [0.0, -1.5]])}
"""Where predictions are looked at, by the number of columns."""


def with_constant(X: np.ndarray) -> np.ndarray:
    """The intercept is the last column."""
    return np.column_stack([X, np.ones(len(X))])


def _log_gate(gate: np.ndarray, rows: np.ndarray) -> np.ndarray:
    scores = np.einsum("...kp,np->...kn", gate, rows)
    return scores - np.logaddexp.reduce(scores, axis=-2, keepdims=True)


def class_numbers(gate: np.ndarray, experts: np.ndarray) -> Numbers:
    """Of gates and experts (..., K, 3)."""
    X, y = class_rows()

    def log_yes(rows: np.ndarray, signs: np.ndarray) -> np.ndarray:
        scores = signs * np.einsum("...kp,np->...kn", experts, rows)
        each = _log_gate(gate, rows) - np.logaddexp(0.0, -scores)
        return np.logaddexp.reduce(each, axis=-2)

    points = np.exp(log_yes(with_constant(POINTS[2]), np.ones(3)))
    found = {"log_lik": log_yes(with_constant(X), 2.0 * y - 1.0).sum(axis=-1)}
    found |= {f"prediction {i}": points[..., i] for i in range(3)}
    for name, vectors in (("gate", gate), ("experts", experts)):
        lengths = np.linalg.norm(vectors, axis=-1)
        units = vectors / lengths[..., None]
        together = np.linalg.norm(units.sum(axis=-2), axis=-1)
        found |= {f"{name}, mean length": lengths.mean(axis=-1), f"{name}, resultant": together}
    return found


def quantity_numbers(gate: np.ndarray, experts: np.ndarray, scales: dict[str, Any]) -> Numbers:
    """Of gates (..., K, 2), experts (..., K, 2, 2) and the scales of the prior."""
    X, y = quantity_rows()

    def parts(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        mean, log_variance = np.moveaxis(np.einsum("...kop,np->...kon", experts, rows), -2, 0)
        inverse = np.exp(-np.clip(log_variance, -20, 20)) + QUANTITY["ceiling"] ** -2
        return mean, QUANTITY["floor"] ** 2 + 1.0 / inverse

    rows, points = with_constant(X), with_constant(POINTS[1])
    mean, variance = parts(rows)
    each = _log_gate(gate, rows) - 0.5 * (y - mean) ** 2 / variance
    log_lik = np.logaddexp.reduce(each - 0.5 * np.log(2 * np.pi * variance), axis=-2).sum(axis=-1)
    mean, variance = parts(points)
    share = np.exp(_log_gate(gate, points))
    predicted = (share * mean).sum(axis=-2)
    spread = np.sqrt((share * (variance + mean**2)).sum(axis=-2) - predicted**2)
    found = {"log_lik": log_lik}
    found |= {f"prediction {i}": predicted[..., i] for i in range(3)}
    found |= {f"spread {i}": spread[..., i] for i in (0, 2)}
    return found | {f"log scale, {name}": np.log(value) for name, value in scales.items()}


# ---- latent features

BUFFET = {"feature_scale": 1.5}
"""Noise and alpha are learned, with the distributions that the library gives them."""
POWER_LAW = {"discount": 0.3, "strength": 2.0, "noise": 0.6, "feature_scale": 1.5}
"""Alpha is learned."""


def feature_rows(seed: int) -> np.ndarray:
    """Eight rows of three columns, sums of two features."""
    rng = np.random.default_rng(seed)
    features = np.array([[1.5, 1.5, 0.0], [0.0, -1.0, 2.0]])
    return rng.integers(0, 2, size=(8, 2)) @ features + 0.5 * rng.normal(size=(8, 3))


PROBES = {"entry 0": (0, 0), "entry 1": (3, 2), "entry 2": (7, 1)}
"""Rows and columns whose reconstruction is looked at; the library watches them, too."""


def feature_numbers(
    n: int, residual: Any, entries: np.ndarray, noise_variance: Any, n_active: Any, alpha: Any
) -> Numbers:
    """Of the squared residual of n entries, and reconstructed entries (..., 3)."""
    log_lik = -0.5 * (residual / noise_variance + n * np.log(2 * np.pi * noise_variance))
    found = {"log_lik": log_lik, "n_active": n_active, "log alpha": np.log(alpha)}
    if np.ptp(noise_variance) > 0:
        found["log noise"] = 0.5 * np.log(noise_variance)
    return found | {name: entries[..., i] for i, name in enumerate(PROBES)}


# ---- clusters of directions

FINITE = {"n": 3, "concentration": 2.0, "tightness": 0.7, "rows": 5.0, "alpha_mean": 10.0}
"""Type II; alpha is learned."""
INFINITE = {"concentration": 2.0, "tightness": 0.7, "rows": 5.0, "alpha": 1.0}
"""Type I."""


def cluster_rows() -> np.ndarray:
    """Eighteen directions in three dimensions around two centres, and some of their own."""
    rng = np.random.default_rng(13)
    centres = np.repeat([[1.0, 0.0, 0.0], [0.0, 1.0, 0.3], [-0.5, -0.5, 0.7]], [8, 7, 3], axis=0)
    rows = centres + 0.35 * rng.normal(size=centres.shape)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


WATCHED = (0, 9, 17)
"""Rows whose density is looked at."""


def cluster_numbers(log_density: np.ndarray, **others: np.ndarray) -> Numbers:
    """Of the log density (..., N) of every row against the uniform distribution."""
    found = {"log_lik": log_density.sum(axis=-1)}
    return found | {f"density {i}": log_density[..., i] for i in WATCHED} | others


# ---- the models


class Problem(NamedTuple):
    """Rows, and the estimator of their model without its inference."""

    name: str
    data: tuple[np.ndarray, ...]
    model: Any


def _class_model() -> Any:
    prior = MutualAngularPrior(
        concentration=CLASSES["concentration"], kind="II", scale=CLASSES["scale"],
        magnitude_shape=CLASSES["shape"], common=False,
    )  # fmt: skip
    return MixtureOfExpertsClassifier(CLASSES["n_experts"], prior=prior, standardise=False)


def _quantity_model() -> Any:
    prior = MutualAngularPrior(concentration=QUANTITY["concentration"])
    return MixtureOfExpertsRegressor(
        QUANTITY["n_experts"], prior=prior, standardise=False, min_noise=QUANTITY["floor"]
    )


def _power_law_model() -> Any:
    process = PitmanYor("learn", POWER_LAW["discount"], POWER_LAW["strength"])
    prior = GaussianPrior(scale=POWER_LAW["feature_scale"])
    return LatentFeatureModel(prior, process, noise_scale=POWER_LAW["noise"])


def _infinite_model() -> Any:
    prior = MutualAngularPrior(concentration=INFINITE["concentration"], kind="I")
    return SphericalMixture(
        "infinite", prior=prior, alpha=INFINITE["alpha"], tightness=INFINITE["tightness"]
    )


def _finite_model() -> Any:
    prior = MutualAngularPrior(concentration=FINITE["concentration"], kind="II")
    return SphericalMixture(FINITE["n"], prior=prior, tightness=FINITE["tightness"])


PROBLEMS = {
    problem.name: problem
    for problem in (
        Problem("experts-classes", class_rows(), _class_model()),
        Problem("experts-quantity", quantity_rows(), _quantity_model()),
        Problem(
            "features-ibp",
            (feature_rows(14),),
            LatentFeatureModel(GaussianPrior(scale=BUFFET["feature_scale"]), IndianBuffet("learn")),
        ),
        Problem("features-pitman-yor", (feature_rows(15),), _power_law_model()),
        Problem("clusters-finite", (cluster_rows(),), _finite_model()),
        Problem("clusters-infinite", (cluster_rows(),), _infinite_model()),
    )
}
