"""How programs of tests are compiled; see tests/conftest.py."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax

OPTION = "jax_disable_most_optimizations"


@contextmanager
def optimised(wanted: bool) -> Iterator[None]:
    """Optimise programs, or do not: small fits are nearly all compilation."""
    before = jax.config.values[OPTION]
    jax.config.update(OPTION, not wanted)
    try:
        yield
    finally:
        jax.config.update(OPTION, before)
