"""A reader who follows one fit does not have to go far: few files, few changes of folder."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from walk import changes_of_folder, files_entered
from wideangle.checks import check_count
from wideangle.sphere.geometry import safe_norm

# At most so many files, changes of folder in order of first entry, and files of the family itself:
# the others are mathematics (sphere, priors, infer) and what every family stands on.
LIMITS = {"features": (32, 13, 17), "experts": (28, 12, 12)}
FOLDERS = {"features": "latent_features/", "experts": "mixture_of_experts/"}


@pytest.mark.slow
@pytest.mark.parametrize("family", LIMITS)
def test_one_fit_is_a_short_walk(family, compile_quickly):
    script = Path(__file__).with_name("walk.py")
    run = subprocess.run(
        [sys.executable, script, family], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    files = run.stdout.split()
    changes = changes_of_folder(files)
    walk = f"{len(files)} files, {changes} changes of folder:\n{run.stdout}"
    of_family = sum(file.startswith(FOLDERS[family]) for file in files)
    assert of_family > 0
    found = len(files), changes, of_family
    assert all(one <= limit for one, limit in zip(found, LIMITS[family], strict=True)), walk


def test_a_walk_counts_functions_of_the_package_once_and_in_order():
    def visit():
        for _ in range(2):
            check_count("one", 1, 1)
            safe_norm(np.ones(3))

    assert files_entered(visit) == ["checks.py", "sphere/geometry.py"]


def test_changes_of_folder():
    assert changes_of_folder([]) == 0
    assert changes_of_folder(["a/x.py", "a/y.py", "b/z.py", "a/w.py", "v.py"]) == 3
