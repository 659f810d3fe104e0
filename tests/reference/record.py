"""Every sampler and guide against the reference posteriors on this device, as a record.

``python -m reference.record --out results/reference/h200.json`` (with ``tests`` on the path) writes
the record after every case; cases that it has are kept.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

from reference.compare import reference
from reference.fits import GUIDES, SAMPLERS, fitted, mean_predictions, numbers_of, verdict
from wideangle_lab.machine import describe


def measure(case: str) -> dict[str, Any]:
    """How far one sampler or guide is off."""
    name, _ = case.split()
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of chains that are short on purpose
        model = fitted(name, {**SAMPLERS, **GUIDES}[case])
    found: dict[str, Any] = {"seconds": round(time.perf_counter() - began, 1)}
    numbers = numbers_of(name, model)
    if case in GUIDES:
        away = mean_predictions(numbers) - mean_predictions(reference(name))
        return found | {"prediction_off": float(np.abs(away).max())}
    worst, farthest, p_value = verdict(numbers, reference(name))
    return found | {"worst": worst, "farthest": farthest, "p_value": p_value}


def main() -> None:
    """Measure what the record lacks."""
    parser = argparse.ArgumentParser(description="samplers and guides against references")
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    record: dict[str, Any] = {"cases": {}}
    if out.exists():
        record = json.loads(out.read_text(encoding="utf-8"))
    record |= describe() | {"device": str(jax.devices()[0].device_kind)}
    out.parent.mkdir(parents=True, exist_ok=True)
    for case in [*GUIDES, *SAMPLERS]:
        if case not in record["cases"]:
            record["cases"][case] = measure(case)
            print(case, record["cases"][case], flush=True)
            out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
