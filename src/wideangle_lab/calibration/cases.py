"""Every case by name: its run, its size, and its record."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from wideangle_lab import machine
from wideangle_lab.calibration import clusters, experts, features, variational
from wideangle_lab.calibration.verdicts import Ranked, Restarted, to_json

FOLDER = Path("results/calibration")


class Size(NamedTuple):
    """Simulated data sets for the ranks, and exact restarts."""

    n_sets: int
    n_starts: int


FULL = {
    "experts": Size(512, 8000),
    "features": Size(320, 4000),
    "clusters": Size(320, 4000),
    "variational": Size(96, 0),
}
QUICK = {
    "experts": Size(64, 1000),
    "features": Size(24, 400),
    "clusters": Size(32, 400),
    "variational": Size(6, 0),
}
AREAS = {
    "experts": experts,
    "features": features,
    "clusters": clusters,
    "variational": variational,
}
CASES: dict[str, Any] = {case.name: case for module in AREAS.values() for case in module.CASES}


def area_of(name: str) -> str:
    """The first word of a name: one of :data:`AREAS`."""
    return name.partition("/")[0]


def measure(
    name: str, *, quick: bool, seed: int, n_sets: int | None = None, n_starts: int | None = None
) -> dict[str, Any]:
    """Run one case; the record has everything needed to repeat it.

    ``n_sets`` and ``n_starts`` override the usual size.
    """
    began, area = time.monotonic(), area_of(name)
    size = (QUICK if quick else FULL)[area]
    size = Size(n_sets or size.n_sets, n_starts or size.n_starts)
    found: dict[str, Ranked | Restarted] = {}
    module, case = AREAS[area], CASES[name]
    if size.n_starts:
        found["restarts"] = module.restart(case, n_starts=size.n_starts, seed=seed + 1)
    found["ranks"] = module.calibrate(case, n_sets=size.n_sets, seed=seed)
    return {
        "name": name,
        "settings": {"quick": quick, "seed": seed, **size._asdict()},
        "exact": area != "variational",
        **{kind: to_json(one) for kind, one in found.items()},
        "seconds": round(time.monotonic() - began, 1),
        **machine.describe(),
    }


def path_of(name: str, folder: Path) -> Path:
    """Path of the record of a case."""
    return folder / (name.replace("/", "-").replace(", ", "-").replace(" ", "-") + ".json")


def write(record: dict[str, Any], folder: Path) -> Path:
    """Save a record."""
    path = path_of(record["name"], folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return path


def read_all(folder: Path) -> list[dict[str, Any]]:
    """Existing records of the known cases, in their order."""
    paths = [path_of(name, folder) for name in CASES]
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]


def sentence(record: dict[str, Any]) -> str:
    """The result on one line."""
    ranks = record["ranks"]
    words = [record["name"], f"p = {ranks['p_value']:.3g} ({ranks['worst']})"]
    words.append(f"autocorrelation {ranks['autocorrelation']:.2f}")
    if restarts := record.get("restarts"):
        worst = restarts["worst"]
        words.append(f"max |z| = {abs(restarts['z'][worst]):.2f} ({worst})")
    if "bound_z" in ranks["notes"]:
        words.append(f"bound below the evidence by {ranks['notes']['bound_z']:.1f} errors or more")
    return "; ".join([*words, f"{record['seconds']:.0f} s"])
