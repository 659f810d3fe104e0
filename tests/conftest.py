"""What every test shares: double precision, one random key, repeatable properties."""

import gc
import os
import signal
from collections.abc import Iterator

# On a GPU each test process would otherwise reserve most of the memory for itself.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import pytest
from hypothesis import settings

# For this process only: the package itself never changes a global setting of JAX.
jax.config.update("jax_enable_x64", True)

# A shell that starts the tests in the background has them ignore Ctrl-C, and Python then never
# raises KeyboardInterrupt; tests of stopping need it whoever started them.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A deadline would time the compiler; a database would make one run depend on the last.
settings.register_profile("wideangle", deadline=None, derandomize=True, database=None)
settings.load_profile("wideangle")


@pytest.fixture(autouse=True, scope="module")
def forget_programs() -> Iterator[None]:
    """Every compiled program maps memory: thousands in one process meet the limit of the system.

    The compiler does not survive that, so what a module has compiled is given up at its end.
    """
    yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture
def key() -> jax.Array:
    return jax.random.key(0)


@pytest.fixture
def compile_quickly() -> Iterator[None]:
    """For programs that run for milliseconds and would take seconds to optimise."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
