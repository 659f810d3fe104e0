"""The folder of a run: written whole or not at all, read with care, nothing in it can be run.

======================  ==================================================================
``run.json``            what the folder is, and a checksum of every file below but the log
``model.safetensors``   the fitted estimator, as its own ``save`` writes it
``settings.json``       command, options, seed, versions
``metrics.json``        results on held-out rows, diagnostics, warnings, times
``frame.json``          how the columns of the user's file became those of the model
``sample.safetensors``  some held-out rows with predictions
``log.txt``             messages of the run, for people
======================  ==================================================================
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from wideangle.frames.encoding import Encoding
from wideangle.presentation.records import Run, Sample
from wideangle.registry import FAMILIES, estimator_of
from wideangle.storage import StorageError, load_bundle, save_bundle
from wideangle.storage.files import exchange, from_json, write

FORMAT, VERSION = "wideangle-run", 2
MODEL, SAMPLE = "model.safetensors", "sample.safetensors"
_SAMPLE_KIND = "run-sample"
PARTS = (MODEL, "settings.json", "metrics.json", "frame.json", SAMPLE)


def read_run(path: str | os.PathLike[str]) -> Run:
    """The run in a folder; StorageError if it is none, is incomplete, or was changed."""
    folder = Path(path)
    about = _about(folder)
    for name in PARTS:
        if checksum(folder / name) != about["sha256"].get(name):
            raise StorageError(f"{folder / name} was changed or damaged since it was written.")
    frame = _plain(folder / "frame.json", Encoding.from_json)
    model = estimator_of(about["kind"]).load(folder / MODEL)
    classes = getattr(model, "classes_", None)
    if model.n_features_in_ != len(frame.columns) or (
        classes is not None and len(classes) != len(frame.classes)
    ):
        raise StorageError(f"{folder}: its model and its columns do not belong together.")
    settings, metrics = (_plain(folder / name) for name in ("settings.json", "metrics.json"))
    _check(folder / "settings.json", settings, SETTINGS)
    scores = dict.fromkeys(metrics.keys() - METRICS.keys(), SCORE)
    _check(folder / "metrics.json", metrics, METRICS | scores)
    log = folder / "log.txt"
    return Run(
        about["kind"],
        model,
        frame,
        settings,
        metrics,
        load_sample(folder / SAMPLE),
        log.read_text("utf-8", "replace") if log.is_file() else "",
        folder,
    )


def write_run(run: Run, path: str | os.PathLike[str], *, force: bool = False) -> Run:
    """Write a run to a folder that appears only when it is complete; the run, with its path.

    With ``force`` it takes the place of an earlier run; anything else that exists is left alone.
    """
    folder = Path(path)
    check_free(folder, force=force)
    with _new_folder(folder) as place:
        run.model.save(place / MODEL)
        save_sample(run.sample, place / SAMPLE)
        for name, content in (
            ("settings.json", run.settings),
            ("metrics.json", run.metrics),
            ("frame.json", run.frame.to_json()),
        ):
            write(place / name, [_text(content)])
        write(place / "log.txt", [run.log.encode()])
        about = {"format": FORMAT, "version": VERSION, "kind": run.kind}
        sums = {name: checksum(place / name) for name in PARTS}
        write(place / "run.json", [_text(about | {"sha256": sums})])
    return replace(run, path=folder)


def check_free(path: str | os.PathLike[str], *, force: bool) -> None:
    """Refuse a place that is taken, unless by an earlier run that may be replaced."""
    folder = Path(path)
    if not os.path.lexists(folder):
        return
    if not is_run(folder):
        raise StorageError(f"{folder} exists and is not a run: choose another place for -o.")
    if not force:
        raise StorageError(f"{folder} holds an earlier run: choose another -o, or add --force.")


def is_run(path: str | os.PathLike[str]) -> bool:
    """Whether a folder is marked as a run, complete or not."""
    try:
        _about(Path(path))
    except StorageError:
        return False
    return True


def _about(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise StorageError(f"{folder} {what}: name a folder that `wideangle train` wrote.")
    file = folder / "run.json"
    foreign = f"{folder} is not a run: name a folder that `wideangle train` wrote."
    if not file.is_file():
        raise StorageError(foreign)
    about = _plain(file)
    if about.get("format") != FORMAT or about.get("kind") not in FAMILIES:
        raise StorageError(foreign)
    if about.get("version") != VERSION or not isinstance(about.get("sha256"), dict):
        raise StorageError(f"{folder} was written by another release of wideangle.")
    return about


def _plain(file: Path, make: Any = dict) -> Any:
    try:
        return make(from_json(file.read_text("utf-8")))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise StorageError(f"{file} is damaged: take another copy or train again.") from error


def _text(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, allow_nan=False, indent=1, ensure_ascii=False) + "\n").encode()


def checksum(file: Path) -> str:
    """SHA-256 of a file."""
    try:
        with open(file, "rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        raise StorageError(f"{file} cannot be read: {error.strerror}.") from error


@contextlib.contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """A folder beside the place it is moved to at the end; nothing stays of one that fails."""
    mark = secrets.token_hex(6)
    place, old = (folder.with_name(f".{folder.name}-{mark}.{end}") for end in ("new", "old"))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        place.mkdir()
        yield place
        if not os.path.lexists(folder):
            os.rename(place, folder)
        elif not exchange(place, folder):
            _replace(place, folder, old)
    except (OSError, StorageError) as error:
        system = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(system, OSError):
            raise
        # The folder that was asked for, and not the one beside it that no longer exists.
        raise StorageError(
            f"cannot write {folder}: {system.strerror or system}; check the path, the permissions "
            "and the free space."
        ) from error
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if os.path.lexists(folder):
            shutil.rmtree(old, ignore_errors=True)


def _replace(place: Path, folder: Path, old: Path) -> None:
    """Two moves instead of an exchange; the first is undone where the second fails."""
    os.rename(folder, old)
    try:
        os.rename(place, folder)
    except OSError:
        os.rename(old, folder)
        raise


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
    save_bundle(path, {k: np.asarray(v) for k, v in arrays.items()}, meta, kind=_SAMPLE_KIND)


def load_sample(path: str | os.PathLike[str]) -> Sample:
    """Read a sample written by :func:`save_sample`."""
    arrays, meta = load_bundle(path, _SAMPLE_KIND)
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


# ---- the shape of JSON: what is read is checked, and what is wrong is named

Check = tuple[str, Callable[[Any], bool]]
"""What a value must be, in words and as a question."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _all(values: Any, kind: type, good: Callable[[Any], bool]) -> bool:
    """Whether a list, or the values of an object, are good."""
    entries = values.values() if isinstance(values, dict) else values
    return isinstance(values, kind) and all(map(good, entries))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


TEXT: Check = "text", _is_text
COUNT: Check = "a whole number", lambda value: type(value) is int
FLAG: Check = "true or false", lambda value: isinstance(value, bool)
TEXTS: Check = "a list of texts", lambda value: _all(value, list, _is_text)
TEXT_OF_NAME: Check = "an object of texts", lambda value: _all(value, dict, _is_text)
NUMBER_OF_NAME: Check = "an object of numbers", lambda value: _all(value, dict, _is_number)
OBJECT: Check = "an object", lambda value: isinstance(value, dict)
LIST: Check = "a list", lambda value: isinstance(value, list)
UNKNOWN: Check = "a number or null", lambda value: value is None or _is_number(value)
SCORE: Check = (  # of a family
    "a number, a list of numbers or null",
    lambda value: value is None or _is_number(value) or _all(value, list, _is_number),
)

SETTINGS: dict[str, Check] = {
    "command": TEXTS, "options": OBJECT, "seed": COUNT, "source": TEXT, "n_rows": COUNT,
    "versions": TEXT_OF_NAME, "began": TEXT,
}  # fmt: skip
METRICS: dict[str, Check] = {
    "n_train": COUNT, "n_test": COUNT, "sample_held_out": FLAG, "warnings": TEXTS, "notes": TEXTS,
    "facts": LIST, "seconds": NUMBER_OF_NAME, "rhat": UNKNOWN, "ess": UNKNOWN,
}  # fmt: skip


def _check(file: Path, content: Mapping[str, Any], fields: Mapping[str, Check]) -> None:
    """Refuse JSON of another shape."""
    for name, (words, good) in fields.items():
        if name not in content:
            raise StorageError(f"{file}: {name!r} is missing; take another copy or train again.")
        if not good(content[name]):
            raise StorageError(f"{file}: {name!r} must be {words}; take another copy.")
