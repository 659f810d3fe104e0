"""Files written whole or not at all, and JSON as its standard has it: finite, every name once."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from wideangle.checks import check_path

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # constants of Linux

PathLike: TypeAlias = str | os.PathLike[str]


class StorageError(ValueError):
    """A file cannot be saved or loaded; the message gives the reason and what to do."""


def write(path: PathLike, parts: Iterable[Any]) -> None:
    """Write parts to a file, all or nothing."""
    check_path("path", path)
    advice = "check the path, the permissions and the free space"
    try:
        target = Path(os.path.realpath(path))  # a link stays a link
        if target.exists() and not target.is_file():
            raise OSError("it exists and is no file")  # a folder, or a device such as /dev/null
        temporary = target.with_name(f".wideangle-{secrets.token_hex(8)}.tmp")
        try:
            with open(temporary, "xb") as file:
                for part in parts:
                    file.write(part)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StorageError(f"cannot write {path}: {reason}; {advice}.") from error
    with contextlib.suppress(OSError):  # not every system lets a folder be flushed
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def exchange(one: PathLike, other: PathLike) -> bool:
    """Swap two files or folders in one step; False, and nothing done, where that is not possible.

    A folder cannot be moved onto another one. With two moves there is a moment with none of them
    in its place, and a process that is killed just then leaves it so.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another system than Linux
        call = ctypes.CDLL(None, use_errno=True).renameat2
        return (
            call(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0
        )
    return False


def to_json(meta: dict[str, Any]) -> str:
    """``meta`` as text, the same for equal contents."""
    try:
        return json.dumps(meta, allow_nan=False, sort_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise StorageError(
            f"meta is not plain JSON with finite numbers ({error}): put numbers that may be NaN or "
            "infinite into an array."
        ) from error


def as_finite(value: Any) -> Any:
    """Plain JSON, from NumPy's numbers and arrays and from paths, too.

    None for numbers that are not finite, and for anything else, such as random generators.
    """
    if isinstance(value, Mapping):
        return {str(k): as_finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_finite(v) for v in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return as_finite(value.tolist())
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float) else None


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
