"""Processes that are killed lose nothing; the same trials notice a program that is careless."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compile_quickly")]


def kill(*arguments, out):
    """In a process of its own: one that has started JAX must not fork."""
    places = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    # A process that is killed may leave half a compiled program behind.
    programs = {"JAX_COMPILATION_CACHE_DIR": str(out.parent / "programs")}
    return subprocess.run(
        [sys.executable, "-m", "robustness.killing", *arguments, "--out", str(out)],
        env=os.environ | {"PYTHONPATH": places, "OMP_NUM_THREADS": "1"} | programs,
        capture_output=True,
        text=True,
        check=False,
    )


def test_killed_at_random_moments(tmp_path):
    done = kill("--times", "30", out=tmp_path / "kill.json")
    assert done.returncode == 0, done.stdout + done.stderr
    table = json.loads((tmp_path / "kill.json").read_text())["summary"]
    assert sum(row["trials"] for row in table) == 30
    assert len(table) == 23
    # Moments are drawn from the time of an earlier fit, and some fits end before theirs.
    assert sum(row["killed"] for row in table) >= 15
    assert not any(row["wrong"] for row in table)


def test_files_written_in_place_are_noticed(tmp_path):
    some = "--phases", "save", "--estimators", "mcmc", "features", "--careless"
    done = kill("--times", "40", *some, out=tmp_path / "kill.json")
    assert done.returncode == 1, done.stdout + done.stderr
    table = json.loads((tmp_path / "kill.json").read_text())["summary"]
    assert sum(row["wrong"] for row in table) > 0
