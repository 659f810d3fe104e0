"""Unpacking untrusted archives, within their folder and without filling the disk."""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import os
import re
import shutil
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

CHUNK = 1 << 20
OPENERS: dict[bytes, Callable[[Path], Any]] = {
    b"\x1f\x8b": lambda path: gzip.open(path, "rb"),
    b"BZh": lambda path: bz2.open(path, "rb"),
    b"\xfd7zXZ\x00": lambda path: lzma.open(path, "rb"),
}
BROKEN = (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError)


class UnsafeArchiveError(ValueError):
    """An archive would write outside its folder, is too large, or is broken."""


class Limits(NamedTuple):
    """Limits of an archive."""

    members: int = 200_000
    total: int = 4 << 30
    """Maximum bytes of all members together."""
    ratio: float = 100.0
    """Maximum ratio of unpacked to packed bytes."""
    free: int = 16 << 20
    """Bytes below which the ratio does not apply: short files of blanks compress very well."""


def unpack(archive: Path, folder: Path, limits: Limits = Limits()) -> None:  # noqa: B008
    """Unpack a zip or a tar (plain, gz, bz2, xz) into ``folder``, which must not exist yet.

    Everything is unpacked into a temporary folder, which is renamed at the end, so that a refused
    archive leaves nothing. Links and devices are refused; owners and modes are ignored. Bytes are
    counted while unpacking, regardless of the sizes that the archive declares.
    """
    packed = max(archive.stat().st_size, 1)
    allowed = int(min(limits.total, max(limits.free, limits.ratio * packed)))
    folder.parent.mkdir(parents=True, exist_ok=True)
    room = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        with archive.open("rb") as file:
            is_zip = file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")
        writer = _Writer(archive, room, limits.members, allowed)
        (_unzip if is_zip else _untar)(archive, writer)
        os.replace(room, folder)
    except BROKEN as error:
        raise UnsafeArchiveError(f"{archive.name} is broken: {error}.") from error
    except OSError as error:
        if error.errno is not None:  # an error of the disk; those of gzip and bz2 have no number
            raise
        raise UnsafeArchiveError(f"{archive.name} is broken: {error}.") from error
    finally:
        shutil.rmtree(room, ignore_errors=True)


class _Writer:
    """Writes members below ``root`` and counts the remaining bytes."""

    def __init__(self, archive: Path, root: Path, members: int, allowed: int) -> None:
        self.name, self.root, self.members, self.allowed = archive.name, root, members, allowed
        self.left = allowed

    def refuse(self, member: str, why: str) -> UnsafeArchiveError:
        return UnsafeArchiveError(f"{self.name}: refused, its member {member!r} {why}.")

    def place(self, member: str) -> Path:
        """Path of a member; its name must stay within the folder on every system."""
        self.members -= 1
        if self.members < 0:
            raise UnsafeArchiveError(f"{self.name}: refused, it has too many members.")
        parts = PurePosixPath(member).parts
        if member.startswith("/") or ".." in parts:
            raise self.refuse(member, "leads out of the folder")
        if re.search(r"[\\\x00-\x1f]", member) or re.match(r"[A-Za-z]:", member):
            raise self.refuse(member, "has a name that is not plain")
        return self.root.joinpath(*parts)

    def folder(self, member: str) -> None:
        with self._named(member) as path:
            path.mkdir(parents=True, exist_ok=True)

    def file(self, member: str, source: IO[bytes], *, spent: bool = False) -> None:
        with self._named(member) as path:
            path.parent.mkdir(parents=True, exist_ok=True)
            # "x": a repeated name in an archive of data is suspicious.
            with path.open("xb") as target:
                while chunk := source.read(CHUNK):
                    self.spend(0 if spent else len(chunk))
                    target.write(chunk)

    @contextmanager
    def _named(self, member: str) -> Iterator[Path]:
        """The path of a member; the name may be invalid for a file."""
        try:
            yield self.place(member)
        except (FileExistsError, NotADirectoryError, IsADirectoryError) as error:
            raise self.refuse(member, "comes twice, or is a file and a folder") from error
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:
                raise
            raise self.refuse(f"{member[:40]}...", "has a name that is too long") from error

    def spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise UnsafeArchiveError(
                f"{self.name}: refused, it unpacks to more than {self.allowed:,} bytes."
            )


class _Counted:
    """A stream that counts every byte, including headers and skipped members of a tar."""

    def __init__(self, stream: Any, spend: Callable[[int], None]) -> None:
        self.stream, self.spend = stream, spend

    def read(self, size: int = -1) -> bytes:
        chunk = self.stream.read(size)
        self.spend(len(chunk))
        return chunk


def _untar(archive: Path, writer: _Writer) -> None:
    with archive.open("rb") as file:
        start = file.read(6)
    found = [opener for magic, opener in OPENERS.items() if start.startswith(magic)]
    with found[0](archive) if found else archive.open("rb") as stream:
        counted = _Counted(stream, writer.spend)
        with tarfile.open(fileobj=counted, mode="r|") as tar:  # pyright: ignore[reportCallIssue]
            for member in tar:
                if member.isdir():
                    writer.folder(member.name)
                elif member.isreg() and (source := tar.extractfile(member)):
                    writer.file(member.name, source, spent=True)
                else:
                    raise writer.refuse(member.name, "is a link or a device")


def _unzip(archive: Path, writer: _Writer) -> None:
    encrypted = 0x1
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise writer.refuse(member.filename, "is a link or a device")
            if member.flag_bits & encrypted:
                raise writer.refuse(member.filename, "is encrypted")
            if member.is_dir():
                writer.folder(member.filename)
                continue
            with opened.open(member) as source:
                writer.file(member.filename, source)
