from pathlib import Path

from wideangle_lab import datasets
from wideangle_lab.marks import fill
from wideangle_lab.originals import page

PAGE = Path(__file__).parents[3] / "docs" / "datasets.md"


def test_the_page_is_what_the_manifest_says():
    text = PAGE.read_text(encoding="utf-8")
    filled = fill(text, {"data sets": page.render()})
    assert filled == text, "run: python -m wideangle_lab.originals.page docs/datasets.md"


def test_every_stand_in_is_named_as_one_in_table_and_notes():
    shown = page.render()
    for entry in datasets.MANIFEST.values():
        row = next(line for line in shown.splitlines() if line.startswith(f"| `{entry.name}` |"))
        heading = next(
            line
            for line in shown.splitlines()
            if line.startswith(f"### {entry.title} (`{entry.name}`")
        )
        assert ("stand-in" in row) == ("stand-in" in heading) == (entry.status == "stand-in")


def test_what_is_checked_is_said_for_each_kind():
    assert page.checked_by("news20") == "sha256 of the download; then a digest of all arrays"
    assert "kept for later; then a digest of all arrays" in page.checked_by("reuters")
    assert page.checked_by("scenes15").endswith("numbers of rows, columns and classes")
    assert "kept for later" in page.checked_by("scenes15")
    assert page.checked_by("rcv1_subsets") == "sha256 of the canonical file"
