"""Pages that are written by hand but for a part between two marks."""

from __future__ import annotations


def put_between_marks(text: str, block: str, marks: tuple[str, str]) -> str:
    """Replace what lies between the marks."""
    begin, end = marks
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the text must have {begin} and {end} once each.")
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    return f"{head}{begin}\n{block}\n{end}{tail}"
