"""Fits of many shapes in one process, eight at once, and predictions in four threads."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.usefixtures("compile_quickly")
def test_many_fits_leave_nothing_behind():
    places = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "robustness.soak", "--fits", "120", "--seconds", "5"],
        env=os.environ | {"PYTHONPATH": places},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["in_turn"]["fits"] == 120
    assert found["predictions"]["least"] > 0
