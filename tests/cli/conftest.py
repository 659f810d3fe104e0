"""The command in this process, with its exit code and what it prints."""

import pytest

import fitted_runs
from compiling import optimised


@pytest.fixture
def fails(command):
    """Run a command that must fail with one sentence; returns the sentence."""

    def run(*arguments):
        code, out, err = command(*arguments)
        *said, sentence = err.splitlines()
        assert code == 2 and out == ""
        assert sentence.startswith("wideangle: ") and sentence.endswith((".", "?"))
        assert all(line.startswith("  ") for line in said)
        return sentence.removeprefix("wideangle: ")

    return run


@pytest.fixture
def quick_compiler():
    """Small fits are nearly all compilation."""
    with optimised(False):
        yield


@pytest.fixture
def people(tmp_path):
    """A file like the one the shared runs were trained on, after a change to its frame."""

    def make(change=None, name="people.csv", n_rows=20, seed=1):
        frame = fitted_runs.people(n_rows, seed)
        frame = frame if change is None else change(frame)
        frame.to_csv(tmp_path / name, index=False)
        return tmp_path / name

    return make
