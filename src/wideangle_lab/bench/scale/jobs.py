"""One measurement per process, which isolates its peak memory: ``jobs NAME JSON``."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TEST_ROWS = 100_000
"""Number of test rows, which are not in the file."""


def peak_mib() -> float:
    """Peak memory of this process, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def draw(folder: str, rows: int, seed: int, what: str, **shape: int) -> dict[str, Any]:
    """Generate a data set on disk."""
    from wideangle_lab.bench.scale import drawn

    began = time.perf_counter()
    methods = {"classes": drawn.draw_classes, "features": drawn.draw_features}
    methods[what](Path(folder), rows, seed, **shape)
    return {"seconds": time.perf_counter() - began, "peak_mib": peak_mib()}


def vi(
    folder: str,
    rows: int,
    seed: int,
    n_experts: int,
    n_starts: int,
    n_passes: int | None,
    batch_size: int = 1024,
) -> dict[str, Any]:
    """Fit stochastic VI to the file; compare with the truth and a logistic regression."""
    from sklearn.linear_model import LogisticRegression

    from wideangle.mixture_of_experts.classifier import MixtureOfExpertsClassifier
    from wideangle.settings import Variational
    from wideangle.streaming import NpyRows
    from wideangle_lab.bench.scale import drawn

    source = NpyRows(Path(folder) / "X.npy", Path(folder) / "y.npy")
    assert source.shape[0] == rows
    model = MixtureOfExpertsClassifier(
        n_experts,
        inference=Variational(n_starts=n_starts, n_passes=n_passes, batch_size=batch_size),
        random_state=seed, verbose=False,
    )  # fmt: skip
    clock = _Clock()
    with clock:
        model.fit_stream(source)
    memory = peak_mib()
    columns = source.shape[1]
    test = np.random.default_rng([seed, 9]).standard_normal((TEST_ROWS, columns))
    chance = drawn.truth(seed, columns).chance(test)
    ours = model.predict_proba(test)[:, 1]
    some = source.read(0), source.read(1)
    simple = LogisticRegression().fit(
        np.concatenate([x for x, _ in some]), np.concatenate([y for _, y in some if y is not None])
    )

    def loss(p: np.ndarray) -> float:
        # Expectation over the true class probabilities: no noise of drawn classes.
        p = np.clip(p, 1e-7, 1 - 1e-7)
        return float(-np.mean(chance * np.log(p) + (1 - chance) * np.log(1 - p)))

    return {
        "seconds": clock.seconds, "cpu_seconds": clock.cpu, "peak_mib": memory,
        "loss": loss(ours), "loss_of_truth": loss(chance),
        "loss_of_logistic_regression": loss(simple.predict_proba(test)[:, 1]),
        "columns": columns, "experts_used": model.n_used_,
        "steps": int(model.notes_["steps"]),
    }  # fmt: skip


def features(folder: str, rows: int, seed: int, n_warmup: int, n_draws: int) -> dict[str, Any]:
    """A few exact sweeps of the feature sampler over the file; compare with the truth."""
    import warnings

    from wideangle.latent_features.disk import DiskRows
    from wideangle.latent_features.estimator import LatentFeatureModel
    from wideangle.settings import Sampling
    from wideangle.streaming import NpyRows
    from wideangle_lab.bench.scale import drawn

    sweep, seconds, cpu = DiskRows.sweep, [], []

    def timed(self: DiskRows, *arguments: Any) -> Any:
        clock = _Clock()
        with clock:
            result = sweep(self, *arguments)
        seconds.append(clock.seconds)
        cpu.append(clock.cpu)
        return result

    DiskRows.sweep = timed  # pyright: ignore[reportAttributeAccessIssue]
    source = NpyRows(Path(folder) / "F.npy", block_rows=2**15)
    assert source.shape[0] == rows
    model = LatentFeatureModel(
        prior="vmf",
        inference=Sampling(n_warmup=n_warmup, n_draws=n_draws, n_chains=1, thin=1, hops=0),
        random_state=seed,
        verbose=False,
    )
    clock = _Clock()
    with clock, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a few sweeps make no chain
        model.fit_stream(source, folder=folder)
    found, wanted = model.components_, drawn.true_features(seed)
    gaps = np.linalg.norm(found[:, None] - wanted[None], axis=2).min(axis=0)
    return {
        "seconds": clock.seconds, "cpu_seconds": clock.cpu, "peak_mib": peak_mib(),
        "columns": source.shape[1], "sweep_seconds": float(np.median(seconds[1:])),
        "sweep_cpu_seconds": float(np.median(cpu[1:])),
        "n_features": len(found), "true_features": len(wanted),
        "largest_error": float(np.max(gaps / np.linalg.norm(wanted, axis=1))),
        "noise": model.noise_scale_, "true_noise": drawn.NOISE,
    }  # fmt: skip


class _Clock:
    """Wall-clock seconds, and CPU seconds of all cores."""

    def __enter__(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._began[0]
        self.cpu = time.process_time() - self._began[1]


def pace(experts: int, starts: int, columns: int, seed: int) -> dict[str, Any]:
    """Seconds per row in one setting."""
    from wideangle_lab.bench.scale.pace import vi_pace

    return vi_pace(experts, starts, columns, seed)


def share(**options: Any) -> dict[str, Any]:
    """One process of a fit over several devices."""
    from wideangle_lab.bench.scale.shares import share

    return share(**options)


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "draw": draw,
    "features": features,
    "pace": pace,
    "share": share,
    "vi": vi,
}


def run(name: str, **options: Any) -> dict[str, Any]:
    """Run a job in a new process; returns its options and measurements."""
    done = subprocess.run(
        [sys.executable, "-m", "wideangle_lab.bench.scale.jobs", name, json.dumps(options)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{name} {options} failed:\n{done.stderr[-2000:]}")
    kept = {key: value for key, value in options.items() if key != "folder"}
    return {"job": name, **kept, **json.loads(done.stdout.splitlines()[-1])}


if __name__ == "__main__":
    print(json.dumps(JOBS[sys.argv[1]](**json.loads(sys.argv[2]))))
