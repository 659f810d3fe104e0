"""A run on disk, so that it survives the process.

A checkpoint is a folder: one bundle with the state, and bundles with the draws made between two
saves, named by their checksum and never touched again. The state is written last and lists the
draws that go with it, so the folder always holds one whole moment of the run.

Every draw is written once. A save costs the new draws, the state, a hash of both and two flushes
of the disk: 10 ms for a small run, 3 s per gigabyte where it was measured. The next one waits
until twenty times as long has passed, so that saving takes at most a twentieth of the run,
however large the state.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from wideangle.checks import check_range, warn
from wideangle.storage.bundle import encode, load_bundle, read, save_bundle
from wideangle.storage.files import StorageError, write
from wideangle.storage.tree import pack, unpack

STATE_KIND = "checkpoint"
DRAWS_KIND = "checkpoint-draws"
PATIENCE = 20.0
"""Times the duration of a save that must pass before the next."""
_HASH_BYTES = 32

Arrays = dict[str, np.ndarray]


class SavedRun:
    """One whole moment of a run in a folder: its state, and the draws before it in parts.

    Parameters
    ----------
    path
        A folder for this run alone; made if needed.
    fingerprint
        A hash of the data and of all settings that change the draws
        (:func:`wideangle.storage.fingerprint`); the checkpoint of another one is refused.
    every_seconds
        Least time between two saves, and so about the most that is lost.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, fingerprint: str, every_seconds: float = 30.0
    ) -> None:
        check_range("every_seconds", every_seconds, 0.0)
        self.path = Path(path)
        self.fingerprint = fingerprint
        self.every_seconds = every_seconds
        self._state = self.path / "state.safetensors"
        self._parts: list[str] = []  # checksums of the draws on disk
        self._on_disk: Any = 0  # how many draws these are
        self._due = -np.inf

    @property
    def due(self) -> bool:
        """Whether it is time for another save."""
        return time.monotonic() >= self._due

    def read(self) -> tuple[Arrays, list[Arrays]] | None:
        """Arrays of the state and of every part of the draws, or None if there are none.

        Raises
        ------
        StorageError
            The checkpoint is damaged, or of other data or settings.
        """
        if not self._state.exists():
            return None
        state, meta = load_bundle(self._state, STATE_KIND)
        if meta.get("fingerprint") != self.fingerprint:
            raise StorageError(
                f"{self.path} holds the checkpoint of other data, settings or seed "
                "(random_state=None is another seed each time), or of another precision or random "
                "generator of JAX: restore those to continue, or remove it to begin again."
            )
        parts = state.pop("parts", np.empty(0))
        if parts.dtype != np.uint8 or parts.shape[1:] != (_HASH_BYTES,):
            raise StorageError(f"{self._state} makes no sense: remove it and begin again.")
        self._parts = [row.tobytes().hex() for row in parts]
        return state, [self._read_part(digest) for digest in self._parts]

    def save(
        self, state: Arrays, new: Arrays | None, on_disk: Any, *, may_fail: bool = True
    ) -> bool:
        """Write the state and the draws made since the last save; whether that was done.

        ``on_disk`` is remembered once it is true: how many draws are on disk then.
        The first save of a run should raise where it fails: the place is wrong. A later one warns
        and is tried again, since a full disk should not end a run of hours.
        """
        began = time.monotonic()
        saved = False
        try:
            self._write(state, new, on_disk)
            saved = True
        except StorageError as error:
            if not may_fail:
                raise
            message = f"the run continues without a new checkpoint: {error}"
            warn(message, RuntimeWarning)
        now = time.monotonic()
        self._due = now + max(self.every_seconds, PATIENCE * (now - began))
        return saved

    def remove(self, *, may_fail: bool = False) -> None:
        """Delete the checkpoint; other files in the folder stay, and then so does the folder.

        After a run, with ``may_fail``, what cannot be deleted gives a warning and no more: the
        draws are there, and must not be lost for this.
        """
        try:
            for pattern in ("state.safetensors", "draws-*.safetensors", ".wideangle-*.tmp"):
                for file in self.path.glob(pattern):
                    file.unlink(missing_ok=True)
            if self.path.is_dir() and not any(self.path.iterdir()):
                self.path.rmdir()
        except OSError as error:
            message = f"cannot remove {self.path}: {error.strerror}; check the permissions."
            if not may_fail:
                raise StorageError(message) from error
            warn(message, RuntimeWarning)
        self._parts, self._on_disk, self._due = [], 0, -np.inf

    @property
    def has_lost_draws(self) -> bool:
        """Whether draws that were saved are gone: somebody removed the folder under the run."""
        return not all(self._part(digest).exists() for digest in self._parts)

    def forget(self) -> None:
        """Save all draws again: those saved before no longer count."""
        self._parts, self._on_disk = [], 0

    def _write(self, state: Arrays, new: Arrays | None, on_disk: Any) -> None:
        if self.has_lost_draws:
            raise StorageError(
                f"draws that were saved are gone from {self.path}, and this run does not have "
                "them: leave the folder of a checkpoint alone while a fit runs"
            )
        make_folder(self.path)
        meta = {"fingerprint": self.fingerprint}
        parts = self._parts
        if new is not None:
            digest, content = encode(new, meta, DRAWS_KIND)
            write(self._part(digest), content)
            parts = [*parts, digest]
        table = np.frombuffer(bytes.fromhex("".join(parts)), np.uint8).reshape(-1, _HASH_BYTES)
        save_bundle(self._state, {"parts": table, **state}, meta, kind=STATE_KIND)
        # Only now: had Ctrl-C come before, the same draws would be saved again, under a new name.
        self._parts, self._on_disk = parts, on_disk

    def _part(self, digest: str) -> Path:
        return self.path / f"draws-{digest}.safetensors"

    def _read_part(self, digest: str) -> Arrays:
        if not self._part(digest).exists():
            raise StorageError(
                f"{self.path} has lost draws that belong to its checkpoint: remove the folder to "
                "begin again."
            )
        arrays, _, found = read(self._part(digest), DRAWS_KIND)
        if found != digest:
            raise StorageError(f"{self._part(digest)} holds other draws: take another copy.")
        return arrays


class Checkpoint(SavedRun):
    """Saves a run while it goes, as the ``on_chunk`` of :func:`wideangle.infer.run`.

    Parameters as for :class:`SavedRun`. Use it in a ``with`` block: leaving it, also after Ctrl-C,
    saves the last chunk. The first save is made at the first chunk and raises if it fails. A later
    one that fails gives a warning and is tried again: a full disk should not end a run of hours.

    A run of no draws costs nothing and gives the template::

        empty = run(key, recipe, initial, n_warmup=0, n_draws=0, ...)
        saved = Checkpoint(folder, fingerprint=fingerprint(data, settings))
        state, earlier = saved.load((empty.state, empty.draws)) or (None, empty.draws)
        with saved:
            result = run(key, recipe, initial, ..., on_chunk=saved, resume=state)
        draws = earlier.followed_by(result.draws)
        saved.remove()
    """

    _before = 0
    """Draws of earlier runs, which this run does not have."""
    _pending: tuple[Any, Any] | None = None
    _known = False
    """What is on disk was loaded or saved by this object."""
    _closed = False

    def __call__(self, state: Any, draws: Any) -> None:
        """Take note of where the run is, and save it if it is time."""
        if self._closed:
            raise ValueError("this checkpoint is closed: make a new one and load() it to continue.")
        first = not self._known or self._due == -np.inf
        if not self._known and self._state.exists():
            raise StorageError(
                f"{self.path} holds the checkpoint of an earlier run: load() it to continue, or "
                "remove() it to begin again."
            )
        self._pending = state, draws
        if self.due:
            self._save_pending(may_fail=not first)

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Save the last chunk; the object takes no more of them."""
        if self._pending is not None:
            self._save_pending(may_fail=True)
        self._closed = True

    def load(self, template: tuple[Any, Any]) -> tuple[Any, Any] | None:
        """State and draws of the last save, or None if there is none; see :meth:`SavedRun.read`.

        ``template`` is a state and draws of the same run, of any number of draws (see the class).
        """
        found = self.read()
        if found is None:
            return None
        state_like, draws_like = template
        state = unpack(found[0], {"state": state_like})["state"]
        parts = [{name: leaf[:, :0] for name, leaf in pack(draws_like).items()}]
        parts += [pack(unpack(part, draws_like, free_axis=1)) for part in found[1]]
        joined = {name: np.concatenate([part[name] for part in parts], 1) for name in parts[0]}
        self._before = self._on_disk = _n_draws(joined)
        self._known, self._closed, self._pending, self._due = True, False, None, -np.inf
        return state, unpack(joined, draws_like, free_axis=1)

    def remove(self, *, may_fail: bool = False) -> None:
        """Delete the checkpoint; see :meth:`SavedRun.remove`."""
        self._pending = None
        super().remove(may_fail=may_fail)
        self._before, self._known = 0, False

    def _save_pending(self, *, may_fail: bool) -> None:
        assert self._pending is not None
        state, draws = self._pending
        if self._before == 0 and self.has_lost_draws:
            self.forget()  # all of them are here
        arrays = pack(draws)
        total, start = self._before + _n_draws(arrays), self._on_disk - self._before
        if start > _n_draws(arrays):
            raise ValueError("these draws are of another run: use a new checkpoint for each run.")
        new = None
        if total > self._on_disk:
            new = {name: leaf[:, start:] for name, leaf in arrays.items()}
        try:
            if self.save(pack({"state": state}), new, total, may_fail=may_fail):
                self._pending, self._known = None, True
        except StorageError:
            self._pending = None
            raise


def _n_draws(arrays: dict[str, np.ndarray]) -> int:
    return next(iter(arrays.values())).shape[1]


def make_folder(path: Path) -> None:
    """Make a folder and those above it; one that is there is fine."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"cannot make the folder {path}: {error.strerror}; choose another place."
        ) from error
