"""Running cells in other processes or on other machines.

An executor of :mod:`concurrent.futures` does the work: processes of joblib's loky, or a Dask
cluster, which gives the cells of a lost worker to another one. Workers write nothing; their results
are written here at once, so that a killed run keeps every finished cell.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wideangle_lab.paper.baselines import BASELINES
from wideangle_lab.paper.cells import Cell
from wideangle_lab.paper.methods import GRIDS
from wideangle_lab.paper.tuning import leader

RETRIES = 3
"""How often Dask restarts a cell whose worker was lost."""


def one_thread() -> dict[str, str]:
    """Environment of a worker with one thread."""
    return {
        "OMP_NUM_THREADS": "1",
        "NUMBA_NUM_THREADS": "1",
        # Never the accelerator, whose memory is the main process's.
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false",
    }


@contextmanager
def processes(n_jobs: int) -> Iterator[Executor]:
    """Processes of this machine; whatever still runs at the end is stopped.

    If psutil is installed, loky replaces workers whose memory has grown, for example by compiled
    programs, and warns in the thread that submits work. If warnings are errors, the warning would
    end that thread, and the run would wait for ever.
    """
    from joblib.externals.loky import ProcessPoolExecutor

    warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
    pool = ProcessPoolExecutor(n_jobs, env=one_thread())
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, kill_workers=True)


@contextmanager
def cluster(address: str) -> Iterator[Executor]:
    """Workers of a running Dask cluster; cells that still run at the end are cancelled."""
    from distributed import Client

    with Client(address) as client:
        executor = client.get_executor(retries=RETRIES)
        try:
            yield executor
        finally:
            executor.shutdown(wait=False)


def before(cells: Sequence[Cell]) -> dict[Path, Cell | None]:
    """For each cell, by its path, the one that must come first.

    Cells of one row and data set share their chosen settings, and so do rows that differ only by
    their diversity: the first cell of each chooses, and the others wait for it. A baseline chooses
    in its cell of split 0.
    """
    found: dict[Path, Cell | None] = {cell.path: None for cell in cells}
    first: dict[tuple[Any, ...], Cell] = {}
    choosing = [
        cell
        for cell in cells
        if (cell.effort.tune and cell.method in GRIDS) or cell.method in BASELINES
    ]
    for cell in sorted(choosing, key=lambda one: (leader(one.method) != one.method, one.seed)):
        row_key, base_key = (
            (cell.suite, cell.data, kind, row)
            for kind, row in (("row", cell.method), ("base", leader(cell.method)))
        )
        found[cell.path] = first.get(row_key) or first.get(base_key)
        first.setdefault(row_key, cell)
        first.setdefault(base_key, cell)
    return found


def spread(
    executor: Executor,
    cells: Sequence[Cell],
    submit: Callable[[Executor, Cell], Future],
    settle: Callable[[Cell, Callable[[], Any]], None],
    seconds_left: Callable[[], float],
) -> list[Cell]:
    """Run the cells in the order of their dependencies; returns those not finished in time."""
    needs = before(cells)
    waiting = list(cells)
    running: dict[Future, Cell] = {}
    done: set[Path] = set()
    while waiting or running:
        for cell in [one for one in waiting if _ready(needs[one.path], done)]:
            running[submit(executor, cell)] = cell
            waiting.remove(cell)
        left = seconds_left()
        limit = None if left == float("inf") else max(left, 0.0)
        finished, _ = wait(running, limit, FIRST_COMPLETED)
        if not finished:
            return [*running.values(), *waiting]
        for future in finished:
            cell = running.pop(future)
            settle(cell, future.result)
            done.add(cell.path)
    return []


def _ready(need: Cell | None, done: set[Path]) -> bool:
    return need is None or need.path in done
