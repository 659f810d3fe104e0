"""The pages of the documentation, and the blocks in them.

``python tests/pages.py docs/tutorial-*.md`` runs the Python blocks of pages, writes what they print
to the text blocks after them, and leaves their pictures in the folders of the pages.
"""

import contextlib
import io
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text):
    """Language, code and line of every fenced block."""
    for match in FENCE.finditer(text):
        yield match[1], match[2], text[: match.start()].count("\n") + 1


def run_blocks(path):
    """Run the Python blocks of a page in one namespace.

    Yields each text block right after one, with its line, and what the Python block has printed.
    """
    namespace, printed = {"__name__": path.stem}, None
    for language, code, line in blocks(path.read_text(encoding="utf-8")):
        if language == "python":
            output = io.StringIO()
            # Line numbers of the page, so that a failure points into it.
            program = compile("\n" * line + code, str(path), "exec")
            with contextlib.redirect_stdout(output):
                exec(program, namespace)
            printed = output.getvalue()
        else:
            if language == "text" and printed is not None:
                yield code, line, printed
            printed = None


def renew(path):
    """Write what the blocks print to the page."""
    text = path.read_text(encoding="utf-8")
    for code, _, printed in run_blocks(path):
        text = text.replace(f"```text\n{code}```", f"```text\n{printed}```", 1)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    for page in [Path(name).resolve() for name in sys.argv[1:]]:
        os.chdir(ROOT / "docs/images" / page.stem)
        renew(page)
