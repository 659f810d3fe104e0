"""The files of the package that one small fit goes through, in order of first entry.

``python tests/walk.py features`` or ``experts`` prints them. A process of its own has compiled
nothing yet: a function that JAX has traced before would not be entered again.
"""

from __future__ import annotations

import os
import pkgutil
import sys
import threading
import warnings
from collections.abc import Callable
from importlib import import_module
from inspect import CO_OPTIMIZED
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import wideangle

PACKAGE = Path(wideangle.__file__).parent


def files_entered(run: Callable[[], Any]) -> list[str]:
    """Files of the package whose functions are called, relative to it, by first entry."""
    entered: dict[Any, None] = {}

    def note(frame: Any, event: str, _: Any) -> None:
        entered.setdefault(frame.f_code)

    # A trace function is told of calls alone if it does not ask for the lines.
    threading.settrace(note)
    sys.settrace(note)
    try:
        run()
    finally:
        sys.settrace(None)
        threading.settrace(None)  # pyright: ignore[reportArgumentType]
    root = f"{PACKAGE}{os.sep}"
    seen = dict.fromkeys(
        code.co_filename
        for code in entered
        # Bodies of modules and classes are not functions.
        if code.co_flags & CO_OPTIMIZED and code.co_filename.startswith(root)
    )
    return [Path(name).relative_to(PACKAGE).as_posix() for name in seen]


def changes_of_folder(files: list[str]) -> int:
    """How often the next file is in another folder than the one before."""
    return sum(Path(a).parent != Path(b).parent for a, b in pairwise(files))


def import_all(package: str) -> None:
    """What is imported on use is imported before: a walk is made of calls."""
    for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
        import_module(module.name)


def features() -> Callable[[], Any]:
    """A fit of latent features to a small dense array."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (40, 2)) @ (3 * np.eye(2, 6)) + 0.3 * rng.normal(size=(40, 6))
    short = wideangle.Sampling(n_warmup=2, n_draws=2, n_chains=2, thin=1)
    # One job: threads would enter files in an order of chance.
    model = wideangle.LatentFeatureModel(inference=short, n_jobs=1, verbose=False, random_state=0)
    return lambda: model.fit(X)


def experts() -> Callable[[], Any]:
    """A fit of a mixture of experts to a small dense array."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = X[:, 0] * X[:, 1] > 0
    short = wideangle.Sampling(n_warmup=2, n_draws=2, n_chains=2)
    model = wideangle.MixtureOfExpertsClassifier(2, inference=short, verbose=False, random_state=0)
    return lambda: model.fit(X, y)


FITS = {
    "features": ("wideangle.latent_features", features),
    "experts": ("wideangle.mixture_of_experts", experts),
}

if __name__ == "__main__":
    family, fit = FITS[sys.argv[1]]
    for each in (family, "wideangle.infer", "wideangle.priors", "wideangle.sphere"):
        import_all(each)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # chains this short are called short
        print("\n".join(files_entered(fit())))
