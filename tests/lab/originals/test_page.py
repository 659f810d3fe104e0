from pathlib import Path

import pytest

from wideangle_lab import datasets
from wideangle_lab.originals import page

PAGE = Path(__file__).parents[3] / "docs" / "datasets.md"


def test_the_page_is_what_the_manifest_says():
    text = PAGE.read_text(encoding="utf-8")
    assert page.update(text) == text, "run: python -m wideangle_lab.originals.page docs/datasets.md"


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
    assert page.checked_by("news20").startswith("the sha256 of every download; all arrays")
    assert "trusted and remembered; all arrays" in page.checked_by("reuters")
    assert page.checked_by("scenes15").endswith("rows, columns and classes only")
    assert "remembered" in page.checked_by("scenes15")
    assert page.checked_by("rcv1_subsets") == "the sha256 of the canonical file"


def test_the_program_rewrites_a_page_and_refuses_one_without_marks(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(f"before\n{page.MARKS[0]}\nstale text\n{page.MARKS[1]}\nafter\n")
    page.main([str(path)])
    text = path.read_text()
    assert "stale text" not in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    path.write_text("no marks")
    with pytest.raises(ValueError, match="once each"):
        page.main([str(path)])
