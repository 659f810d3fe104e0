"""Parameters that share a line of a docstring get one each: they may have different defaults."""

import re
from typing import Any

import griffe

GROUP = re.compile(r"^(\w+(?:, \w+)+)( :.*)?\n((?:[ \t]+\S.*\n?)+)", re.MULTILINE)


def apart(match: re.Match[str]) -> str:
    """One entry for each name, with the same type and text."""
    text = match[3].rstrip("\n")
    return "".join(f"{name}{match[2] or ''}\n{text}\n" for name in match[1].split(", "))


class Groups(griffe.Extension):
    """Part grouped names before the docstring is read."""

    def on_instance(self, *, obj: griffe.Object | griffe.Alias, **kwargs: Any) -> None:
        """Rewrite the docstring of a class or function."""
        if obj.docstring is not None:
            obj.docstring.value = GROUP.sub(apart, obj.docstring.value)
