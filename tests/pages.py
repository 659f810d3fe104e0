"""The pages of the documentation, and the blocks in them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text):
    """Language, code and line of every fenced block."""
    for match in FENCE.finditer(text):
        yield match[1], match[2], text[: match.start()].count("\n") + 1
