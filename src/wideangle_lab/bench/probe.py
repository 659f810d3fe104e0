"""Time and peak memory of one unit of work, in a separate process.

``python -m wideangle_lab.bench.probe WORK ROWS COLUMNS COMPONENTS SEED REPEATS`` prints them as
JSON: bytes at the peak of a call after compilation, data included, and CPU seconds of each repeat.
It uses one thread and measures CPU time, so that concurrent probes and other programs have little
effect.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
ONE_THREAD = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "NUMBA_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
}


class Task(NamedTuple):
    """A unit of work and its size: rows, columns, components."""

    work: str
    size: tuple[int, ...]


class Cost(NamedTuple):
    """Costs of one task."""

    peak: int
    """Peak memory in bytes."""
    seconds: list[float]


def probe(tasks: Iterable[Task], seed: int, repeats: int) -> dict[Task, Cost]:
    """Costs of tasks, each in a fresh process, as many at once as there are cores."""

    def one(task: Task) -> Cost:
        numbers = map(str, (*task.size, seed, repeats))
        command = [sys.executable, "-m", __name__, task.work, *numbers]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=os.environ | ONE_THREAD
        )
        if done.returncode:
            raise RuntimeError(f"{task} failed:\n{done.stderr}")
        return Cost(**json.loads(done.stdout))

    tasks = list(tasks)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with ThreadPoolExecutor(cores) as pool:
        return dict(zip(tasks, pool.map(one, tasks), strict=True))


def forget_peak() -> None:
    """Reset the peak memory, if the system supports it.

    Generating data and compiling leave free memory that is not returned to the system; a compiler
    needs more than a small problem, and about the same amount for each size.
    """
    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        CLEAR.write_text("5", encoding="ascii")
    except (AttributeError, OSError):
        return


def peak_bytes() -> int:
    """Peak resident memory since :func:`forget_peak`, or since the start."""
    try:
        lines = STATUS.read_text(encoding="ascii").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak


def main(arguments: list[str]) -> None:
    """Do the work and print its cost."""
    import jax

    from wideangle_lab.bench.harness import Size
    from wideangle_lab.bench.works import WORKS

    name, *numbers = arguments
    *size, seed, repeats = map(int, numbers)
    work = WORKS[name](seed, Size(*size))
    for _ in range(2):  # some programs are compiled only in the second call
        jax.block_until_ready(work())
    forget_peak()
    jax.block_until_ready(work())
    peak = peak_bytes()
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        jax.block_until_ready(work())
        seconds.append(time.process_time() - began)
    print(json.dumps(Cost(peak, seconds)._asdict()))


if __name__ == "__main__":
    main(sys.argv[1:])
