"""Ctrl-C in the middle of a fit, by a real signal to a real process."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import fitted_runs
from wideangle.runs.folder import read_run

PATIENCE = 240
# Tests that run in the background have Ctrl-C switched off, and their children inherit that.
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from wideangle.cli import main
main()
"""
COMMANDS = {
    "moe": ("--target", "ill", "--experts", "2", "--chains", "1", "--warmup", "20"),
    "features": (
        "--ignore", "ill", "--prior", "gaussian", "--chains", "2", "--jobs", "2", "--warmup", "5",
    ),
}  # fmt: skip
N_DRAWS = {"moe": 8000, "features": 100}
KEPT = {"moe": "state.safetensors", "features": "chain-*/state.safetensors"}


@pytest.fixture
def begin(tmp_path, compile_quickly):
    """Start a command; programs that one process compiles are there for the next."""
    data = tmp_path / "people.csv"
    fitted_runs.people().to_csv(data, index=False)

    started = []

    def start(kind, name, *more):
        words = ["train", kind, str(data), "-o", str(tmp_path / name), "--no-refit"]
        words += COMMANDS[kind]
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                PROGRAM,
                *words,
                "--draws",
                str(N_DRAWS[kind]),
                *more,
            ],
            # Every process of a user has another seed of hashes, and so another order of sets.
            env=os.environ | {"PYTHONHASHSEED": "3" if "--resume" in more else "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:  # also after a failure
        with process:
            process.kill()


def wait_for(condition, process):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def draws_of(folder):
    run = read_run(folder)
    if run.kind == "moe":
        weights = run.model.posterior_.values["weights"]
        return {"gate": weights.gate, "experts": weights.experts}
    return run.model.trace_.values | {"components": run.model.components_}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["moe", "features"])
def test_a_run_that_was_stopped_goes_on_to_the_same_draws(begin, tmp_path, kind):
    kept = tmp_path / "run.partial" / "checkpoint"
    stopped = begin(kind, "run")
    wait_for(lambda: any(kept.glob(KEPT[kind])), stopped)
    time.sleep(0.1)
    stopped.send_signal(signal.SIGINT)
    out, err = stopped.communicate(timeout=PATIENCE)
    assert (stopped.returncode, out) == (130, ""), err
    last = err.splitlines()[-1]
    assert last.startswith("wideangle: stopped") and "--resume continues" in last
    assert "Traceback" not in err
    assert sorted(os.listdir(tmp_path)) == ["people.csv", "run.partial"]

    resumed = begin(kind, "run", "--resume")
    out, err = resumed.communicate(timeout=PATIENCE)
    assert resumed.returncode == 0, err
    assert sorted(os.listdir(tmp_path)) == ["people.csv", "run"]
    whole = begin(kind, "whole")
    out, err = whole.communicate(timeout=PATIENCE)
    assert whole.returncode == 0, err
    again, expected = draws_of(tmp_path / "run"), draws_of(tmp_path / "whole")
    assert again.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(again[name], values)
