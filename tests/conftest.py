"""What every test shares: double precision, one random key, repeatable properties."""

import gc
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from programs import programs_of_this_user

# On a GPU each test process would otherwise reserve most of the memory for itself.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

# Most of the time of a test is compilation. What one process has compiled, the others read, and so
# does the next run, of any checkout; processes that tests start inherit it.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(programs_of_this_user()))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# Programs of tests run for milliseconds and would take seconds to optimise. Without optimising, and
# without XLA's newer way to compile loops, a CPU compiles several times as fast. In slow tests
# programs are optimised, unless they use the fixture compile_quickly.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_parallel_codegen_split_count=1"
    # Newer versions refuse to start with a flag that they do not know.
    + " --xla_cpu_use_fusion_emitters=false" * version("jaxlib").startswith("0.10."),
)
# Nobody reads where an operation of a program was written, and writing it down takes time.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

import jax
import pytest
from hypothesis import settings

from compiling import optimised
from saving import saving_at_once

# For this process only: the package itself never changes a global setting of JAX.
jax.config.update("jax_enable_x64", True)

# A shell that starts the tests in the background has them ignore Ctrl-C, and Python then never
# raises KeyboardInterrupt; tests of stopping need it whoever started them.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tracing makes many objects, few of them garbage: look for it less often than after every 700.
gc.set_threshold(50_000, 20, 100)

# A deadline would time the compiler; a database would make one run depend on the last.
settings.register_profile("wideangle", deadline=None, derandomize=True, database=None)
settings.load_profile("wideangle")


SLOW_LIMIT = 600
"""Seconds that a slow test may take; the limit of the others is in pyproject.toml."""

MAPS = Path("/proc/self/maps")
MAX_MAPS = 30_000
MEMORY = Path("/proc/self/statm")
MAX_MEMORY = 4 * 2**30
bound_memory_at = [MAX_MEMORY]
MAX_AGE = 30 * 24 * 3600
"""Seconds after which a compiled program is made anew, so that old ones do not pile up."""


COLLECTED = pytest.StashKey[dict[str, dict[str, Any]]]()
RUN = pytest.StashKey[str]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Of pytest-xdist: keep the name that workers give to what they share."""
    node.config.stash[RUN] = node.workerinput["testrunuid"]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Clean up once, after all workers: the fits they shared, and old programs."""
    if (run := session.config.stash.get(RUN, None)) is None:
        return
    for place in Path(tempfile.gettempdir()).glob(f"wideangle-*-{run}"):
        shutil.rmtree(place, ignore_errors=True)
    for program in Path(os.environ["JAX_COMPILATION_CACHE_DIR"]).glob("*"):
        if program.stat().st_mtime < time.time() - MAX_AGE:
            program.unlink(missing_ok=True)


@pytest.hookimpl(tryfirst=True)  # before tests are left out for their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    calls = ((item.nodeid, getattr(item, "callspec", None)) for item in items)
    config.stash[COLLECTED] = {name: call.params if call else {} for name, call in calls}
    if config.getoption("timeout", None) is not None:
        return  # a limit for all tests, from the command line
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_LIMIT))


@pytest.fixture(autouse=True, scope="module")
def forget_programs() -> Iterator[None]:
    """Every compiled program maps memory, and Linux allows a process 65,530 maps.

    The compiler does not survive that, so programs are given up halfway there.
    """
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MAX_MAPS:
        jax.clear_caches()
        gc.collect()


@pytest.fixture(autouse=True)
def bound_memory() -> Iterator[None]:
    """Programs take memory, too: two workers of slow tests were seen with ten GiB each."""
    yield
    if memory() > bound_memory_at[0]:
        jax.clear_caches()
        gc.collect()
        # Not all of it goes back to the system; programs must not be given up after every test.
        bound_memory_at[0] = max(MAX_MEMORY, memory() + 2**30)


def memory() -> int:
    """Bytes that this process has in memory; 0 where the system does not say."""
    pages = int(MEMORY.read_text().split()[1]) if MEMORY.exists() else 0
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def collected(pytestconfig: pytest.Config) -> dict[str, dict[str, Any]]:
    """All tests with their parameters, also those that are left out for their marks."""
    return pytestconfig.stash[COLLECTED]


@pytest.fixture
def key() -> jax.Array:
    return jax.random.key(0)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the command in this process: exit code, stdout, stderr, without colours."""
    from wideangle import cli

    def run(*arguments: Any) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["wideangle", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        out, err = (re.sub(r"\x1b\[[0-9;]*m", "", text) for text in capsys.readouterr())
        return stopped.value.code, out, err

    return run


@pytest.fixture
def save_at_once() -> Iterator[None]:
    """Checkpoints after every chunk or sweep."""
    with saving_at_once():
        yield


@pytest.fixture
def compile_quickly() -> None:
    """For slow tests whose programs are not worth optimising."""


@pytest.fixture(autouse=True)
def optimise_what_runs_for_long(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Here, and in the processes that a slow test starts."""
    slow = request.node.get_closest_marker("slow") is not None
    if not slow or "compile_quickly" in request.fixturenames:
        yield
        return
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "0")
    with optimised(True):
        yield
