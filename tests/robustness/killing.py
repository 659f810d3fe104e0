"""A fit that saves as it goes, killed at random moments: what is left, and what is made of it.

``python -m robustness.killing --times 200`` writes ``results/faults/kill.json``. Each trial forks
a process before JAX has started, kills it with SIGKILL, and lets another process look at what is
left: the model file must be the one before or the new one, whole; a fit begun again must end with
the draws of a fit that was never stopped, to the last bit, and leave no checkpoint.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from saving import saving_at_once
from wideangle import (
    LatentFeatureModel,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    Sampling,
    SphericalMixture,
    Variational,
)
from wideangle.runs.train import versions
from wideangle.sharding import rows_over
from wideangle.storage import StorageError, bundle, checkpoint
from wideangle.streaming import ParquetRows

KINDS = {
    "mcmc": MixtureOfExpertsClassifier,
    "features": LatentFeatureModel,
    "automatic": MixtureOfExpertsClassifier,
    "warm": MixtureOfExpertsClassifier,
    "regressor": MixtureOfExpertsRegressor,
    "clusters": SphericalMixture,
    "parquet": MixtureOfExpertsClassifier,
    "sharded": MixtureOfExpertsClassifier,
}
"""``automatic``: chains end by themselves. ``warm``: chains are taken up for more draws.
``parquet``: streamed. ``sharded``: rows over two devices."""
ESTIMATORS = tuple(KINDS)
PHASES = ("fit", "checkpoint", "save")
SAVES = 40
"""Times that a victim of the phase "save" writes the model."""
LONG = {"n_warmup": 10, "n_draws": 60}


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Data that every process makes anew."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(60, 3))
    return X, (X[:, 0] * X[:, 1] > 0).astype(int)


def model_of(name: str, seed: int, folder: Path | None) -> Any:
    """An estimator that saves its run to ``folder``; clusters cannot."""
    chains = Sampling(n_chains=2, thin=1, **LONG)
    common = {"verbose": False, "random_state": seed}
    if name == "clusters":
        return SphericalMixture(4, inference=chains, **common)
    common["checkpoint"] = folder
    if name == "features":
        chains = Sampling(n_chains=2, thin=1, hops=0, max_features=4, **LONG)
        return LatentFeatureModel("gaussian", inference=chains, n_jobs=2, **common)
    if name == "regressor":
        return MixtureOfExpertsRegressor(2, prior="gaussian", inference=chains, **common)
    if name == "automatic":
        # The limit of time is no part of the trial: it would end a fit at another draw.
        chains = Sampling(n_chains=2, max_time=3600.0)
    if name in ("parquet", "sharded"):
        chains = Variational(n_starts=2, n_passes=300, batch_size=16)
    return MixtureOfExpertsClassifier(
        2, prior="gaussian", inference=chains, warm_start=name == "warm", **common
    )


def fit(name: str, seed: int, folder: Path | None, home: Path) -> Any:
    """A fit, with a checkpoint after every chunk."""
    X, y = rows()
    model = model_of(name, seed, folder)
    with saving_at_once(), rows_over() if name == "sharded" else contextlib.nullcontext():
        if name == "parquet":
            return model.fit_stream(ParquetRows(home / "rows.parquet", "y"))
        if name == "warm":
            model.set_params(inference__n_draws=LONG["n_draws"] // 2).fit(X, y)
            model.set_params(inference__n_draws=LONG["n_draws"])
        return model.fit(X, X[:, 0] if name == "regressor" else y)


def write_parquet(path: Path) -> None:
    """The rows as a file of several row groups."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    X, y = rows()
    columns = {f"x{i}": column for i, column in enumerate(X.T)}
    pq.write_table(pa.table(columns | {"y": y}), path, row_group_size=7)


def load(name: str, path: Path) -> Any:
    """The model in a file."""
    return KINDS[name].load(path)


def digest(model: Any) -> str:
    """A hash of every draw, bit by bit."""
    state = hashlib.sha256()
    values = getattr(model.posterior_, "values", model.posterior_)
    for path, leaf in jax.tree_util.tree_leaves_with_path(values):
        array = np.asarray(leaf)
        state.update(f"{path}{array.dtype}{array.shape}".encode() + array.tobytes())
    return state.hexdigest()


def spawn(work: Any, *arguments: Any) -> int:
    """Fork; the child does the work and is gone. JAX has not started here, so forking is safe."""
    child = os.fork()
    if child:
        return child
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        warnings.simplefilter("ignore")  # of chains as short as these
        os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"  # for sharded rows
        work(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def victim(name: str, place: Path, phase: str) -> None:
    """What is killed: fits with checkpoints, then a save; or many saves in turn of two models."""
    if phase == "save":
        models = [load(name, place.parent / f"{name}-{which}") for which in ("old", "new")]
        (place / "began").touch()
        for turn in range(SAVES):
            models[(turn + 1) % 2].save(place / "model")
        return
    (place / "began").touch()
    model = fit(name, 1, place / "run", place.parent)
    model.save(place / "model")


def witness(name: str, place: Path, phase: str) -> None:
    """Look at what is left, go on with it, and write down what came of it."""
    found: dict[str, Any] = {"checkpoint": (place / "run").exists()}
    try:
        found["model"] = digest(load(name, place / "model"))
    except StorageError as error:
        found["error"] = str(error)
    if phase != "save":
        found["again"] = digest(fit(name, 1, place / "run", place.parent))
        found["left"] = sorted(str(file.name) for file in place.glob("run/*"))
    (place / "found.json").write_text(json.dumps(found))


def prepare(name: str, home: Path) -> None:
    """Two models, from fits that nobody stopped: the one there was and the one to come."""
    for seed, which in enumerate(("old", "new")):
        model = fit(name, seed, None, home)
        model.save(home / f"{name}-{which}")
        (home / f"{name}-{which}.digest").write_text(digest(model))


def lifetime(name: str, home: Path, phase: str) -> float:
    """Seconds of a victim that lives, from its beginning; the second one has all compiled."""
    for _ in range(2):
        place = _place(home, name)
        child = spawn(victim, name, place, phase)
        began = _began(place, child, phase)
        assert os.waitpid(child, 0)[1] == 0, "a victim died before it was killed"
        seconds = time.monotonic() - began
        shutil.rmtree(place)
    return seconds


def trial(name: str, home: Path, phase: str, moment: float) -> dict[str, Any]:
    """Kill one, look at what is left, and judge."""
    place = _place(home, name)
    child = spawn(victim, name, place, phase)
    began = _began(place, child, phase)
    time.sleep(max(0.0, began + moment - time.monotonic()))
    killed = _kill(child)
    assert os.waitpid(spawn(witness, name, place, phase), 0)[1] == 0, f"{place} cannot be judged"
    found = json.loads((place / "found.json").read_text())
    old, new = ((home / f"{name}-{which}.digest").read_text() for which in ("old", "new"))
    wrong = []
    if found.get("model") not in (old, new):
        wrong.append(f"the model is neither the old nor the new one: {found}")
    if found.get("again", new) != new:
        wrong.append("a fit begun again ends with other draws")
    if found.get("left"):
        wrong.append(f"files stay behind: {found['left']}")
    result = {
        "estimator": name, "phase": phase, "seconds": round(moment, 4), "killed": killed,
        "checkpoint": found["checkpoint"], "model": "old" if found.get("model") == old else "new",
        "wrong": wrong,
    }  # fmt: skip
    if not wrong:
        shutil.rmtree(place)
    return result


def _kill(child: int) -> bool:
    try:
        os.kill(child, signal.SIGKILL)
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    except (ProcessLookupError, ChildProcessError):
        return False  # it was done before


def _place(home: Path, name: str) -> Path:
    place = Path(tempfile.mkdtemp(dir=home))
    shutil.copy(home / f"{name}-old", place / "model")
    return place


def _began(place: Path, child: int, phase: str) -> float:
    """When the phase began; that of checkpoints with their folder, so that kills meet saves."""
    mark = place / ("run" if phase == "checkpoint" else "began")
    while not mark.exists():
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "a victim died before it began"
        time.sleep(0.001)
    return time.monotonic()


def run(
    times: int,
    jobs: int,
    seed: int,
    seconds: float,
    home: Path,
    out: Path,
    phases: Sequence[str] = PHASES,
    estimators: Sequence[str] = ESTIMATORS,
) -> dict[str, Any]:
    """All trials; estimators and phases in turn, moments evenly at random over a lifetime.

    The record is written as they come: killing may be killed too.
    """
    end = time.monotonic() + seconds
    chance = random.Random(seed)
    span: dict[tuple[str, str], float] = {}
    write_parquet(home / "rows.parquet")
    for name in estimators:
        assert os.waitpid(spawn(prepare, name, home), 0)[1] == 0
        for phase in phases:
            if (name, phase) != ("clusters", "checkpoint"):  # which they do not write
                span[name, phase] = lifetime(name, home, phase)
        print({k: round(v, 2) for k, v in span.items()}, flush=True)
    # Phases in turn, and of each phase all estimators.
    pairs = sorted(span, key=lambda pair: phases.index(pair[1]))
    plan = [pairs[i % len(pairs)] for i in range(times)]
    moments = [chance.uniform(0.0, 0.95 * span[one]) for one in plan]
    with ThreadPoolExecutor(jobs) as pool:
        work = [
            pool.submit(
                lambda *a: trial(*a) if time.monotonic() < end else None, name, home, phase, moment
            )
            for (name, phase), moment in zip(plan, moments, strict=True)
        ]
        results = []
        for one in work:
            if one.result() is None:  # the time was over
                continue
            results.append(one.result())
            record = {
                "times": len(results), "seed": seed, "summary": summary(results),
                "lifetimes": {" ".join(which): round(took, 2) for which, took in span.items()},
                "trials": results,
            }  # fmt: skip
            if results[-1]["wrong"] or len(results) % 10 == 0:
                print(len(results), results[-1], flush=True)
                write_record(out, record)
    write_record(out, record)
    return record


def summary(trials: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Counts by estimator and phase."""
    table = []
    for name in ESTIMATORS:
        for phase in PHASES:
            some = [t for t in trials if (t["estimator"], t["phase"]) == (name, phase)]
            if not some:
                continue
            counts = Counter(t["model"] for t in some)
            table.append({
                "estimator": name, "phase": phase, "trials": len(some),
                "killed": sum(t["killed"] for t in some),
                "with_checkpoint": sum(t["checkpoint"] for t in some),
                "old_model": counts["old"], "new_model": counts["new"],
                "wrong": sum(bool(t["wrong"]) for t in some),
            })  # fmt: skip
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="fits that are killed at random moments")
    parser.add_argument("--times", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("results/faults/kill.json"))
    parser.add_argument("--phases", nargs="+", choices=PHASES, default=PHASES)
    parser.add_argument("--estimators", nargs="+", choices=ESTIMATORS, default=ESTIMATORS)
    parser.add_argument("--careless", action="store_true", help="write files in place: must fail")
    options = parser.parse_args()
    if options.careless:
        bundle.write = checkpoint.write = write_in_place
    with tempfile.TemporaryDirectory() as folder:
        cache = os.path.join(folder, "compiled")
        jax.config.update("jax_compilation_cache_dir", cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        plan = options.times, options.jobs, options.seed, options.seconds
        record = run(*plan, Path(folder), options.out, options.phases, options.estimators)
    wrong = [t for t in record["trials"] if t["wrong"]]
    print(json.dumps(record["summary"], indent=1), *wrong, sep="\n")
    sys.exit(bool(wrong))


def write_in_place(path: Any, parts: Any) -> None:
    """What a program does that has never been killed; the trials must notice it."""
    with open(path, "wb", buffering=0) as file:
        for part in parts:
            file.write(part)


def write_record(path: Path, record: dict[str, Any]) -> None:
    """A record with the machine and versions behind it."""
    about = {"made": time.strftime("%Y-%m-%d", time.gmtime()), "versions": versions()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(about | record, indent=1) + "\n")


if __name__ == "__main__":
    main()
