"""Which cases of a test are run with the fast tests."""

from collections.abc import Iterable
from typing import Any

import pytest


def first_quick(cases: Iterable[Any], n: int = 1, **options: Any) -> list[Any]:
    """The first ``n`` cases as they are, and the others marked as slow.

    For faults put in on purpose, of which one shows that the check can fail, and for cases that
    take one way through the code. A tuple is a case of several arguments.
    """
    later = [case if isinstance(case, tuple) else (case,) for case in cases]
    marks = [()] * n + [pytest.mark.slow] * (len(later) - n)
    return [pytest.param(*c, marks=m, **options) for c, m in zip(later, marks, strict=True)]
