"""One file of named arrays and a JSON object, with a checksum of every byte.

The layout is that of safetensors, so other tools can read it: eight bytes with the length of the
header, the header in JSON, the numbers. Nothing in it can be run. It is read here and not by
the library so that each length is checked before memory is allocated, every byte is covered by
the checksum, and numbers go straight to where they stay.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import jax
import numpy as np

from wideangle.checks import check_path
from wideangle.storage.files import PathLike, StorageError, from_json, to_json, write

FORMAT = "wideangle"
VERSION = 1
"""Raised when a file can no longer be read by an older release."""
MAX_HEADER = 2**22
"""Most bytes of names and JSON: parsed JSON takes up to twenty times as much memory."""
MAX_AXES = 32
DTYPES = {
    "BOOL": "|b1", "I8": "|i1", "U8": "|u1", "I16": "<i2", "U16": "<u2", "I32": "<i4",
    "U32": "<u4", "I64": "<i8", "U64": "<u8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip
CODES = {text: code for code, text in DTYPES.items()}
RANDOMNESS = ("jax_default_prng_impl", "jax_threefry_partitionable", "jax_enable_x64")
"""Settings of JAX under which the same seed gives the same draws."""

_PREFIX = 8
_BLANK = "0" * 64  # stands for the checksum while the checksum is computed
_FOREIGN = "was not saved by wideangle, or its beginning is damaged; check the path"
_REMEDY = "take another copy or save it again"


def save_bundle(
    path: PathLike,
    arrays: Mapping[str, np.ndarray],
    meta: Mapping[str, Any],
    *,
    kind: str = "bundle",
) -> None:
    """Save arrays and a JSON object in one file.

    The file is written next to ``path``, flushed to the disk and moved into place: after a crash
    or on a full disk ``path`` holds either what it held before or all of the new contents.

    Parameters
    ----------
    path
        The file; one that exists is replaced.
    arrays
        Arrays of booleans, integers or floats by name.
    meta
        JSON with finite numbers. Tuples come back as lists, and keys as strings.
    kind
        What the file holds, for example ``"model"``; :func:`load_bundle` can insist on it.

    Raises
    ------
    StorageError
        The contents have no place in such a file, or the file cannot be written.
    """
    write(path, encode(arrays, meta, kind)[1])


def load_bundle(
    path: PathLike, expected_kind: str | None = None
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays and JSON object of the file ``path`` of :func:`save_bundle`; it need not be trusted.

    Raises
    ------
    StorageError
        There is no such file, it was not saved by wideangle, it is damaged or newer than this
        release, or it holds something else than ``expected_kind``.
    """
    arrays, meta, _ = read(path, expected_kind)
    return arrays, meta


def fingerprint(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> str:
    """A hash of data (``arrays``) and settings (``meta``), whatever their order.

    Settings of JAX that change draws, its random numbers and its precision, are part of it.
    """
    randomness = {name: getattr(jax.config, name) for name in RANDOMNESS}
    return encode(arrays, {"meta": meta, "randomness": randomness}, "fingerprint")[0]


def encode(
    arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any], kind: str
) -> tuple[str, list[Any]]:
    """Checksum and the parts of a file, in order; arrays are not copied."""
    plain = {name: _plain(name, array) for name, array in arrays.items()}
    # Wide numbers first, so that each starts at a multiple of its size for readers that map it.
    order = sorted(plain, key=lambda name: (-plain[name].itemsize, name))
    entries: dict[str, Any] = {}
    end = 0
    for name in order:
        array, start = plain[name], end
        end += array.nbytes
        entries[name] = {
            "dtype": CODES[array.dtype.str],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
    about = {"sha256": _BLANK, "format": FORMAT, "version": str(VERSION), "kind": kind}
    about["meta"] = to_json(dict(meta))
    header = json.dumps({"__metadata__": about} | entries, separators=(",", ":")).encode("ascii")
    header += b" " * (-len(header) % 8)
    if len(header) > MAX_HEADER:
        raise StorageError(
            f"names and JSON take {len(header)} bytes, more than {MAX_HEADER}: put long lists "
            "into arrays."
        )
    length = len(header).to_bytes(_PREFIX, "little")
    numbers = [_as_bytes(plain[name]) for name in order]
    digest = _hash([length, header, *numbers])
    return digest, [length, header.replace(_BLANK.encode(), digest.encode(), 1), *numbers]


def read(
    path: PathLike, expected_kind: str | None
) -> tuple[dict[str, np.ndarray], dict[str, Any], str]:
    """Arrays, JSON object and checksum of a file."""
    check_path("path", path)
    try:
        if not Path(path).is_file():  # asked first: to open a pipe is to wait for ever
            what = "is not a file" if Path(path).exists() else "does not exist"
            raise StorageError(f"{what}; check the path")
        with open(path, "rb") as file:
            return _decode(file, os.fstat(file.fileno()).st_size, expected_kind)
    except StorageError as error:
        raise StorageError(f"{path} {error}.") from error.__cause__
    except MemoryError as error:
        raise StorageError(f"{path} does not fit into memory; use a larger machine.") from error
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        reason = getattr(error, "strerror", None) or error
        raise StorageError(f"cannot read {path!r}: {reason}; check the path.") from error


def _decode(file: IO[bytes], size: int, expected_kind: str | None) -> Any:
    prefix = file.read(_PREFIX)
    length = int.from_bytes(prefix, "little")
    if len(prefix) < _PREFIX or length > MAX_HEADER:
        raise StorageError(_FOREIGN)
    header = file.read(length)
    if len(header) < length:
        raise StorageError(f"is damaged: it ends too early; {_REMEDY}")
    try:
        entries = from_json(header.decode("ascii"))
        about = entries.pop("__metadata__")
        digest, version = str(about["sha256"]), int(about["version"])
        if about["format"] != FORMAT or len(digest) != len(_BLANK) or version < 1:
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StorageError(_FOREIGN) from error
    if version > VERSION:
        raise StorageError(
            f"has format {version} and this release reads up to {VERSION}; upgrade wideangle"
        )
    kind = about.get("kind")
    if expected_kind is not None and kind != expected_kind:
        raise StorageError(f"holds a {kind!r} and not a {expected_kind!r}; check the path")
    try:
        arrays = _allocate(entries, size - _PREFIX - length)
        numbers = [_as_bytes(array) for array in arrays.values()]
        if any(file.readinto(part) != part.size for part in numbers):  # pyright: ignore
            raise ValueError("it became shorter while it was read")
        blank = header.replace(digest.encode(), _BLANK.encode(), 1)
        if _hash([prefix, blank, *numbers]) != digest:
            raise ValueError("its checksum is wrong")
        meta = from_json(about["meta"])
        if not isinstance(meta, dict):
            raise ValueError("its JSON is not an object")
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        reason = error if type(error) is ValueError else "its contents make no sense"
        raise StorageError(f"is damaged: {reason}; {_REMEDY}") from error
    return arrays, meta, digest


def _allocate(entries: dict[str, Any], n_bytes: int) -> dict[str, np.ndarray]:
    """Arrays to read into, once their sizes are known to add up to what the file has."""
    plan, end = [], 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        _check_name(name)
        shape, dtype = entry["shape"], np.dtype(DTYPES[entry["dtype"]])
        if len(shape) > MAX_AXES or not all(type(n) is int and n >= 0 for n in shape):
            raise ValueError(f"array {name!r} has an impossible shape")
        start, end = end, end + math.prod(shape) * dtype.itemsize
        if entry["data_offsets"] != [start, end]:
            raise ValueError(f"array {name!r} is not where it should be")
        plan.append((name, shape, dtype))
    if end != n_bytes:
        raise ValueError(f"it has {n_bytes} bytes of numbers instead of {end}")
    return {name: np.empty(shape, dtype) for name, shape, dtype in plan}


def _plain(name: str, array: Any) -> np.ndarray:
    """An array with rows in order and little-endian numbers, checked."""
    _check_name(name)
    array = np.asarray(array)
    dtype = array.dtype.newbyteorder("<")
    if dtype.str not in CODES or array.ndim > MAX_AXES:
        raise StorageError(
            f"array {name!r} has dtype {array.dtype} and {array.ndim} axes: booleans, integers "
            f"and floats of at most {MAX_AXES} axes are saved; put text into the JSON object."
        )
    return np.asarray(array, dtype, order="C")


def _check_name(name: str) -> None:
    """Names are never paths here, but another tool may make files of them."""
    good = isinstance(name, str) and name.isprintable() and "\\" not in name
    if not good or name == "__metadata__" or not {"", ".", ".."}.isdisjoint(name.split("/")):
        raise StorageError(f"{name!r} cannot be the name of an array: use words joined by '/'.")


def _as_bytes(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1).view(np.uint8)


def _hash(parts: Iterable[Any]) -> str:
    state = hashlib.sha256()
    for part in parts:
        state.update(part)
    return state.hexdigest()
