"""Many fits in one process, fits in threads at once, and predictions under threads for long.

``python -m robustness.soak --fits 200 --seconds 3600`` (with ``tests`` on the path) prints what
memory and memory maps did, and fails where they grow. Every compiled program maps memory, and Linux
allows a process 65,530 maps: a process that fits tables of many shapes must not get there.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from robustness.killing import write_record
from wideangle import (
    LatentFeatureModel,
    MixtureOfExpertsClassifier,
    MixtureOfExpertsRegressor,
    Sampling,
    SphericalMixture,
    Variational,
)

FITS, AT_ONCE, THREADS = 200, 8, 4
MOST_MAPS = 40_000
"""Memory maps that a process may have; Linux ends at 65,530."""
MOST_GROWTH = 2**20
"""Bytes that a fit of a shape seen before may leave behind, on average."""


def usage() -> dict[str, float]:
    """Memory maps of this process, and bytes in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    maps = Path("/proc/self/maps").read_bytes().count(b"\n")
    return {"maps": maps, "bytes": pages * os.sysconf("SC_PAGE_SIZE")}


def fit(number: int) -> Any:
    """A tiny fit; the number decides model and shape."""
    rng = np.random.default_rng(number)
    n_rows, n_columns = 20 + number % 37, 2 + number // 4 % 11
    X = rng.normal(size=(n_rows, n_columns))
    chains = {"n_warmup": 2, "n_draws": 3, "n_chains": 2}
    common = {"verbose": False, "random_state": 0}
    kind = number % 4
    if kind == 0:
        model = MixtureOfExpertsClassifier(2, inference=Sampling(**chains), **common)
        return model.fit(X, np.arange(n_rows) % (2 + number // 4 % 2))
    if kind == 1:
        guide = Variational(n_starts=1, n_passes=2)
        return MixtureOfExpertsRegressor(2, inference=guide, **common).fit(X, X[:, 0])
    if kind == 2:
        chains = Sampling(**chains, thin=1, hops=0, max_features=3)
        return LatentFeatureModel("gaussian", inference=chains, n_jobs=1, **common).fit(X)
    return SphericalMixture(3, **common).fit(X)


def fits_in_turn(n_fits: int) -> dict[str, Any]:
    """Half of the fits have shapes of their own, and the other half repeats them."""
    begun = usage()
    for number in range(n_fits // 2):
        fit(number)
    halfway = usage()
    for number in range(n_fits // 2):
        fit(number)
    end = usage()
    per_fit = {name: (end[name] - halfway[name]) / (n_fits // 2) for name in end}
    return {"fits": n_fits, "begun": begun, "halfway": halfway, "end": end, "per_fit": per_fit}


def fits_at_once(n_fits: int = AT_ONCE) -> dict[str, Any]:
    """The same fits one after the other, and all of them in threads: the same predictions."""
    X = np.random.default_rng(0).normal(size=(30, 3))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)

    def one(seed: int) -> np.ndarray:
        chains = Sampling(n_warmup=5, n_draws=10, n_chains=2)
        model = MixtureOfExpertsClassifier(
            2 + seed % 2, inference=chains, verbose=False, random_state=seed
        )
        return model.fit(X, y).predict_proba(X)

    alone = [one(seed) for seed in range(n_fits)]
    with ThreadPoolExecutor(n_fits) as pool:
        together = list(pool.map(one, range(n_fits)))
    wrong = sum(not np.array_equal(a, b) for a, b in zip(alone, together, strict=True))
    return {"fits": n_fits, "wrong": wrong}


def predictions(seconds: float, n_threads: int = THREADS) -> dict[str, Any]:
    """Predictions of one model in threads, each of them the same as the first; then the memory."""
    model, rows = fit(0), np.random.default_rng(1).normal(size=(200, 2))
    expected = model.predict_proba(rows)
    end, counts, wrong = time.monotonic() + seconds, [0] * n_threads, []
    begun = usage()

    def work(place: int) -> None:
        while time.monotonic() < end:
            if not np.array_equal(model.predict_proba(rows), expected):
                wrong.append(place)
            counts[place] += 1

    threads = [threading.Thread(target=work, args=(place,)) for place in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"seconds": seconds, "calls": sum(counts), "least": min(counts), "wrong": len(wrong),
            "begun": begun, "end": usage()}  # fmt: skip


def complaints(found: dict[str, Any]) -> list[str]:
    """What grew, or came out wrong."""
    turn, predicted = found["in_turn"], found["predictions"]
    said = []
    if turn["end"]["maps"] > MOST_MAPS:
        said.append(f"{turn['end']['maps']} memory maps")
    if turn["per_fit"]["maps"] > 1:
        said.append(f"{turn['per_fit']['maps']:.1f} memory maps more with every fit")
    if turn["per_fit"]["bytes"] > MOST_GROWTH:
        said.append(f"{turn['per_fit']['bytes'] / 2**20:.1f} MiB more with every fit")
    if found["at_once"]["wrong"]:
        said.append(f"{found['at_once']['wrong']} fits in threads differ from those alone")
    if predicted["wrong"]:
        said.append(f"{predicted['wrong']} predictions in threads differ")
    if predicted["end"]["bytes"] - predicted["begun"]["bytes"] > 64 * MOST_GROWTH:
        said.append("predictions take ever more memory")
    return said


def main() -> None:
    """Run all three, print what was found, fail on complaints."""
    parser = argparse.ArgumentParser(description="many fits and predictions in one process")
    parser.add_argument("--fits", type=int, default=FITS)
    parser.add_argument("--seconds", type=float, default=3600.0, help="of predictions")
    parser.add_argument("--out", type=Path, help="for a record: results/faults/soak.N.json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of chains as short as these
    found = {
        "in_turn": fits_in_turn(options.fits),
        "at_once": fits_at_once(),
        "predictions": predictions(options.seconds),
    }
    said = complaints(found)
    print(json.dumps(found | {"complaints": said}, indent=1))
    if options.out:
        write_record(options.out, found | {"complaints": said})
    sys.exit(bool(said))


if __name__ == "__main__":
    main()
