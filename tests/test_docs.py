"""The Python blocks of the README and the pages run; links lead somewhere; cite keys are known."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text):
    """Language, code and line of every fenced block."""
    for match in FENCE.finditer(text):
        yield match[1], match[2], text[: match.start()].count("\n") + 1


def run_page(path):
    """Run the Python blocks of a page in one namespace; a text block after one is its output."""
    namespace, printed = {"__name__": path.stem}, None
    for language, code, line in blocks(path.read_text(encoding="utf-8")):
        if language == "python":
            output = io.StringIO()
            # Line numbers of the page, so that a failure points into it.
            program = compile("\n" * line + code, str(path), "exec")
            with contextlib.redirect_stdout(output):
                exec(program, namespace)
            printed = output.getvalue()
        elif language == "text" and printed is not None:
            assert printed == code, f"{path.name}:{line} shows another output than its block prints"
            printed = None
        else:
            printed = None


@pytest.mark.parametrize(
    "path", [page for page in PAGES if "```python" in page.read_text(encoding="utf-8")], ids=str
)
def test_python_blocks_run(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(path)


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_links_within_the_project_lead_somewhere(path):
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text(encoding="utf-8"))
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_every_page_is_reachable_from_the_readme():
    seen, queue = set(), [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        if page not in seen:
            seen.add(page)
            links = re.findall(r"\]\(([^)#]+\.md)\)", page.read_text(encoding="utf-8"))
            queue += [
                (page.parent / link).resolve() for link in links if not link.startswith("http")
            ]
    assert set(PAGES) <= seen


def test_every_cite_key_has_its_reference():
    known = set(re.findall(r"^- \*\*(\w+)\*\*", (ROOT / "docs/references.md").read_text(), re.M))
    used = {
        key.strip()
        for path in (ROOT / "src").rglob("*.py")
        for keys in re.findall(r":cite:`([^`]+)`", path.read_text(encoding="utf-8"))
        for key in keys.split(",")
    }
    assert used - known == set()


def test_a_wrong_block_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError):
        run_page(page)
    page.write_text("```python\nprint(1)\n```\n\n```text\n2\n```\n")
    with pytest.raises(AssertionError, match="another output"):
        run_page(page)
