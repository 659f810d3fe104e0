"""The same draws, whatever the number of threads, jobs and processes.

``python -m robustness.draws`` fits every model by every inference in processes with different
numbers of threads and compares hashes of all draws; ``results/faults/determinism.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from robustness.killing import digest, write_record
from wideangle import (
    LatentFeatureModel,
    Maximise,
    MixtureOfExpertsClassifier,
    Sampling,
    Variational,
)

ONE = {
    "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "NPROC": "1",
    # Compiled anew: how work is divided may depend on the cores of the process that compiles. No
    # flag of XLA is set, since a program of other flags may round differently.
    "JAX_ENABLE_COMPILATION_CACHE": "false",
}  # fmt: skip
MANY = {"OMP_NUM_THREADS": "7", "OPENBLAS_NUM_THREADS": "7", "NUMBA_NUM_THREADS": "7", "NPROC": "7"}
SETTINGS: dict[str, tuple[dict[str, str], int, int | None]] = {
    "one thread, one job": (ONE, 1, 1),
    "seven threads, three jobs": (MANY, 3, None),
    "defaults": ({}, 2, None),
}
"""Environment, ``n_jobs`` and number of cores the process may use."""
FAMILIES = ("experts", "features")
SHORT = {"n_warmup": 6, "n_draws": 6, "n_chains": 2}
COMMON: dict[str, Any] = {"verbose": False, "random_state": 0}
FEW = {"n_passes": 3, "n_starts": 2}
EXPERTS: dict[str, dict[str, Any]] = {
    "map": {"inference": Maximise(**FEW)},
    "vi, diagonal": {"inference": Variational(**FEW)},
    "vi, vmf": {"inference": Variational(guide="vmf", **FEW)},
    "mcmc, hmc": {"inference": Sampling(**SHORT)},
    "mcmc, geodesic": {"inference": Sampling(kernel="geodesic", **SHORT), "prior": "vmf"},
    "mcmc, metropolis": {"inference": Sampling(kernel="metropolis", **SHORT), "prior": "gaussian"},
}
FEATURES: dict[str, dict[str, Any]] = {
    "gaussian": {"prior": "gaussian"},
    "mutual-angular": {"prior": "mutual-angular"},
    "pitman-yor": {"prior": "gaussian", "process": "pitman-yor"},
    "gaps": {"prior": "gaussian"},
}


def expert_draws(name: str, n_rows: int = 3000) -> str:
    """Hash of the draws of a mixture, of rows enough to be shared among threads."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(n_rows, 20))
    y = (X[:, 0] * X[:, 1] + generator.normal(size=n_rows) > 0).astype(int)
    return digest(MixtureOfExpertsClassifier(4, **COMMON, **EXPERTS[name]).fit(X, y))


def feature_draws(name: str, n_jobs: int, n_rows: int = 3000) -> str:
    """Hash of the draws of a feature model."""
    generator = np.random.default_rng(0)
    truth = 3.0 * (generator.random((6, 40)) < 0.2)
    X = generator.integers(0, 2, (n_rows, 6)) @ truth + generator.normal(size=(n_rows, 40))
    if name == "gaps":
        X[generator.random(X.shape) < 0.05] = np.nan
    model = LatentFeatureModel(
        inference=Sampling(thin=1, hops=0, max_features=12, **SHORT),
        n_jobs=n_jobs,
        **COMMON,
        **FEATURES[name],
    )
    return digest(model.fit(X))


def all_draws(families: Sequence[str], n_jobs: int) -> dict[str, str]:
    """Hashes by model and inference."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if "experts" in families:
            found |= {f"experts, {name}": expert_draws(name) for name in EXPERTS}
        if "features" in families:
            found |= {f"features, {name}": feature_draws(name, n_jobs) for name in FEATURES}
    return found


def in_process(name: str, families: Sequence[str]) -> dict[str, str]:
    """All hashes, from a process with these settings."""
    environment, n_jobs, n_cores = SETTINGS[name]
    numbers = ["--jobs", str(n_jobs)] + (["--cores", str(n_cores)] if n_cores else [])
    done = subprocess.run(
        [sys.executable, "-m", "robustness.draws", *families, *numbers],
        env=os.environ | environment | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def compare(
    families: Sequence[str] = FAMILIES, names: Sequence[str] = tuple(SETTINGS)
) -> dict[str, Any]:
    """Whether the settings of these names give the same draws."""
    found = {name: in_process(name, families) for name in names}
    first = found[names[0]]
    differ = {n: [k for k in first if first[k] != hashes[k]] for n, hashes in found.items()}
    return {"cores": len(os.sched_getaffinity(0)), "models": list(first), "differ": differ}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", default=FAMILIES)
    parser.add_argument("--jobs", type=int, help="print the hashes of this process")
    parser.add_argument("--cores", type=int, help="cores that this process may use")
    parser.add_argument("--out", type=Path, default=Path("results/faults/determinism.json"))
    options = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    if options.cores:  # before JAX starts its threads
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    if options.jobs:
        print(json.dumps(all_draws(options.families, options.jobs)))
        return
    record = compare(options.families)
    write_record(options.out, record)
    print(json.dumps(record["differ"]))
    sys.exit(any(record["differ"].values()))


if __name__ == "__main__":
    main()
