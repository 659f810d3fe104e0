"""The commands of the page about the command line, run in their order; their output is theirs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps(text):
    """Python blocks, and commands with the lines that follow them."""
    for language, block in FENCE.findall(text):
        if language == "python":
            yield "python", block, []
        elif language == "console":
            command, lines = None, []
            for line in [*block.splitlines(), "$ "]:
                if line.startswith("$ "):
                    if command is not None:
                        yield "sh", command, lines
                    command, lines = line[2:], []
                else:
                    lines.append(line)


def form(line):
    """A line without what differs between machines: numbers, and which of them mixes worst."""
    line = re.sub(r"(at most \S+) \([a-z ]+\)", r"\1", line.strip())
    return re.sub(r"-?\d[\d.,e-]*", "#", line)


@pytest.mark.slow
def test_the_tour(tmp_path):
    programs = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    before, n_run = "", 0
    for language, code, expected in steps(PAGE.read_text(encoding="utf-8")):
        if not before and language == "sh":
            continue  # the first commands are for a reader's own file
        command = code
        if language == "python":
            before += code  # later blocks use what earlier ones imported
            (tmp_path / "blocks.py").write_text(before)
            command = "python blocks.py"
        done = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        printed = done.stdout + done.stderr
        refused = any(line.startswith("wideangle: ") for line in expected)
        assert done.returncode == (2 if refused else 0), printed
        found = {form(line) for line in printed.splitlines()}
        assert {form(line) for line in expected} <= found, printed
        n_run += 1
    assert n_run >= 10
