"""Docstrings and defaults as a reader needs them.

Parameters that share a line get one each, since they may have different defaults. A choice such as
``{"I", "II"}`` must not make its first value the default. A default that is a constant of the
settings, such as ``LEARN``, or of streamed fits is shown as its value.
"""

import re
from pathlib import Path
from typing import Any

import griffe

GROUP = re.compile(r"^(\w+(?:, \w+)+)( :.*)?\n((?:[ \t]+\S.*\n?)+)", re.MULTILINE)
CHOICE = re.compile(r"^(\w+ : )\{([^}\n]*)\}", re.MULTILINE)
SOURCE = Path(__file__).parents[2] / "src" / "wideangle"


def constants_of(path: str, value: str, prefix: str = "") -> dict[str, str]:
    """Constants of a file that stand for defaults, and what they are."""
    found = re.findall(rf"^([A-Z_]+) = ({value})$", (SOURCE / path).read_text("utf-8"), re.M)
    return {prefix + name: text for name, text in found}


CONSTANTS = constants_of("settings.py", r'"\w+"') | constants_of(
    "mixture_of_experts/stream.py", r"[\d*]+", "stream."
)


def apart(match: re.Match[str]) -> str:
    """One entry for each name, with the same type and text."""
    text = match[3].rstrip("\n")
    return "".join(f"{name}{match[2] or ''}\n{text}\n" for name in match[1].split(", "))


def either(match: re.Match[str]) -> str:
    """The values of a choice, none of them the default."""
    return match[1] + " or ".join(match[2].split(", "))


class Groups(griffe.Extension):
    """Rewrite docstrings and defaults when they are read."""

    def on_instance(self, *, obj: griffe.Object | griffe.Alias, **kwargs: Any) -> None:
        """Rewrite the docstring of a class or function."""
        if obj.docstring is not None:
            text = GROUP.sub(apart, obj.docstring.value)
            obj.docstring.value = CHOICE.sub(either, text)

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        """Defaults of data classes."""
        attr.value = CONSTANTS.get(str(attr.value), attr.value)

    def on_function_instance(self, *, func: griffe.Function, **kwargs: Any) -> None:
        """Defaults of functions."""
        for parameter in func.parameters:
            parameter.default = CONSTANTS.get(str(parameter.default), parameter.default)
