"""What the files of all fitted models share: reading one, and refusing what does not fit."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from wideangle.storage.bundle import load_bundle
from wideangle.storage.files import StorageError

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


def restore_names(model: Any, names: Any) -> None:
    """Names of columns, as the tables had them that the model was fitted to."""
    if names is None:
        return
    strings = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if not strings or len(names) != model.n_features_in_:
        raise ValueError(f"its names are not those of {model.n_features_in_} columns")
    model.feature_names_in_ = np.array(names, dtype=object)


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


def plain(value: Any) -> Any:
    """As JSON can hold it; generators of random numbers and paths are left out."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (np.integer, np.floating, np.bool_)):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else None
