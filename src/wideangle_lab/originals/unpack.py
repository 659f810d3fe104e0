"""Archives of strangers: unpacked without leaving the folder and without filling the disk."""

from __future__ import annotations

import lzma
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

BROKEN = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, RuntimeError)


class UnsafeArchiveError(ValueError):
    """An archive would write outside its folder, or more than it may, or is broken."""


class Limits(NamedTuple):
    """What an archive may hold."""

    members: int = 200_000
    total: int = 4 << 30
    """Bytes of all members together."""
    ratio: float = 100.0
    """Bytes unpacked for each byte packed."""
    free: int = 16 << 20
    """Bytes to which the ratio does not apply: short files of blanks pack very well."""


def unpack(archive: Path, folder: Path, limits: Limits = Limits()) -> None:  # noqa: B008
    """Unpack a zip or a tar (plain, gz, bz2, xz) into ``folder``, which must not exist yet.

    Everything goes to a folder of its own first, which is renamed at the end: an archive that is
    refused half-way leaves nothing. Names cannot lead out of the folder, which Python's own
    modules see to; links and devices are refused, and owners are not taken over.
    """
    packed = max(archive.stat().st_size, 1)
    allowed = int(min(limits.total, max(limits.free, limits.ratio * packed)))
    folder.parent.mkdir(parents=True, exist_ok=True)
    room = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    total = 0
    try:
        members = _unzip if zipfile.is_zipfile(archive) else _untar
        for number, size in enumerate(members(archive, room), 1):
            total += size
            if number > limits.members:
                raise UnsafeArchiveError(f"{archive.name}: refused, it has too many members.")
            if total > allowed:
                raise UnsafeArchiveError(
                    f"{archive.name}: refused, it unpacks to more than {allowed:,} bytes."
                )
        os.replace(room, folder)
    except BROKEN as error:
        raise UnsafeArchiveError(f"{archive.name} is broken: {error}.") from error
    except OSError as error:
        # Errors of the disk have a number; those of gzip and bz2 have none.
        of_names = isinstance(error, (IsADirectoryError, NotADirectoryError, FileExistsError))
        if error.errno is not None and not of_names:
            raise
        raise UnsafeArchiveError(f"{archive.name} is broken: {error}.") from error
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _untar(archive: Path, room: Path) -> Iterator[int]:
    """The size of each member, said before it is unpacked."""
    with tarfile.open(archive) as tar:
        for member in tar:
            if not (member.isreg() or member.isdir()):
                raise UnsafeArchiveError(f"{archive.name}: {member.name!r} is a link or a device.")
            yield member.size
            tar.extract(member, room, filter="data")


def _unzip(archive: Path, room: Path) -> Iterator[int]:
    """The same of a zip; no member can be longer than it says."""
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise UnsafeArchiveError(
                    f"{archive.name}: {member.filename!r} is a link or a device."
                )
            yield member.file_size
            opened.extract(member, room)
