"""The commands of the page about the command line, run in their order; their output is theirs.

``python tests/cli/test_tour.py`` runs them and writes what they print to the page.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
FENCE = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def form(text):
    """Lines without what differs between machines: numbers, and which of them mixes worst."""
    text = re.sub(r"(at most \S+) \([^)]+\)", r"\1", re.sub(r"[ \[\]]+", " ", text))
    return [re.sub(r"-?\d[\d.,e-]*", "#", line.strip()) for line in text.splitlines()]


def steps(text):
    """Python blocks, and commands with the lines that follow them."""
    for language, block in FENCE.findall(text):
        if language == "python":
            yield "python", block, ""
        else:
            for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, _, printed = step.partition("\n")
                yield "sh", command, printed


def taken(text, folder):
    """Run the steps after the first Python block: command, output on the page, what ran."""
    programs = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    before = ""
    for language, code, expected in steps(text):
        if not before and language == "sh":
            continue  # the first commands are for a reader's own file
        command = code
        if language == "python":
            before += code  # later blocks use what earlier ones imported
            (folder / "blocks.py").write_text(before)
            command = "python blocks.py"
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        yield command, expected, done


@pytest.mark.slow
def test_the_tour(tmp_path):
    n_run = 0
    for _, expected, done in taken(PAGE.read_text(encoding="utf-8"), tmp_path):
        refused = expected.startswith("wideangle: ")
        assert done.returncode == (2 if refused else 0), done.stdout
        assert set(form(expected)) <= set(form(done.stdout)), done.stdout
        n_run += 1
    assert n_run >= 10


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for command, expected, done in taken(page, Path(folder)):
            page = page.replace(f"$ {command}\n{expected}", f"$ {command}\n{done.stdout}")
    PAGE.write_text(page, encoding="utf-8")
