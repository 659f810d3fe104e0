"""An installation that cannot be written to, for a user without a home: it imports, and it fits."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import wideangle

IMPORT = """
import importlib, os, pkgutil, wideangle
assert wideangle.__file__.startswith(os.getcwd())
for module in pkgutil.walk_packages(wideangle.__path__, "wideangle."):
    if module.name.split(".")[1] not in {"report", "demo", "__main__"}:
        importlib.import_module(module.name)
from wideangle.latent_features.assignments import decide_site
assert decide_site(30.0, 1)
assert type(decide_site._cache).__name__ == "NullCache"
"""

FIT = """
import numpy as np, wideangle
rng = np.random.default_rng(0)
X = rng.integers(0, 2, (60, 2)) @ (3 * np.eye(2, 6)) + 0.3 * rng.normal(size=(60, 6))
short = wideangle.Sampling(n_warmup=4, n_draws=4, n_chains=2, thin=1)
model = wideangle.LatentFeatureModel(inference=short, random_state=0).fit(X)
assert np.isfinite(model.score(X))
"""


@pytest.fixture
def place():
    """A copy of the package in a folder that anyone can read and nobody can write to."""
    folder = Path(tempfile.mkdtemp(prefix="wideangle-read-only-"))
    try:
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(wideangle.__file__).parent, folder / "wideangle", ignore=skipped)
        for one in (folder, *folder.rglob("*")):
            one.chmod(0o555 if one.is_dir() else 0o444)
        yield folder
    finally:
        for one in (folder, *folder.rglob("*")):
            if one.is_dir():
                one.chmod(0o755)
        shutil.rmtree(folder)


# The superuser may write anywhere; a program that it starts after this may not.
OBEY_PERMISSIONS = """
import ctypes, os, sys
if os.geteuid() == 0 and sys.platform == "linux":
    drop_from_bounding_set, dac_override = 24, 1
    ctypes.CDLL(None).prctl(drop_from_bounding_set, dac_override, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-W", "ignore", "-c", sys.argv[1]])
"""


def run(script, place):
    kept = {k: v for k, v in os.environ.items() if k.startswith(("PATH", "LD_", "JAX_"))}
    done = subprocess.run(
        [sys.executable, "-c", OBEY_PERMISSIONS, script],
        cwd=place,
        env=kept | {"PYTHONPATH": str(place), "HOME": str(place / "no-home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_it_imports_and_keeps_no_machine_code(place):
    run(IMPORT, place)


@pytest.mark.slow
def test_it_fits(place):
    run(FIT, place)
