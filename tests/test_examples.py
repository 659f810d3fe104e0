"""Every example runs as a script, on less data than its page shows."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHORT = {"gaussian_mixture.py": ["--data-sets", "2", "--page", "page.md"]}


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_example_runs(script, tmp_path):
    pytest.importorskip("matplotlib")
    done = subprocess.run(
        [sys.executable, str(script), "--output", "picture.png", *SHORT[script.name]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    table = [line for line in done.stdout.splitlines() if line.startswith(("| spread", "| random"))]
    assert len(table) == 6
    assert table[0] in (tmp_path / "page.md").read_text(encoding="utf-8")
