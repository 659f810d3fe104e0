import subprocess
import sys
import time

import pytest

from wideangle_lab.originals import lock
from wideangle_lab.originals.lock import BusyError, only_one

HOLD = """
import sys, time
from pathlib import Path
from wideangle_lab.originals.lock import only_one
with only_one(Path(sys.argv[1]), wait=0, note=print):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock for some seconds."""
    running = []

    def start(seconds):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(tmp_path / "x.lock"), str(seconds)],
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        assert process.stdout.readline() == "held\n"
        return process

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_second_process_waits_and_is_told_so(tmp_path, holder, monkeypatch):
    monkeypatch.setattr(lock, "POLL", 0.02)
    notes = []
    holder(0.5)
    with only_one(tmp_path / "x.lock", wait=30.0, note=notes.append):
        pass
    assert len(notes) == 1
    assert "waiting" in notes[0]


def test_waiting_has_an_end(tmp_path, holder):
    holder(30)
    began = time.monotonic()
    with (
        pytest.raises(BusyError, match="still held"),
        only_one(tmp_path / "x.lock", wait=0.1, note=lambda _: None),
    ):
        pytest.fail("entered a lock that another process holds")
    assert time.monotonic() - began < 5


def test_a_process_that_is_killed_leaves_no_lock(tmp_path, holder):
    process = holder(30)
    process.kill()
    process.wait()
    with only_one(tmp_path / "x.lock", wait=5.0, note=lambda _: None):
        pass


def test_an_error_inside_releases_it(tmp_path):
    for _ in range(2):
        with (
            pytest.raises(KeyError),
            only_one(tmp_path / "x.lock", wait=0.0, note=lambda _: pytest.fail("held")),
        ):
            raise KeyError
