"""One posterior on two devices: ``python -m robustness.devices`` compares CPU and GPU.

Rounding differs between devices, so that draws do; what they are drawn from must not. The means of
everything that does not depend on the numbering of components are compared in units of their Monte
Carlo error, from the effective sample sizes of both.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from robustness.killing import write_record
from wideangle import (
    IndianBuffet,
    LatentFeatureModel,
    MixtureOfExpertsClassifier,
    Sampling,
)
from wideangle.posterior import Draws
from wideangle.settings import PRIORS

LIMIT = 4.0
"""Standard errors between two means that pass as the same."""
LEAST_SIZE = 50.0
"""Effective draws below which a mean has no error to speak of."""


def expert_rows() -> tuple[np.ndarray, np.ndarray]:
    """Few rows and a wide posterior, which chains cross in no time."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(80, 2))
    return X, (X[:, 0] + generator.logistic(size=80) > 0).astype(int)


def feature_rows() -> np.ndarray:
    """Two features that nobody can miss."""
    generator = np.random.default_rng(0)
    features = np.array([[3.0, 3.0, 0, 0, 0, 0], [0, 0, 0, 3.0, 0, 3.0]])
    return generator.integers(0, 2, (100, 2)) @ features + 0.5 * generator.normal(size=(100, 6))


def experts(device: Any, seed: int, prior: str, kernel: str) -> Draws:
    """Chains of the mixture."""
    with jax.default_device(device):
        model = MixtureOfExpertsClassifier(
            2,
            prior=PRIORS[prior](scale=1.0),
            inference=Sampling(n_warmup=500, n_draws=2000, n_chains=8, kernel=kernel),
            verbose=False,
            random_state=seed,
        ).fit(*expert_rows())
    return model.trace_


def features(device: Any, seed: int, prior: str) -> Draws:
    """Chains of the feature model; a device has moves of its own, for the same posterior."""
    with jax.default_device(device):
        model = LatentFeatureModel(
            PRIORS[prior](scale=1.0),
            IndianBuffet(1.0),
            inference=Sampling(n_warmup=200, n_draws=1500, n_chains=4, thin=1, max_features=10),
            verbose=False,
            random_state=seed,
        ).fit(feature_rows())
    return model.trace_


CASES: dict[str, Callable[[Any, int], Draws]] = {
    "experts, gaussian, hmc": lambda d, s: experts(d, s, "gaussian", "hmc"),
    "experts, mutual-angular, hmc": lambda d, s: experts(d, s, "mutual-angular", "hmc"),
    "experts, vmf, geodesic": lambda d, s: experts(d, s, "vmf", "geodesic"),
    "features, gaussian": lambda d, s: features(d, s, "gaussian"),
    "features, mutual-angular": lambda d, s: features(d, s, "mutual-angular"),
}


def distances(left: Draws, right: Draws) -> dict[str, float]:
    """Difference of the means of every number, in standard errors."""
    one, other = left.summary(), right.summary()
    found = {}
    for name in set(one.names) & set(other.names):
        i, j = one.names.index(name), other.names.index(name)
        sizes = one["ess_bulk"][i], other["ess_bulk"][j]
        if not all(np.isfinite(sizes)) or min(sizes) < LEAST_SIZE:
            continue
        error = np.hypot(one["sd"][i] / sizes[0] ** 0.5, other["sd"][j] / sizes[1] ** 0.5)
        found[name] = float((one["mean"][i] - other["mean"][j]) / error)
    return dict(sorted(found.items()))


def compare(name: str, here: Any, there: Any) -> dict[str, Any]:
    """One case on two devices, with seeds of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = distances(CASES[name](here, 0), CASES[name](there, 1))
    return {
        "case": name, "devices": [here.device_kind, there.device_kind], "numbers": len(found),
        "farthest": max(map(abs, found.values())), "distances": found,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--out", type=Path, default=Path("results/faults/devices.json"))
    options = parser.parse_args()
    here, there = jax.devices("cpu")[0], jax.devices()[0]
    results = []
    for name in options.case or CASES:
        results.append(compare(name, here, there))
        print({k: v for k, v in results[-1].items() if k != "distances"}, flush=True)
        write_record(options.out, {"limit": LIMIT, "cases": results})
    sys.exit(any(case["farthest"] > LIMIT for case in results))


if __name__ == "__main__":
    main()
