"""Broken copies of a module, to show that a check would notice."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType


def mutant(module: ModuleType, old: str, new: str, **names: object) -> ModuleType:
    """A copy of ``module`` with one piece of its source replaced; the original is untouched.

    ``names`` are put into the copy afterwards, to hand it other broken parts.
    """
    source = inspect.getsource(module)
    assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times"
    copy = ModuleType(f"{module.__name__}_mutant_{abs(hash((old, new)))}")
    copy.__dict__["__file__"] = module.__file__
    sys.modules[copy.__name__] = copy  # annotations are looked up there
    exec(compile(source.replace(old, new), copy.__name__, "exec"), copy.__dict__)
    copy.__dict__.update(names)
    return copy
