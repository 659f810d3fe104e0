"""Time to import the package."""

from __future__ import annotations

import subprocess
import sys

from wideangle_lab.bench.harness import Settings
from wideangle_lab.bench.record import OURS, Case, Series

PROBE = "import time; t = time.perf_counter(); import {0}; print(time.perf_counter() - t)"


def measure(settings: Settings) -> list[Case]:
    """Import time in new processes, measured alternately."""
    turns = range(1, 2) if settings.quick else range(settings.repeats + 1)
    seconds: dict[str, list[float]] = {OURS: [], "numpyro": [], "jax": []}
    for turn in turns:
        for name, values in seconds.items():
            done = subprocess.run(
                [sys.executable, "-c", PROBE.format(name)],
                capture_output=True,
                text=True,
                check=True,
            )
            if turn:  # turn 0 warms the file cache
                values.append(float(done.stdout))
    return [Case("import", "s", {name: Series(tuple(v)) for name, v in seconds.items()})]
