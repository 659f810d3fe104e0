"""Compiled programs on disk, so that the next process need not compile them again.

A fit of a small table spends much of its time in the compiler, once for each shape of its data. The
command line keeps what was compiled; a script does so with :func:`keep_compiled`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import jax

MAX_AGE = 30 * 24 * 3600
"""Seconds after which a program that nobody used is deleted."""


def keep_compiled(folder: str | os.PathLike[str] | None = None) -> Path | None:
    """Keep compiled programs in a folder of this user, for all fits of this process and later ones.

    Call it before the first fit. A folder that was chosen before, by the environment variable
    ``JAX_COMPILATION_CACHE_DIR`` or in JAX's configuration, stays as it is.

    Parameters
    ----------
    folder : path, optional
        By default ``wideangle/programs`` in the user's folder for caches. Programs are code: the
        folder must belong to this user, and nobody else may write to it.

    Returns
    -------
    Path or None
        Where programs are kept; None where no folder can be written, and they are not.

    Examples
    --------
    >>> import wideangle
    >>> place = wideangle.keep_compiled()
    """
    chosen: str | None = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if chosen:
        return Path(chosen)
    place = _private(folder)
    if place is None:
        if folder is not None:
            raise PermissionError(
                f"{folder}: must be a folder that belongs to this user and that nobody else may "
                "write to, because programs in it are run."
            )
        return None
    _forget_old(place)
    jax.config.update("jax_compilation_cache_dir", str(place))
    # Most programs compile in less than JAX's threshold of a second; together they take several.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return place


def user_cache() -> Path:
    """Where the system has files of this user that can be made again."""
    if sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "wideangle"


def _private(folder: str | os.PathLike[str] | None) -> Path | None:
    """The folder, made if need be; None if others may write to it or it cannot be written."""
    try:
        place = user_cache() / "programs" if folder is None else Path(folder)
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = place.stat()
    except (OSError, RuntimeError):  # RuntimeError: no home
        return None
    if hasattr(os, "getuid") and (about.st_uid != os.getuid() or about.st_mode & 0o022):
        return None
    return place if os.access(place, os.W_OK) else None


def _forget_old(place: Path) -> None:
    """Delete what was not read for a month, so that old programs do not pile up."""
    oldest = time.time() - MAX_AGE
    for file in place.iterdir():
        try:
            about = file.stat()
            if max(about.st_atime, about.st_mtime) < oldest:
                file.unlink()
        except OSError:  # another process was faster
            continue
