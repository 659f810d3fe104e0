"""Pages with generated parts between marks; the rest is written by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def fill(text: str, blocks: Mapping[str, str]) -> str:
    """The text with each block between ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``."""
    for name, block in blocks.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(f"the text must have {begin} and {end} once each.")
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        text = f"{head}{begin}\n{block.strip()}\n{end}{tail}"
    return text


def fill_page(path: Path, blocks: Mapping[str, str]) -> None:
    """Write the blocks into a page."""
    path.write_text(fill(path.read_text(encoding="utf-8"), blocks), encoding="utf-8")
