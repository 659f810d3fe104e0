"""The rows that a run keeps, as one file of arrays."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scipy.sparse as sp

from wideangle.presentation.records import Sample
from wideangle.storage import StorageError, load_bundle, save_bundle

KIND = "run-sample"


def save_sample(sample: Sample, path: str | os.PathLike[str]) -> None:
    """Write a sample to one file of arrays."""
    arrays = {"rows": sample.rows} | {f"value_{k}": v for k, v in sample.values.items()}
    if sample.y is not None:
        arrays["y"] = sample.y
    if sp.issparse(sample.X):
        X = sp.csr_array(sample.X)
        arrays |= {"data": X.data, "indices": X.indices, "indptr": X.indptr}
    else:
        arrays["X"] = sample.X
    meta = {"n_columns": int(sample.X.shape[1])}
    save_bundle(path, {k: np.asarray(v) for k, v in arrays.items()}, meta, kind=KIND)


def load_sample(path: str | os.PathLike[str]) -> Sample:
    """Read a sample written by :func:`save_sample`."""
    arrays, meta = load_bundle(path, KIND)
    try:
        n = len(arrays["rows"])
        if "X" in arrays:
            X: Any = arrays["X"]
        else:
            parts = arrays["data"], arrays["indices"], arrays["indptr"]
            X = sp.csr_array(parts, shape=(n, int(meta["n_columns"])))
            X.check_format()
        values = {k.removeprefix("value_"): v for k, v in arrays.items() if k.startswith("value_")}
        y = arrays.get("y")
        lengths = {X.shape[0], *(len(v) for v in values.values()), n if y is None else len(y)}
        if lengths != {n} or X.ndim != 2:  # noqa: PLR2004
            raise ValueError("lengths differ")
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise StorageError(f"{path} is not a sample this version can read ({error}).") from error
    return Sample(X, arrays["rows"], y, values)
