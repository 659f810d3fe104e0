"""Every example runs as a script, on less data than its page shows."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# What to run, and how the lines of the table it prints begin
SHORT = {
    "gaussian_mixture.py": (["--data-sets", "2", "--page", "page.md"], ("| spread", "| random")),
    "latent_features.py": (
        ["--rows", "60", "--sweeps", "3", "--priors", "gaussian"],
        ("| features, gaussian", "| PCA", "| factor"),
    ),
    "plots.py": (["--rows", "60", "--sweeps", "5", "--inference", "map"], ("| angle", "| comp")),
    "spherical_mixture.py": (["--rows", "300", "--clusters", "10"], ("| clusters", "| k-means")),
    "mixture_of_experts.py": (["--rows", "150"], ("| experts",)),
    "regression.py": (["--folds", "1", "--experts", "2"], ("| experts",)),
}
N_LINES = {
    "gaussian_mixture.py": 6,
    "latent_features.py": 3,
    "mixture_of_experts.py": 4,
    "plots.py": 6,
    "spherical_mixture.py": 4,
    "regression.py": 3,
}


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_example_runs(script, tmp_path):
    pytest.importorskip("matplotlib")
    options, starts = SHORT[script.name]
    done = subprocess.run(
        [sys.executable, str(script), "--output", "picture.png", *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
    table = [line for line in done.stdout.splitlines() if line.startswith(starts)]
    assert len(table) == N_LINES[script.name]
    if "--page" in options:
        assert table[0] in (tmp_path / "page.md").read_text(encoding="utf-8")
