"""Programs of these tests run once, for milliseconds, and would take seconds to optimise."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def compile_quickly() -> Iterator[None]:
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
