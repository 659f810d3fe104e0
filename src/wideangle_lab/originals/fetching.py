"""``fetch(name)``: download the originals, convert them, and record both."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from wideangle.checks import check_choice
from wideangle_lab.datasets.files import file_state, folders, locate, record_path
from wideangle_lab.datasets.loaders import LOADERS
from wideangle_lab.datasets.manifest import MANIFEST
from wideangle_lab.originals.converters import Arrays, ConversionError
from wideangle_lab.originals.download import (
    NO_ROOM,
    DownloadError,
    Patience,
    Report,
    WrongFileError,
    download,
    sha256_of,
)
from wideangle_lab.originals.lock import only_one
from wideangle_lab.originals.sources import RECIPES, Original, Recipe, digest

Note = Callable[[str], None]
Progress = Callable[[str], Report]
LONGEST_WAIT = 3600.0
"""Seconds to wait for another process that is fetching the same data set."""


def fetch(
    name: str,
    folder: Path | str | None = None,
    *,
    given: Path | str | None = None,
    force: bool = False,
    keep: bool = False,
    accept_new: bool = False,
    patience: Patience = Patience(),  # noqa: B008 - immutable
    note: Note = lambda _: None,
    progress: Progress | None = None,
) -> Path:
    """Download and convert a data set; return the path of its file.

    Parameters
    ----------
    name
        One of :data:`wideangle_lab.originals.sources.RECIPES`.
    folder
        Where the file goes: by default the folder named by WIDEANGLE_DATA if it can be written,
        else the user's cache.
    given
        A folder with the originals, packed or unpacked, or one original: nothing is downloaded.
    force
        Make the file again even if it exists.
    keep
        Keep the originals, in ``folder/originals/name``.
    accept_new
        Accept an original whose bytes have changed since the first download, where no checksum is
        published.
    patience
        Timeouts and number of tries.
    note
        Called with messages for the user.
    progress
        Called with the name of each original; what it returns is called with bytes done and total.
    """
    check_choice("name", name, MANIFEST)
    entry, recipe = MANIFEST[name], RECIPES.get(name)
    if recipe is None or not (recipe.originals or given):
        raise ValueError(f"{name} cannot be downloaded: {entry.how_to_get}.")
    # If a folder is given, only that folder is searched for the file.
    wanted = Path(folder) / entry.file if folder else None
    absent = wanted is not None and not wanted.is_file()
    state, path = ("missing", None) if absent else file_state(entry, wanted)
    if state in ("present", "converted") and path and not force:
        note(f"{name}: {path} is here already ({state})")
        return path
    home = Path(folder) if folder else _writable_folder()
    home.mkdir(parents=True, exist_ok=True)
    target = home / entry.file
    with only_one(home / f".{name}.lock", wait=LONGEST_WAIT, note=note), _room_for(home):
        if not force and target.is_file() and file_state(entry, target)[0] != "other bytes":
            note(f"{name}: made by another process meanwhile")
            return target
        if entry.status == "stand-in":
            note(f"{name}: {entry.note}")
        record = _read_record(target) | {"name": name, "status": entry.status}
        record.pop("given", None)
        room = home / "originals" / name
        if given:
            record["given"] = str(given)
            arrays = _convert_given(recipe, Path(given), home)
        else:
            room.mkdir(parents=True, exist_ok=True)
            for original in recipe.originals:
                _bring(name, original, room, record, accept_new, patience, note, progress)
                _write_record(target, record)
            note(f"{name}: converting")
            arrays = recipe.convert(room)
        record["content"] = check_content(name, arrays)
        _write(target, arrays, record)
        if not keep:
            shutil.rmtree(room, ignore_errors=True)
            with contextlib.suppress(OSError):
                room.parent.rmdir()
    note(f"{name}: {target} is written; {record['content']}")
    _warn_if_hidden(name, target, note)
    return target


def check_content(name: str, arrays: Arrays) -> str:
    """Compare rows, columns and classes with the manifest, and the arrays with the canonical ones.

    Returns
    -------
    str
        What the comparison showed, for the record and the user.
    """
    data, entry = LOADERS[name](arrays), MANIFEST[name]
    n_classes = 0 if data.y is None else len(np.unique(data.y))
    if data.shape != entry.shape or n_classes != entry.n_classes:
        raise ConversionError(
            f"{name}: the originals give {data.shape[0]:,} rows, {data.shape[1]:,} columns and "
            f"{n_classes} classes, not {entry.shape[0]:,}, {entry.shape[1]:,} and "
            f"{entry.n_classes}: not the right files, or damaged."
        )
    if not (expected := RECIPES[name].content):
        return "rows, columns and classes are right (there is no canonical content to compare)"
    if digest(arrays) == expected:
        return "all arrays equal those of the canonical file"
    return "rows, columns and classes are right, but the arrays DIFFER from the canonical file's"


def _bring(
    name: str,
    original: Original,
    room: Path,
    record: dict[str, Any],
    accept_new: bool,
    patience: Patience,
    note: Note,
    progress: Progress | None,
) -> None:
    """Get one original from the first address that works."""
    target, known_places = room / original.file, record.setdefault("originals", {})
    known = {
        place.sha256 or known_places.get(place.address, {}).get("sha256")
        for place in original.places
    }
    if target.is_file() and sha256_of(target) in known:
        return
    problems: list[str] = []
    for place in original.places:
        before = known_places.get(place.address, {})
        remembered = "" if accept_new else before.get("sha256", "")
        try:
            found = download(
                place.address,
                target,
                sha256=place.sha256 or remembered,
                most_bytes=original.most_bytes,
                patience=patience,
                report=progress(original.file) if progress else None,
            )
        except WrongFileError as error:
            advice = " Its checksum is published: the address is not to be trusted."
            if not place.sha256:
                advice = f" It was other on {before['date']}; --accept-new takes it all the same."
            problems.append(str(error) + advice)
            continue
        except DownloadError as error:
            problems.append(str(error))
            continue
        if not place.sha256 and not remembered:
            note(
                f"{original.file}: no checksum is published, so this first download is trusted and "
                f"remembered: sha256 {found}"
            )
        known_places[place.address] = {
            "file": original.file,
            "sha256": found,
            "bytes": target.stat().st_size,
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "checksum": "published" if place.sha256 else "first download",
        }
        return
    raise DownloadError(
        f"{name}: {original.file} could not be fetched: {' '.join(problems)} Where the originals "
        f"are at hand, use: wideangle datasets fetch {name} --from FOLDER"
    )


def _convert_given(recipe: Recipe, given: Path, home: Path) -> Arrays:
    if not given.exists():
        raise FileNotFoundError(f"{given} does not exist.")
    if given.is_dir():
        return recipe.convert(given)
    with tempfile.TemporaryDirectory(prefix=".given-", dir=home) as room:
        shutil.copyfile(given, Path(room) / _canonical_name(recipe, given))
        return recipe.convert(Path(room))


def _canonical_name(recipe: Recipe, given: Path) -> str:
    """A single given file is the only original, regardless of its name."""
    if len(recipe.originals) == 1:
        return recipe.originals[0].file
    raise ValueError(
        f"{given}: name the folder that holds "
        f"{', '.join(original.file for original in recipe.originals)}."
    )


def _write(target: Path, arrays: Arrays, record: dict[str, Any]) -> None:
    """Write the record, then the file by one rename: a file always has its record."""
    handle, unfinished = tempfile.mkstemp(
        prefix=f".{target.stem}-", suffix=".npz", dir=target.parent
    )
    os.close(handle)
    try:
        np.savez_compressed(unfinished, allow_pickle=False, **arrays)
        record |= {
            "sha256": sha256_of(Path(unfinished)),
            "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "versions": {package: version(package) for package in ("numpy", "scikit-learn")},
        }
        _write_record(target, record)
        os.chmod(unfinished, 0o644)
        os.replace(unfinished, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(unfinished)


def _read_record(target: Path) -> dict[str, Any]:
    try:
        record = json.loads(record_path(target).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _write_record(target: Path, record: dict[str, Any]) -> None:
    path = record_path(target)
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    os.replace(unfinished, path)


def _writable_folder() -> Path:
    *named, cache = folders()
    return next((place for place in named if os.access(place, os.W_OK)), cache)


def _warn_if_hidden(name: str, target: Path, note: Note) -> None:
    places = [place.resolve() for place in folders()]
    if target.parent.resolve() not in places:
        note(f"set WIDEANGLE_DATA to {target.parent} for it to be found")
    elif (first := locate(MANIFEST[name])) != target:
        note(f"{first} comes first and is not this file: remove it for the new one to be used")


@contextlib.contextmanager
def _room_for(home: Path) -> Iterator[None]:
    """Report a full disk in one sentence, whichever step failed."""
    try:
        yield
    except DownloadError:
        raise
    except OSError as error:
        if error.errno in NO_ROOM:
            raise DownloadError(
                f"{home} has no room left; free some and fetch again: what was downloaded is kept."
            ) from error
        raise
