"""Instructions of the compiled kernel over rows, counted by Valgrind where it is installed."""

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

VALGRIND = shutil.which("valgrind")
PROBE = """
import sys
import numpy as np
from wideangle.latent_features.sampler.assignments import Randomness, sweep_rows
n_rows, fault = map(int, sys.argv[1:])
n_live, generator = 16, np.random.default_rng(0)
vectors = generator.normal(size=(n_live, 8)).astype(np.float32)
used = (generator.random((n_rows, n_live)) < 0.3).astype(np.uint8)
rows = used @ vectors
keys = generator.integers(0, 2**32, (n_live, 2), dtype=np.uint32)
randomness = Randomness(keys, generator.random(n_live), generator.random(n_live))
given = rows @ vectors.T, vectors @ vectors.T, np.linspace(0.5, 0.3, n_live), n_live, 0.25
sweep_rows(randomness, used, *given)
if fault:
    for row in rows:
        np.sum(rows * row)
"""


def instructions(folder, n_rows, *, fault=False, counted=True):
    """Of a whole process; without counting it fills the cache of compiled kernels."""
    # One instruction set, the same inside and outside: the kernels of the cache then serve both.
    settings = {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": "", "NUMBA_NUM_THREADS": "1"}
    settings |= {"NUMBA_CACHE_DIR": str(folder), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    output = f"--callgrind-out-file={folder / 'counts'}"
    counter = [VALGRIND, "--tool=callgrind", output] if counted else []
    command = [*counter, sys.executable, "-c", PROBE, str(n_rows), str(int(fault))]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | settings
    )
    found = re.search(r"Collected : (\d+)", done.stderr)
    return int(found.group(1)) if found else 0


def power(folder, sizes, **options):
    """Exponent of the instructions beyond those of the smallest size, which are mostly imports."""
    base, *counts = (instructions(folder, n, **options) for n in sizes)
    more = [count - base for count in counts]
    steps = [n - sizes[0] for n in sizes[1:]]
    return float(np.diff(np.log(more))[0] / np.diff(np.log(steps))[0])


@pytest.mark.slow
@pytest.mark.skipif(VALGRIND is None, reason="needs valgrind")
def test_instructions_of_a_sweep_over_assignments_are_linear_in_the_rows(tmp_path):
    instructions(tmp_path, 64, counted=False)
    sizes = 64, 10_064, 40_064
    assert abs(power(tmp_path, sizes) - 1.0) < 0.1
    assert power(tmp_path, (64, 2_064, 8_064), fault=True) > 1.3
