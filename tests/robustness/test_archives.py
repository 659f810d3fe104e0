"""Archives that were damaged or mean harm: refused in words, nothing outside the folder."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robustness.altered import damages
from wideangle_lab.originals.unpack import UnsafeArchiveError, unpack

CONTENT = {"a/one.txt": b"one " * 300, "two.bin": bytes(range(256)) * 8, "three": b""}
NAMES = st.sampled_from(
    (
        "../out",
        "/etc/out",
        "a/../../out",
        "..\\out",
        "C:\\out",
        "a\x00b",
        "a\nb",
        ".",
        "",
        "ok",
        "ok/x",
        "n" * 300,
    )
)
pytestmark = pytest.mark.filterwarnings("ignore:Duplicate name")  # of the packer, on purpose
EXAMPLES = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


def pack(form, members):
    """Bytes of an archive."""
    file = io.BytesIO()
    if form == "zip":
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members:
                archive.writestr(zipfile.ZipInfo(name or "x"), content)
        return file.getvalue()
    with tarfile.open(fileobj=file, mode=f"w:{form}") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


WHOLE = {form: pack(form, CONTENT.items()) for form in ("zip", "", "gz", "bz2", "xz")}


def check(content: bytes, place: Path):
    """Unpacked or refused; no trace but the folder itself."""
    place.mkdir(exist_ok=True)
    archive, folder = place / "archive", place / "folder"
    archive.write_bytes(content)
    try:
        unpack(archive, folder)
        result = {
            str(file.relative_to(folder)): file.read_bytes()
            for file in folder.rglob("*") if file.is_file()
        }  # fmt: skip
        for file in sorted(folder.rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
        folder.rmdir()
    except UnsafeArchiveError as error:
        assert "archive" in str(error)
        result = None
    assert [path.name for path in place.iterdir()] == ["archive"]
    assert [path.name for path in place.parent.iterdir()] == [place.name]
    return result


@pytest.mark.parametrize("form", WHOLE)
def test_whole_archives_are_unpacked(form, tmp_path):
    assert check(WHOLE[form], tmp_path / "place") == CONTENT


@pytest.mark.parametrize("form", WHOLE)
def test_damaged_archives_are_refused_or_harmless(form, tmp_path):
    @EXAMPLES
    @given(damages())
    def check_one(damage):
        check(damage(WHOLE[form]), tmp_path / "place")

    check_one()


@pytest.mark.parametrize("form", ["zip", "", "gz"])
def test_names_that_lead_elsewhere(form, tmp_path):
    @EXAMPLES
    @given(st.lists(NAMES, min_size=1, max_size=4))
    def check_one(names):
        found = check(pack(form, [(name, b"x") for name in names]), tmp_path / "place")
        assert found is None or set(found) <= {"ok", "ok/x", "x", "a"}

    check_one()
