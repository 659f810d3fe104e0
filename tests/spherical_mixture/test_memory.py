"""Rows on disk: memory does not grow with their number."""

import subprocess
import sys

import pytest

from wideangle_lab.bench.clusters.disk import write_rows

FIT = """
import resource, sys
from wideangle import Maximise, SphericalMixture
from wideangle.streaming import NpyRows
SphericalMixture(
    4, inference=Maximise(n_starts=1, n_passes=2), verbose=False, random_state=0
).fit_stream(NpyRows(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path):
    def peak(n_rows):
        path = tmp_path / f"{n_rows}.npy"
        write_rows(path, 0, n_rows, 64, 4)
        done = subprocess.run(
            [sys.executable, "-c", FIT, str(path)], capture_output=True, text=True, check=True
        )
        return float(done.stdout)

    # 220 MB more of rows: a mapped or copied file would show.
    assert peak(1_000_000) < peak(100_000) + 60
