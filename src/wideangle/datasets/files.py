"""Finding the canonical files and making sure that they are the right ones."""

from __future__ import annotations

import hashlib
import os
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np

from wideangle.datasets.manifest import Entry

VARIABLE = "WIDEANGLE_DATA"
"""Environment variable that names the folder with the files."""


class DataNotFoundError(FileNotFoundError):
    """A data file is in none of the folders; the message says where it was looked for."""


class DamagedFileError(ValueError):
    """A data file has other bytes than the manifest says."""


def folders() -> list[Path]:
    """Where files are looked for, first to last; nothing is created."""
    named = os.environ.get(VARIABLE)
    return [*([Path(named).expanduser()] if named else []), cache_folder()]


def cache_folder() -> Path:
    """The user's own folder for such files, as the system has it."""
    if sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "wideangle" / "data"


def locate(entry: Entry) -> Path:
    """The first file of that name in :func:`folders`."""
    places = folders()
    for folder in places:
        if (path := folder / entry.file).is_file():
            return path
    raise DataNotFoundError(
        f"{entry.file} ({entry.title}) was not found: looked in "
        f"{' and in '.join(map(str, places))}. Put the file there, or name its folder in the "
        f"environment variable {VARIABLE}. It has {entry.size:,} bytes, sha256 {entry.sha256}, and "
        f"was made from {entry.source}."
    )


def read(entry: Entry, *, verify: bool = True) -> dict[str, np.ndarray]:
    """All arrays of the canonical file, after its checksum was compared."""
    path = locate(entry)
    if verify:
        check(path, entry)
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def check(path: Path, entry: Entry) -> None:
    """Compare the checksum, once for each state of the file."""
    state = path.stat()
    found = _sha256(str(path), state.st_size, state.st_mtime_ns)
    if found != entry.sha256:
        raise DamagedFileError(
            f"{path} is not the file this version was tested with: sha256 {found}, expected "
            f"{entry.sha256}. Fetch it again, or load with verify=False if it is meant."
        )


@lru_cache(maxsize=256)
def _sha256(path: str, size: int, changed: int) -> str:
    # Size and time are part of the key: a file that changes is read again.
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
