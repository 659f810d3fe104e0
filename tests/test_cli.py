import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from wideangle import __version__


@pytest.fixture
def replace_run(monkeypatch):
    """Put a stand-in for the ``run`` of ``wideangle.demo`` or ``wideangle_lab.bench``."""

    def replace(module, run):
        package = "wideangle_lab" if module == "bench" else "wideangle"
        monkeypatch.setitem(sys.modules, f"{package}.{module}", SimpleNamespace(run=run))

    return replace


def raises(error):
    def run(**_):
        raise error

    return run


def test_version(command):
    assert command("--version") == (0, f"wideangle {__version__}\n", "")


def test_python_m_is_the_same_command(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "wideangle", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"wideangle {__version__}\n"


def test_help_names_the_commands_and_the_extras(command):
    def shown(*arguments):  # whatever the width of the terminal
        return " ".join(command(*arguments, "--help")[1].split())

    order = ("demo", "train", "predict", "report", "reproduce", "datasets", "bench")
    listed = shown().partition("Commands")[2]
    places = [listed.index(f"│ {name} ") for name in order]
    assert places == sorted(places)
    for kind in ("moe", "regression", "features"):
        assert f"Example: wideangle train {kind}" in shown("train", kind)
    assert 'pip install ".[report]"' in shown("demo")
    assert 'pip install -e ".[bench]"' in shown("bench")


BENCH = {"output": None, "quick": False, "seed": 0, "areas": []}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["demo"], {"output": Path("wideangle-demo"), "seed": 0}),
        (["demo", "-o", "a", "--seed", "3"], {"output": Path("a"), "seed": 3}),
        (["bench"], BENCH),
        (
            ["bench", "--quick", "--output", "a.json", "--area", "vMF"],
            BENCH | {"output": Path("a.json"), "quick": True, "areas": ["vMF"]},
        ),
        (
            ["bench", "--area", "defaults", "--only", "iris", "--only", "eeg", "--again"],
            BENCH | {"areas": ["defaults"], "only": ["iris", "eeg"], "again": True},
        ),
    ],
)
def test_options_reach_the_function(command, replace_run, arguments, expected):
    calls = []
    replace_run(arguments[0], lambda **options: calls.append(options))
    assert command(*arguments) == (0, "", "")
    assert calls == [expected]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ValueError("the seed is\n too odd"), "the seed is too odd"),
        (PermissionError(13, "Permission denied", "a.html"), "a.html: Permission denied"),
        (OSError("disk on fire"), "disk on fire"),
        (
            ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib"),
            "matplotlib is not installed; it is part of the extra 'report': "
            'pip install ".[report]" in a checkout of wideangle',
        ),
        (
            ModuleNotFoundError("No module named 'pandas'", name="pandas"),
            "pandas is not installed; it is part of the extra 'tables': "
            'pip install ".[tables]" in a checkout of wideangle',
        ),
        (
            ModuleNotFoundError("No module named 'toml'", name="toml"),
            "toml is not installed",
        ),
        (OSError(28, "No space left on device"), "No space left on device"),
    ],
)
def test_user_errors_are_one_sentence(command, replace_run, error, sentence):
    replace_run("demo", raises(error))
    assert command("demo") == (2, "", f"wideangle: {sentence}\n")


def test_a_negative_seed_is_refused(command):
    code, _, message = command("demo", "--seed", "-1")
    assert code == 2
    assert "--seed" in message


@pytest.mark.parametrize(
    "error", [KeyError("bug"), ModuleNotFoundError("gone", name="wideangle.gone")]
)
def test_our_own_mistakes_are_not_hidden(command, replace_run, error):
    replace_run("demo", raises(error))
    with pytest.raises(type(error)):
        command("demo")
