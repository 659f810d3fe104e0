"""Finding the canonical files and verifying their checksums."""

from __future__ import annotations

import hashlib
import json
import os
from functools import lru_cache
from pathlib import Path

import numpy as np

from wideangle.compiled import user_cache
from wideangle_lab.datasets.manifest import Entry

VARIABLE = "WIDEANGLE_DATA"
"""Environment variable that names the folder with the files."""


class DataNotFoundError(FileNotFoundError):
    """A data file was not found; the message names the folders."""


class DamagedFileError(ValueError):
    """The checksum of a data file differs from the manifest."""


def folders() -> list[Path]:
    """Folders that are searched, in order; none is created."""
    named = os.environ.get(VARIABLE)
    return [*([Path(named).expanduser()] if named else []), cache_folder()]


def cache_folder() -> Path:
    """The user's cache folder."""
    return user_cache() / "data"


def locate(entry: Entry) -> Path:
    """The first file of the name ``entry.file`` in :func:`folders`."""
    places = folders()
    for folder in places:
        if (path := folder / entry.file).is_file():
            return path
    tested = f"It has {entry.size:,} bytes, sha256 {entry.sha256}. " if entry.sha256 else ""
    raise DataNotFoundError(
        f"{entry.file}, {entry.label}, was not found: looked in "
        f"{' and in '.join(map(str, places))}. Put the file there, or name its folder in the "
        f"environment variable {VARIABLE}. {tested}It is made from {entry.source}. To get it: "
        f"{entry.how_to_get}"
    )


def read(entry: Entry, *, verify: bool = True) -> dict[str, np.ndarray]:
    """All arrays of the canonical file, after a check of its checksum."""
    path = locate(entry)
    if verify:
        check(path, entry)
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def check(path: Path, entry: Entry) -> None:
    """Compare the checksum, once for each version of the file."""
    if file_state(entry, path)[0] == "other bytes":
        raise DamagedFileError(
            f"{path} is not the file this version was tested with: sha256 {_sum_of(path)}, "
            f"expected {entry.sha256 or 'that of its record'}. Fetch it again, or load with "
            "verify=False if it is meant."
        )


def file_state(entry: Entry, path: Path | None = None) -> tuple[str, Path | None]:
    """``present``, ``converted``, ``missing`` or ``other bytes``, and the path.

    ``present`` is the canonical file, bit for bit. ``converted`` was made here by
    ``wideangle datasets fetch``, whose record in the same folder has the file's checksum.
    """
    if path is None:
        try:
            path = locate(entry)
        except DataNotFoundError:
            return "missing", None
    found = _sum_of(path)
    if found == entry.sha256:
        return "present", path
    return ("converted" if found == _recorded(path) else "other bytes"), path


def record_path(path: Path) -> Path:
    """Path of the record of a converted file: ``reuters.npz`` has ``reuters.record.json``."""
    return path.with_name(f"{path.stem}.record.json")


def _recorded(path: Path) -> str:
    try:
        return json.loads(record_path(path).read_text(encoding="utf-8")).get("sha256", "")
    except (OSError, ValueError, AttributeError):
        return ""


def _sum_of(path: Path) -> str:
    state = path.stat()
    return _sha256(str(path), state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=256)
def _sha256(path: str, size: int, changed: int) -> str:
    # Size and time are part of the key: a file that changes is read again.
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
