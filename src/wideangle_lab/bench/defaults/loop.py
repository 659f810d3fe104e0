"""The loop over cells: each runs in a new process and is saved when it finishes.

A cell is a table and a seed; its parts are our fit and, for tables with classes, our fits by the
other inferences and the rivals. Cells in the record are not measured again, so an
interrupted run can be resumed. If a process fails or does not end, the record keeps the error, and
the next run tries again.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from wideangle_lab.bench.defaults.tables import TABLES
from wideangle_lab.bench.regression.tables import QUANTITIES
from wideangle_lab.paper.records import write_json

FIT, INFERENCES, RIVALS = "fit", "inferences", "rivals"
OTHERS = "map", "vi"
"""The other inferences of the classifier."""
LIMIT = 1800.0
"""Timeout of a process, in seconds."""
QUICK = {"defaults": ("iris",), "regression": ("mcycle",)}
PANELS = {"defaults": TABLES, "regression": QUANTITIES}
EVERY = TABLES | QUANTITIES
COMMAND = (sys.executable, "-m", "wideangle_lab.bench.defaults.cell")
ERROR_LINES = 3


def run(
    output: Path,
    *,
    panel: str = "defaults",
    quick: bool,
    seed: int,
    only: Sequence[str] = (),
    again: bool = False,
    part: str | None = None,
    jobs: int = 1,
) -> dict[str, Any]:
    """Measure the cells that the record lacks, print a line for each, and return the record.

    Parameters
    ----------
    output
        The record; requested cells that it already has are kept.
    panel
        ``"defaults"`` or ``"regression"``.
    quick
        Only one seed of one table.
    seed
        The first seed.
    only
        Names of tables; all by default.
    again
        Measure our fits again, not the rivals.
    part
        Only our fits (``"fit"``), those by the other inferences (``"inferences"``), or the rivals.
    jobs
        Processes at once. With more than one, times are not reliable and the page omits them.
    """
    tables = PANELS[panel]
    if unknown := [name for name in only if name not in tables]:
        raise ValueError(f"no table {unknown[0]!r}; the tables are {', '.join(tables)}.")
    record: dict[str, Any] = {"name": panel, "cells": {}}
    if output.exists():
        record = json.loads(output.read_text(encoding="utf-8"))
    skipped: set[str] = set()
    lock = threading.Lock()

    def measure(name: str, number: int, one: str) -> None:
        cell = record["cells"].get(f"{name}/{number}", {})
        done = one in cell and "error" not in cell[one]
        if name in skipped or part not in (None, one) or (done and not (again and one != RIVALS)):
            return
        began = time.perf_counter()
        found = in_own_process(one, name, number, once=jobs > 1)
        seconds = time.perf_counter() - began
        with lock:
            print(f"{name}/{number} {one}: {seconds:.0f} s, {told(found)}", flush=True)
            if "skipped" in found:
                skipped.add(name)
                return
            if jobs > 1 and "stamp" in found:
                found["stamp"]["side_by_side"] = jobs
            record["cells"].setdefault(f"{name}/{number}", {})[one] = found
            write_json(output, record)

    chosen = parts(only or (QUICK[panel] if quick else tuple(tables)), quick, seed)
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda one: measure(*one), chosen))
    print(f"Record: {output}")
    return record


def parts(names: Sequence[str], quick: bool, seed: int) -> Iterator[tuple[str, int, str]]:
    """Table, seed and part, in the order of measurement."""
    for name in names:
        table = EVERY[name]
        for number in range(seed, seed + (1 if quick else table.n_seeds)):
            yield name, number, FIT
            if table.compared and not table.quantity:
                yield name, number, INFERENCES
            if table.compared:
                yield name, number, RIVALS


def in_own_process(part: str, name: str, seed: int, *, once: bool = False) -> dict[str, Any]:
    """Output of the process, or an error; it starts without compiled programs."""
    words = [part, name, str(seed), *["once"] * once]
    with tempfile.TemporaryDirectory() as folder:
        none = {"JAX_ENABLE_COMPILATION_CACHE": "false", "NUMBA_CACHE_DIR": folder}
        try:
            done = subprocess.run(
                [*COMMAND, *words],
                capture_output=True,
                text=True,
                check=False,
                timeout=LIMIT,
                env=os.environ | none,
            )
        except subprocess.TimeoutExpired:
            return {"error": f"not done after {LIMIT:g} s"}
    if done.returncode:
        last = done.stderr.strip().splitlines()[-ERROR_LINES:]
        return {"error": " ".join([f"exit status {done.returncode}.", *last])}
    return json.loads(done.stdout.strip().splitlines()[-1])


def told(found: dict[str, Any]) -> str:
    """A short summary of a part."""
    for name in ("error", "skipped"):
        if name in found:
            return f"{name}: {found[name]}"
    if RIVALS in found:
        losses = {name: loss_of(one) for name, one in found[RIVALS].items()}
        best = min(losses, key=lambda name: losses[name])
        return f"lowest log-loss {losses[best]:.4f} ({best})"
    if "map" in found:
        return ", ".join(f"{name} {found[name]['log_loss']:.4f}" for name in OTHERS)
    said = f"R-hat {found['rhat']:.3f}, {len(found['warnings'])} warnings"
    compared = "log_loss" in found or "log_density" in found
    return said + (f", log-loss {loss_of(found):.4f}" if compared else "")


def loss_of(scores: Mapping[str, Any]) -> float:
    """Minus the mean log probability, or log density, of the truth."""
    return scores["log_loss"] if "log_loss" in scores else -scores["log_density"]
