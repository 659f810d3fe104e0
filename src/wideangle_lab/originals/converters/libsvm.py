"""Adult-9: LIBSVM's ``a9a`` and ``a9a.t``, one ``label index:value ...`` line for each row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from wideangle_lab.originals.converters import Arrays, ConversionError

FILES, COLUMNS = {"train": "a9a", "test": "a9a.t"}, 123


def convert(folder: Path) -> Arrays:
    """``train_*`` and ``test_*`` (CSR parts), ``y_train``, ``y_test``: 1 is income over 50K."""
    read = {part: read_libsvm(folder / file, COLUMNS) for part, file in FILES.items()}
    arrays: Arrays = {f"y_{part}": y for part, (_, y) in read.items()}
    for part, (X, _) in read.items():
        if set(np.unique(X.data)) - {1.0}:
            raise ConversionError(f"{FILES[part]} has other values than 0 and 1: not LIBSVM's a9a.")
        arrays |= {
            f"{part}_data": X.data.astype(np.uint8),
            f"{part}_indices": X.indices.astype(np.int32),
            f"{part}_indptr": X.indptr.astype(np.int32),
            f"{part}_shape": np.array(X.shape),
        }
    return arrays


def read_libsvm(path: Path, n_columns: int) -> tuple[Any, np.ndarray]:
    """Rows without explicit zeros, and their classes -1 and +1 as 0 and 1."""
    from sklearn.datasets import load_svmlight_file

    if not path.is_file():
        raise ConversionError(f"{path} is missing.")
    try:
        X, labels = load_svmlight_file(str(path), n_features=n_columns, zero_based=False)[:2]
    except ValueError as error:
        raise ConversionError(f"{path.name} is not a LIBSVM file of {n_columns} columns: {error}.") from error  # fmt: skip  # noqa: E501
    if set(np.unique(labels)) != {-1.0, 1.0}:
        raise ConversionError(f"{path.name} has other classes than -1 and +1.")
    rows = sp.csr_array(X)
    rows.eliminate_zeros()  # one public copy of a9a.t has an explicit zero
    rows.sort_indices()
    return rows, (labels > 0).astype(np.int8)
