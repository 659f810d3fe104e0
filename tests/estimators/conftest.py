"""What the tests of the mixture of experts share."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture
def compile_quickly() -> Iterator[None]:
    """For programs that run for milliseconds and would take seconds to optimise."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
