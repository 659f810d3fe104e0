"""What the files of all fitted models share: reading one, and refusing what does not fit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from wideangle.checks import check_count
from wideangle.settings import KINDS, Settings, as_plain, from_plain
from wideangle.storage.bundle import load_bundle
from wideangle.storage.files import StorageError, as_finite

LARGEST, LARGEST_SHIFT = 1e38, 1.8e308
"""Size of numbers in the units of models, and in those of the data."""


def read_model(
    cls: type,
    path: str | os.PathLike[str],
    kind: str,
    restore: Callable[[type, dict[str, np.ndarray], dict[str, Any]], Any],
) -> Any:
    """A model of one kind from its file; whatever does not fit together is a clear error."""
    arrays, meta = load_bundle(path, kind)
    try:
        model = restore(cls, arrays, meta)
        model.summary()  # reads what only people look at: better now than when they do
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise StorageError(
            f"{os.fspath(path)} is not a model this version can read ({error}): save it again."
        ) from error
    return model


def described(model: Any, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Settings and columns of a fitted model as plain JSON; ``settings`` replace its own.

    Without the number of threads, which belongs to the machine: no result depends on it.
    """
    params = {**model.get_params(deep=False), **(settings or {})}
    params.pop("n_jobs", None)
    for name, value in params.items():
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Settings) and type(one) not in KINDS.values():
                refuse_class(name, one)
    names = getattr(model, "feature_names_in_", None)
    return {
        "settings": {name: as_finite(as_plain(value)) for name, value in params.items()},
        "n_features": model.n_features_in_,
        "feature_names": None if names is None else [str(name) for name in names],
    }


def refuse_class(name: str, value: Any) -> NoReturn:
    """Report that a file cannot hold an object of the user's own class, and what to do."""
    raise ValueError(
        f"{name}: {type(value).__name__} is a class of your own, and a saved model holds no code; "
        "pickle the model instead (where it is loaded the class must be importable), or use a "
        "name or an object of wideangle, such as MutualAngularPrior()."
    )


def remade(cls: Any, meta: Mapping[str, Any], settings: Mapping[str, Any] | None = None) -> Any:
    """An estimator with the settings and columns that :func:`described` saw."""
    params = {name: from_plain(value) for name, value in meta["settings"].items()}
    model = cls(**(params | dict(settings or {})))
    model._validate_params()
    n, names = check_count("n_features", meta["n_features"], 1), meta["feature_names"]
    model.n_features_in_ = n
    if names is not None:
        strings = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if not strings or len(names) != n:
            raise ValueError(f"its names are not those of {n} columns")
        model.feature_names_in_ = np.array(names, dtype=object)
    return model


def part_of(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """The arrays whose names begin like this, by the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}


def check_numbers(arrays: dict[str, np.ndarray]) -> None:
    """Refuse numbers that would turn every prediction into NaN."""
    for name, array in arrays.items():
        if name == "start_objectives":  # a search that found nothing has none
            continue
        if array.dtype.kind == "f" and array.dtype.itemsize < 4:  # noqa: PLR2004
            raise ValueError(f"array {name!r} has type {array.dtype}, in which nothing is computed")
        most = LARGEST_SHIFT if name in ("shift", "scale") else LARGEST
        if array.dtype.kind == "f" and not float(np.max(np.abs(array), initial=0.0)) <= most:
            raise ValueError(f"array {name!r} holds a number that is not finite or too large")
