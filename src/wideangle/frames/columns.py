"""One column of a table: what it holds, as numbers or as words."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np

Content: TypeAlias = Literal["number", "date", "word", "object"]
_SECONDS_PER_DAY = 86_400


_INFERRED: dict[str, Content] = {
    "integer": "number",
    "floating": "number",
    "mixed-integer-float": "number",
    "boolean": "number",
    "decimal": "number",
    "empty": "number",
    "date": "date",
    "datetime": "date",
    "datetime64": "date",
    "string": "word",
    "mixed-integer": "word",
}
"""What pandas calls the objects of a column."""
TRUTH = {"True": 1.0, "False": 0.0, "true": 1.0, "false": 0.0}


def content_of(column: Any) -> Content:
    """Whether a column holds numbers (or true and false), dates, words, or neither."""
    from pandas import CategoricalDtype
    from pandas.api import types

    dtype: Any = column.dtype
    if isinstance(dtype, CategoricalDtype):
        dtype = dtype.categories.dtype
    if types.is_object_dtype(dtype):
        return _INFERRED.get(types.infer_dtype(column.astype(object), skipna=True), "object")
    if types.is_datetime64_any_dtype(dtype):
        return "date"
    if types.is_complex_dtype(dtype) or types.is_timedelta64_dtype(dtype):
        return "object"
    numeric = types.is_bool_dtype(dtype) or types.is_numeric_dtype(dtype)
    return "number" if numeric else "word"


def as_numbers(column: Any) -> np.ndarray:
    """Values as floats; what is missing, infinite or no number is NaN."""
    import pandas as pd

    content = content_of(column)
    if content == "object":
        return np.full(len(column), np.nan)
    if content == "date":
        days = pd.to_datetime(column, utc=True).dt.tz_localize(None).astype("datetime64[s]")
        counts = days.astype("int64").to_numpy(np.float64) / _SECONDS_PER_DAY
        return np.where(column.isna(), np.nan, counts)
    if content == "word":
        numbers: Any = pd.to_numeric(column.astype(object), errors="coerce")
        column = column.map(TRUTH).astype("float64").fillna(numbers)
    elif isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(object)
    values = column.to_numpy(np.float64, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


def as_words(column: Any) -> np.ndarray:
    """Values as words without spaces around them; None where missing.

    A whole number is written as such, whether or not missing values made floats of the column.
    """
    missing = column.isna().to_numpy(bool)
    words = np.array([_word(value) for value in column.astype(object)], dtype=object)
    words[missing] = None
    return words


def _word(value: Any) -> str:
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def is_missing(column: Any) -> np.ndarray:
    """Where a column has no value; infinity counts as none among numbers."""
    missing = column.isna().to_numpy(bool)
    if content_of(column) == "number":
        missing = missing | np.isnan(as_numbers(column))
    return missing
