"""Instructions of the compiled kernel over rows, counted by Valgrind where it is installed."""

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

TOOLS = shutil.which("valgrind"), shutil.which("callgrind_control")
# Only the sweeps are counted: to count imports would take minutes.
PROBE = """
import os, subprocess, sys
import numpy as np
from wideangle.latent_features.assignments import Randomness, sweep_rows
n_live, generator = 16, np.random.default_rng(0)
vectors = generator.normal(size=(n_live, 8)).astype(np.float32)

def control(*words):
    if "--count" in sys.argv:
        subprocess.run(["callgrind_control", *words, str(os.getpid())], check=True)

def sweep(n_rows, fault):
    used = (generator.random((n_rows, n_live)) < 0.3).astype(np.uint8)
    rows = used @ vectors
    keys = generator.integers(0, 2**32, (n_live, 2), dtype=np.uint32)
    randomness = Randomness(keys, generator.random(n_live), generator.random(n_live))
    given = rows @ vectors.T, vectors @ vectors.T, np.linspace(0.5, 0.3, n_live), n_live, 0.25
    control("--zero")
    control("--instr=on")
    sweep_rows(randomness, used, *given)
    if fault:
        for row in rows:
            np.sum(rows * row)
    control("--instr=off")
    control("--dump")

sweep(64, fault=False)  # compiles
for size in SIZES:
    for fault in (False, True):
        sweep(size, fault)
"""
SIZES = 64, 564, 2064


def instructions(folder):
    """Of one sweep for each size, without and with a fault."""
    # One instruction set, the same inside and outside: the kernels of the cache then serve both.
    settings = {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": "", "NUMBA_NUM_THREADS": "1"}
    settings |= {"NUMBA_CACHE_DIR": str(folder / "kernels"), "OMP_NUM_THREADS": "1"}
    probe = [sys.executable, "-c", PROBE.replace("SIZES", str(SIZES))]
    counter = [TOOLS[0], "--tool=callgrind", "--instr-atstart=no"]
    counter += [f"--callgrind-out-file={folder / 'counts'}"]
    for command in (probe, [*counter, *probe, "--count"]):
        subprocess.run(command, capture_output=True, check=True, env=os.environ | settings)
    counts = [
        int(re.search(r"^totals: (\d+)", (folder / f"counts.{n}").read_text(), re.M)[1])
        for n in range(2, 2 + 2 * len(SIZES))  # the first is of the sweep that compiles
    ]
    return np.array(counts).reshape(len(SIZES), 2)


@pytest.mark.slow
@pytest.mark.skipif(None in TOOLS, reason="needs valgrind")
def test_instructions_of_a_sweep_over_assignments_are_linear_in_the_rows(tmp_path):
    more = np.diff(instructions(tmp_path), axis=0)  # beyond what every sweep costs
    powers = np.log(np.cumsum(more, axis=0)[1] / more[0]) / np.log(2000 / 500)
    assert abs(powers[0] - 1.0) < 0.1
    assert powers[1] > 1.3
