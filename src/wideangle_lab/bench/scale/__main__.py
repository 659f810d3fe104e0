"""``python -m wideangle_lab.bench.scale``: measure, and write ``results/bench/scale.json``."""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from wideangle.sharding import n_threads
from wideangle_lab.bench.scale import drawn, jobs, model
from wideangle_lab.bench.scale.pace import GRID
from wideangle_lab.bench.scale.shares import shares
from wideangle_lab.machine import describe

RECORD = Path("results") / "bench" / "scale.json"
PARTS = ("vi", "shares", "features", "vast-vi", "vast-features")
VAST = 10
"""Times as many rows in the last two parts."""


def main() -> None:
    """Run the requested parts; the record keeps the others."""
    parser = argparse.ArgumentParser(
        prog="python -m wideangle_lab.bench.scale", description=__doc__
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="for the drawn files; 30 GB")
    parser.add_argument("--part", choices=PARTS, action="append", help="by default all")
    parser.add_argument("--output", type=Path, default=RECORD)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    record: dict[str, Any] = {}
    if given.output.exists():
        record = json.loads(given.output.read_text(encoding="utf-8"))
    for part in given.part or PARTS:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            stamp = describe() | {"started": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")}
            found = MEASURES[part](folder, given.rows, given.seed, record)
            record[part] = {"stamp": stamp, **found}
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def measure_vi(folder: str, rows: int, seed: int, _: dict[str, Any]) -> dict[str, Any]:
    """Fit the constants of the machine to small runs, then compare large runs with predictions."""

    def pace(size: tuple[int, int, int]) -> dict[str, Any]:
        named = dict(zip(("experts", "starts", "columns"), size, strict=True))
        return _rounded(jobs.run("pace", **named, seed=seed))

    # Core seconds: several at once, each with two cores.
    with ThreadPoolExecutor(max(n_threads() // 2, 1)) as pool:
        found: dict[str, Any] = {"paces": [*pool.map(pace, GRID)]}
    costs = model.learn(found["paces"])
    found["costs"] = costs._asdict()
    found["draw"] = _rounded(jobs.run("draw", folder=folder, rows=rows, seed=seed, what="classes"))
    found["fits"] = []
    for experts, starts, passes in ((8, 2, 1), (16, 4, 1)):
        fit = jobs.run(
            "vi", folder=folder, rows=rows, seed=seed, n_experts=experts, n_starts=starts,
            n_passes=passes,
        )  # fmt: skip
        fit["predicted_cpu_seconds"] = costs.vi(rows, fit["columns"], experts, starts, passes)
        found["fits"].append(_rounded(fit))
    return found


def measure_features(folder: str, rows: int, seed: int, _: dict[str, Any]) -> dict[str, Any]:
    """Time a thirtieth of the rows, then compare all rows with the prediction."""
    found: dict[str, Any] = {"fits": []}
    for n, draws in ((rows // 30, 8), (rows, 3)):
        jobs.run("draw", folder=folder, rows=n, seed=seed, what="features")
        options = {"folder": folder, "rows": n, "seed": seed, "n_warmup": 1, "n_draws": draws}
        found["fits"].append(_rounded(jobs.run("features", **options)))
    small, large = found["fits"]
    found["costs"] = {"row": small["sweep_cpu_seconds"] / small["rows"]}
    large["predicted_cpu_seconds"] = found["costs"]["row"] * rows
    return found


def measure_shares(folder: str, rows: int, seed: int, _: dict[str, Any]) -> dict[str, Any]:
    """A gradient and a pass on one device and on several, one core for each."""
    cores = sorted(os.sched_getaffinity(0))
    size = {"rows": min(rows, 2**20), "columns": 64, "n_experts": 16}
    return {**size, "cores": len(cores), "plans": shares(**size, cores=cores)}


def measure_vast_vi(folder: str, rows: int, seed: int, record: dict[str, Any]) -> dict[str, Any]:
    """A pass of VI over many rows, with the constants of the record."""
    size = {"folder": folder, "rows": VAST * rows, "seed": seed}
    jobs.run("draw", what="classes", columns=drawn.PIXELS, **size)
    fit = jobs.run("vi", n_experts=8, n_starts=2, n_passes=1, **size)
    costs = model.Costs(**record["vi"]["costs"])
    fit["predicted_cpu_seconds"] = costs.vi(fit["rows"], fit["columns"], 8, 2, 1)
    return {"fits": [_rounded(fit)]}


def measure_vast_features(
    folder: str, rows: int, seed: int, record: dict[str, Any]
) -> dict[str, Any]:
    """A sweep of the features over many rows, with the constant of the record."""
    size = {"folder": folder, "rows": VAST * rows, "seed": seed}
    jobs.run("draw", what="features", **size)
    sweep = jobs.run("features", n_warmup=1, n_draws=1, **size)
    sweep["predicted_cpu_seconds"] = record["features"]["costs"]["row"] * sweep["rows"]
    return {"fits": [_rounded(sweep)]}


def _rounded(one: dict[str, Any]) -> dict[str, Any]:
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in one.items()
        if name != "job"
    }


MEASURES = {
    "vi": measure_vi,
    "shares": measure_shares,
    "features": measure_features,
    "vast-vi": measure_vast_vi,
    "vast-features": measure_vast_features,
}

if __name__ == "__main__":
    main()
