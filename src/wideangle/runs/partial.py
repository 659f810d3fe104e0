"""The folder beside a run that is not finished: checkpoints, and with what settings it began."""

from __future__ import annotations

import contextlib
import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from wideangle.runs.folder import checksum
from wideangle.runs.train import Job
from wideangle.storage import StorageError
from wideangle.storage.checkpoint import make_folder
from wideangle.storage.files import from_json, write

_MARK = "wideangle-partial"


class Partial:
    """``RUN.partial``, made before a fit and removed after it, kept when there is a checkpoint.

    ``resume`` goes on with what is there, for the same job; ``force`` begins again.
    """

    def __init__(self, output: Path, job: Job, *, resume: bool, force: bool) -> None:
        self.folder = output.with_name(f"{output.name}.partial")
        self.checkpoint = self.folder / "checkpoint"
        self._about = self.folder / "job.json"
        self._settings = _settings(job)
        self._resume, self._force = resume, force

    def __enter__(self) -> Partial:
        if self.folder.exists():
            earlier = self._read()
            if self._resume:
                self._compare(earlier)
            elif self._force or not self.holds_something:
                shutil.rmtree(self.folder)
            else:
                raise StorageError(
                    f"{self.folder} holds an interrupted run: add --resume to continue it, or "
                    "--force to begin again."
                )
        elif self._resume:
            raise StorageError(f"there is nothing to resume: {self.folder} does not exist.")
        make_folder(self.folder)
        try:
            write(self._about, [json.dumps(self._settings, indent=1).encode()])
        except StorageError:
            self._tidy()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._tidy()

    def done(self) -> None:
        """The run is written: nothing here is needed any more."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def holds_something(self) -> bool:
        """Whether there is a checkpoint to continue from."""
        return any(self.checkpoint.rglob("*.safetensors"))

    def _tidy(self) -> None:
        if not self.holds_something:
            with contextlib.suppress(OSError):
                shutil.rmtree(self.folder)

    def _read(self) -> dict[str, Any]:
        """Settings of the earlier job; a folder of someone else is left alone."""
        try:
            plain = from_json(self._about.read_text("utf-8"))
            if plain["format"] != _MARK:
                raise ValueError
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise StorageError(f"{self.folder} is in the way: move or remove it.") from error
        return plain

    def _compare(self, earlier: dict[str, Any]) -> None:
        now = json.loads(json.dumps(self._settings))
        for name in sorted({*now, *earlier}):
            if now.get(name) != earlier.get(name) and name == "sha256":
                raise StorageError(
                    f"{now['data']} has changed since {self.folder} was begun: restore it, or "
                    "begin again with --force."
                )
            if now.get(name) != earlier.get(name):
                raise StorageError(
                    f"{self.folder} was begun with {_in_words(name, earlier)} and not with "
                    f"{_in_words(name, now)}: repeat the command as it was, or begin again with "
                    "--force."
                )


def _in_words(name: str, settings: dict[str, Any]) -> str:
    short = name.rpartition("__")[2]
    return f"{short} {settings[name]}" if name in settings else f"the default {short}"


def _settings(job: Job) -> dict[str, Any]:
    plain = asdict(job)
    for name in ("checkpoint", "command"):
        plain.pop(name)
    options = plain.pop("options")
    flat = plain.pop("plan") | plain.pop("reading") | options | plain
    flat.pop("verbose", None)
    # A file that is not there is an error of those who read it.
    digest = checksum(job.data) if job.data.is_file() else ""
    return {"format": _MARK} | flat | {"data": str(job.data), "sha256": digest}
