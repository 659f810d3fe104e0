"""Archives that want to write elsewhere, or too much."""

import bz2
import gzip
import io
import lzma
import os
import stat
import tarfile
import zipfile

import pytest

from wideangle_lab.originals.unpack import Limits, UnsafeArchiveError, unpack

GOOD = {"data/one.txt": b"one", "data/deep/two.txt": b"two" * 100, "empty": b""}


def make_tar(path, members, mode="w:gz"):
    """``members``: name to bytes, or to a dictionary of TarInfo attributes."""
    with tarfile.open(path, mode) as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, dict):
                vars_of = {"size": 0, **content}
                for key, value in vars_of.items():
                    setattr(info, key, value)
                tar.addfile(info)
            else:
                info.size = len(content)
                info.mode = 0o4777
                tar.addfile(info, io.BytesIO(content))
    return path


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return path


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_tar_is_unpacked_with_plain_modes(tmp_path, mode):
    unpack(make_tar(tmp_path / "a", GOOD, mode), tmp_path / "out")
    assert contents(tmp_path / "out") == GOOD
    assert not (tmp_path / "out/empty").stat().st_mode & (stat.S_ISUID | stat.S_IXUSR)
    assert sorted(os.listdir(tmp_path)) == ["a", "out"]


def test_a_zip_is_unpacked(tmp_path):
    unpack(make_zip(tmp_path / "a", {**GOOD, "folder/": b""}), tmp_path / "out")
    assert contents(tmp_path / "out") == GOOD
    assert (tmp_path / "out/folder").is_dir()


EVIL = [
    "../out.txt",
    "a/../../out.txt",
    "/absolute/out.txt",
    "..",
    "a\\..\\out.txt",
    "C:out",
    "a\nb",
]


@pytest.mark.parametrize("kind", ["tar", "zip"])
@pytest.mark.parametrize("name", EVIL)
def test_names_that_lead_elsewhere_are_refused(tmp_path, kind, name):
    room = tmp_path / "room"
    room.mkdir()
    members = {"good.txt": b"good", name: b"evil"}
    archive = (make_tar if kind == "tar" else make_zip)(room / "a", members)
    with pytest.raises(UnsafeArchiveError, match=r"^a: refused, its member"):
        unpack(archive, room / "out")
    # Nothing stays, not even the good member, and nothing is beside the folder.
    assert os.listdir(room) == ["a"]
    assert os.listdir(tmp_path) == ["room"]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
@pytest.mark.parametrize("target", ["/etc/passwd", "../../secret", "good.txt"])
def test_links_and_devices_are_refused(tmp_path, kind, target):
    members = {"good.txt": b"good", "link": {"type": kind, "linkname": target}, "link/x": b"evil"}
    archive = make_tar(tmp_path / "a", members)
    with pytest.raises(UnsafeArchiveError, match="'link' is a link or a device"):
        unpack(archive, tmp_path / "out")
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFIFO])
def test_links_in_a_zip_are_refused(tmp_path, kind):
    info = zipfile.ZipInfo("link")
    info.external_attr = (kind | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a", "w") as made:
        made.writestr(info, "/etc/passwd")
    with pytest.raises(UnsafeArchiveError, match="is a link or a device"):
        unpack(tmp_path / "a", tmp_path / "out")


def test_an_encrypted_member_is_refused(tmp_path):
    archive = make_zip(tmp_path / "a", {"x": b"text"})
    raw = bytearray(archive.read_bytes())
    raw[raw.index(b"PK\x01\x02") + 8] |= 1  # the flag in the central directory
    archive.write_bytes(raw)
    with pytest.raises(UnsafeArchiveError, match="encrypted"):
        unpack(archive, tmp_path / "out")


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_bombs_are_stopped_by_the_ratio(tmp_path, kind):
    limits = Limits(ratio=50.0, free=1 << 16)
    bomb = {"zeros": bytes(4 << 20)}
    archive = (make_tar if kind == "tar" else make_zip)(tmp_path / "a", bomb)
    assert archive.stat().st_size < 10_000
    with pytest.raises(UnsafeArchiveError, match="unpacks to more than"):
        unpack(archive, tmp_path / "out", limits)
    assert os.listdir(tmp_path) == ["a"]
    unpack(archive, tmp_path / "out", limits._replace(ratio=2000.0))


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_the_total_counts_over_all_members(tmp_path, kind):
    members = {f"{i}": os.urandom(3000) for i in range(10)}
    archive = (make_tar if kind == "tar" else make_zip)(tmp_path / "a", members)
    with pytest.raises(UnsafeArchiveError, match="more than 20,000 bytes"):
        unpack(archive, tmp_path / "out", Limits(total=20_000))


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_too_many_members_are_refused(tmp_path, kind):
    archive = (make_tar if kind == "tar" else make_zip)(tmp_path / "a", dict.fromkeys("abcde", b""))
    with pytest.raises(UnsafeArchiveError, match="too many members"):
        unpack(archive, tmp_path / "out", Limits(members=4))
    unpack(archive, tmp_path / "out", Limits(members=5))


def test_a_zip_that_lies_about_its_size_is_counted_as_it_comes(tmp_path):
    archive = make_zip(tmp_path / "a", {"x": bytes(1 << 20)})
    raw = archive.read_bytes().replace((1 << 20).to_bytes(4, "little"), (9).to_bytes(4, "little"))
    archive.write_bytes(raw)
    with pytest.raises(UnsafeArchiveError):
        unpack(archive, tmp_path / "out", Limits(free=100, ratio=1.0))
    assert os.listdir(tmp_path) == ["a"]


def test_a_name_that_comes_twice_is_refused(tmp_path):
    with tarfile.open(tmp_path / "a", "w") as tar:
        for content in (b"one", b"two"):
            info = tarfile.TarInfo("x")
            info.size = 3
            tar.addfile(info, io.BytesIO(content))
    with pytest.raises(UnsafeArchiveError, match="comes twice"):
        unpack(tmp_path / "a", tmp_path / "out")


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_broken_tar_is_said_to_be_broken(tmp_path, mode):
    archive = make_tar(tmp_path / "a", {"x": os.urandom(50_000)}, mode)
    archive.write_bytes(archive.read_bytes()[:20_000])
    with pytest.raises(UnsafeArchiveError, match="a is broken"):
        unpack(archive, tmp_path / "out")
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_what_is_no_archive_is_said_to_be_broken(tmp_path, pack):
    (tmp_path / "a").write_bytes(pack(b"<html>not found</html>" * 100))
    with pytest.raises(UnsafeArchiveError, match="a is broken"):
        unpack(tmp_path / "a", tmp_path / "out")


def test_bits_that_flipped_are_found(tmp_path):
    archive = make_zip(tmp_path / "a", {"x": os.urandom(5000)})
    raw = bytearray(archive.read_bytes())
    raw[2000] ^= 1
    archive.write_bytes(raw)
    with pytest.raises(UnsafeArchiveError, match="broken"):
        unpack(archive, tmp_path / "out")
