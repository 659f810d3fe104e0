"""Converters from published files to the arrays of the canonical files.

Each converter takes the folder that holds the originals, packed as they were published or already
unpacked, and returns the arrays that :mod:`wideangle_lab.datasets.loaders` reads.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from wideangle_lab.originals.unpack import Limits, unpack

Arrays = dict[str, np.ndarray]


class ConversionError(ValueError):
    """The originals do not have the expected contents."""


@contextlib.contextmanager
def opened(folder: Path, archive: str, limits: Limits = Limits()) -> Iterator[Path]:  # noqa: B008
    """The contents of ``folder/archive``; the folder itself where the archive is not in it."""
    if not (folder / archive).is_file():
        yield folder
        return
    # Unpack next to the archive, or elsewhere if that folder cannot be written.
    place = folder if os.access(folder, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=".unpacked-", dir=place) as room:
        unpack(folder / archive, Path(room) / "contents", limits)
        yield Path(room) / "contents"


def only(folder: Path, pattern: str, what: str) -> Path:
    """The first path below ``folder`` that matches ``pattern``, in order of names."""
    found = sorted(folder.rglob(pattern))
    if not found:
        raise ConversionError(f"{folder} has no {pattern}: not {what}.")
    return found[0]
