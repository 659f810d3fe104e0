"""Model files that were damaged, or forged with a right checksum by someone who means harm."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from wideangle.storage import StorageError, load_bundle, save_bundle

JSON = (
    None, True, False, -1, 0, 1, 2, 7, 2**31, 2**70, -(2**70), 0.5, -3.5, 1e308, "", "x", "learn",
    "mcmc", "map", "gaussian", "../../etc/passwd", "__import__('os')", [], {}, [[1], 2], {"a": []},
)  # fmt: skip
NUMBERS = (np.nan, np.inf, -np.inf, 0.0, -1.0, 1e300, 5e-324, 255.0)
Change = Callable[[dict[str, np.ndarray], dict[str, Any]], None]


@st.composite
def damages(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """Something that happens to the bytes of a file: every one of them is covered by a checksum."""
    kind = draw(st.sampled_from(("cut", "flip", "insert", "blank", "repeat", "swap")))
    place, other = draw(st.floats(0, 1)), draw(st.floats(0, 1))
    bit, extra = draw(st.integers(0, 7)), draw(st.binary(min_size=1, max_size=64))

    def change(content: bytes) -> bytes:
        at, to = sorted(int(where * (len(content) - 1)) for where in (place, other))
        if kind == "cut":
            return content[:at]
        if kind == "flip":
            return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
        if kind == "insert":
            return content[:at] + extra + content[at:]
        if kind == "blank":
            return content[:at] + bytes(to + 1 - at) + content[to + 1 :]
        if kind == "repeat":
            return content + content[at:]
        return content[to:] + content[:to]

    return change


@st.composite
def forgeries(draw: st.DrawFn) -> list[Change]:
    """One to three changes of arrays or JSON."""
    one = st.one_of(_array_changes(), _meta_changes())
    return draw(st.lists(one, min_size=1, max_size=3))


@st.composite
def _array_changes(draw: st.DrawFn) -> Change:
    which, place = draw(st.integers(0, 1000)), draw(st.integers(0, 10**6))
    value = draw(st.sampled_from(NUMBERS))
    how = draw(st.sampled_from(("drop", "rename", "one", "all", "dtype", "cut", "grow", "turn",
                                "flat", "empty", "scalar", "add")))  # fmt: skip
    dtype = draw(st.sampled_from(("f2", "f4", "f8", "i1", "u1", "i8", "u8", "?")))

    def change(arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        if not arrays:
            return
        name = sorted(arrays)[which % len(arrays)]
        array = arrays.pop(name)
        with np.errstate(all="ignore"):
            changed = {
                "one": lambda: _put(array, place, value), "dtype": lambda: array.astype(dtype),
                "all": lambda: np.full_like(array.astype(float), value), "cut": lambda: array[:-1],
                "grow": lambda: np.concatenate([array, array]), "turn": lambda: array.T,
                "flat": array.ravel, "empty": lambda: array[:0],
                "scalar": lambda: np.float64(value), "add": lambda: array[None],
            }  # fmt: skip
            if how == "rename":
                arrays[f"{name}_x"] = array
            elif how != "drop":
                try:
                    arrays[name] = np.asarray(changed[how]())
                except (IndexError, ValueError):  # a number has no rows to cut
                    arrays[name] = array

    return change


def _put(array: np.ndarray, place: int, value: float) -> np.ndarray:
    array = array.copy() if array.dtype.kind == "f" else array.astype(float)
    if array.size:
        array.reshape(-1)[place % array.size] = value
    return array


@st.composite
def _meta_changes(draw: st.DrawFn) -> Change:
    steps = draw(st.lists(st.integers(0, 1000), min_size=1, max_size=3))
    value, drop = draw(st.sampled_from(JSON)), draw(st.booleans())

    def change(arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        where: Any = meta
        for step in steps:
            keys = sorted(where) if isinstance(where, dict) else range(len(where))
            if not keys:
                return
            key = keys[step % len(keys)]
            if step is steps[-1] or not isinstance(where[key], (dict, list)):
                break
            where = where[key]
        if drop:
            del where[key]
        else:
            where[key] = copy.deepcopy(value)

    return change


def forge(source: Path, target: Path, kind: str, changes: list[Change]) -> bool:
    """Write a changed copy with a right checksum; False where such a file cannot be."""
    arrays, meta = load_bundle(source, kind)
    for change in changes:
        change(arrays, meta)
    try:
        save_bundle(target, arrays, meta, kind=kind)
    except StorageError:
        return False
    return True
