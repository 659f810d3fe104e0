"""JSON as its standard has it: finite numbers, and every name once."""

from __future__ import annotations

import json
import math
from typing import Any

from wideangle.storage.files import StorageError


def to_json(meta: dict[str, Any]) -> str:
    """``meta`` as text, the same for equal contents."""
    try:
        return json.dumps(meta, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise StorageError(
            f"meta is not plain JSON with finite numbers ({error}): put numbers that may be NaN or "
            "infinite into an array."
        ) from error


def from_json(text: str) -> Any:
    """Contents of a text; ValueError or RecursionError if it is not such JSON."""
    return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_finite)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name occurs twice")
    return result


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is not a finite number")
