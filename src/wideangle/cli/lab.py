"""Commands whose work is done by ``wideangle_lab``, which is not part of the installed package."""

from importlib import import_module
from typing import Any


class NoLabError(ImportError, ValueError):
    """The lab is not installed. A ValueError too: the command line shows those as one sentence."""


def lab(module: str) -> Any:
    """A module of ``wideangle_lab``; without the lab, the sentence that says where to get it."""
    try:
        return import_module(f"wideangle_lab.{module}")
    except ModuleNotFoundError as error:
        if error.name != "wideangle_lab":
            raise
        raise NoLabError(
            "this command needs wideangle_lab (benchmarks, the paper's tables, original data), "
            "which comes with the source of wideangle and not with the installed package: in a "
            "checkout, run `pip install -e .`"
        ) from error
