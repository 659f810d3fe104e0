"""Running cells: each once, with a record as soon as it is finished.

With an accelerator the mixtures run in this process, one after the other, so that JAX compiles
once for each shape, and splits of a row that is sampled at once, in one program; baselines and
latent features run in other processes. Without one, and on a Dask cluster, all cells run in other
processes.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from wideangle_lab import machine
from wideangle_lab.paper.cells import FEATURES, Cell
from wideangle_lab.paper.classifiers import execute_many
from wideangle_lab.paper.efforts import kind_of
from wideangle_lab.paper.records import Outcome, Record, Tunings, find, keep, known_tunings
from wideangle_lab.paper.schedule import cluster, processes, spread
from wideangle_lab.paper.suites import EXECUTE, HEADLINE

Say = Callable[[str], None]


def say(line: str) -> None:
    """Print at once, also into a pipe."""
    print(line, flush=True)


@dataclass
class Report:
    """Outcome of the cells."""

    finished: list[Record] = field(default_factory=list)
    already_done: list[Record] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    left: list[Cell] = field(default_factory=list)
    """Not started, or not finished, within the time."""


class Clock:
    """The remaining time, and the times of earlier cells."""

    def __init__(self, budget: float | None) -> None:
        self.end = None if budget is None else time.monotonic() + budget
        self.taken: dict[tuple[str, str], float] = {}

    def left(self) -> float:
        """Seconds."""
        return float("inf") if self.end is None else self.end - time.monotonic()

    def allows(self, cell: Cell) -> bool:
        """Whether a cell may start: the last one of its kind must fit into the remaining time.

        Uses the last time of its row, or else the longest on its data set.
        """
        on_data = [seconds for (data, _), seconds in self.taken.items() if data == cell.data]
        longest = max(on_data, default=0.0)
        return self.left() > self.taken.get((cell.data, cell.method), longest)

    def note(self, cell: Cell, seconds: float) -> None:
        """Remember how long a cell took."""
        self.taken[cell.data, cell.method] = seconds


def run(
    cells: Iterable[Cell],
    folder: Path,
    *,
    jobs: int = 1,
    dask: str | None = None,
    budget: float | None = None,
    say: Say = say,
) -> Report:
    """Run the cells that have no record yet, until the time is up.

    Parameters
    ----------
    jobs
        Number of other processes; 1 runs everything in this process.
    dask
        Address of a Dask scheduler, whose workers then run everything.
    budget
        Seconds after which no cell is started; a running cell of this process is finished.
    """
    report, clock = Report(), Clock(budget)
    todo = []
    for cell in cells:
        record = find(folder, cell)
        if record is None:
            todo.append(cell)
        else:
            report.already_done.append(record)
    say(f"{len(report.already_done)} cells are there, {len(todo)} to run, records in {folder}")
    job = _Job(folder, report, clock, say)
    remote = [cell for cell in todo if dask or (jobs > 1 and not _wants_accelerator(cell))]
    remote_paths = {cell.path for cell in remote}
    local = [cell for cell in todo if cell.path not in remote_paths]
    where = cluster(dask) if dask else processes(min(jobs, len(remote) or 1))
    beside = threading.Thread(target=job.run_beside, args=(where, remote)) if remote else None
    if beside:
        beside.start()
    batches = _batches(local)
    for place, batch in enumerate(batches):
        job.run_here(batch, f"{place + 1} of {len(batches)}")
    if beside:
        beside.join()
    say(
        f"{len(report.finished)} finished, {len(report.failed)} failed, {len(report.left)} left for"
        " another time"
    )
    return report


def run_one(cell: Cell, known: Tunings) -> tuple[Outcome, dict[str, Any]]:
    """The result of a cell, with machine, versions, commit, and its seconds of all cores."""
    return run_batch([cell], known)[0]


def run_batch(cells: Sequence[Cell], known: Tunings) -> list[tuple[Outcome, dict[str, Any]]]:
    """The results of cells that are fitted together; each has its share of the seconds."""
    where, spent = machine.describe(), time.process_time()
    if len(cells) == 1:
        outcomes = [EXECUTE[cells[0].suite](cells[0], known)]
    else:
        outcomes = execute_many(cells, known)
    seconds = (time.process_time() - spent) / len(cells)
    about = {**where, "device": device(cells[0]), "cpu_seconds": seconds}
    return [(outcome, about) for outcome in outcomes]


def _batches(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Cells that run together: splits of a row that is sampled on an accelerator."""
    found: dict[Any, list[Cell]] = {}
    for cell in cells:
        alone = kind_of(cell) != "mcmc" or not _wants_accelerator(cell)
        found.setdefault(cell.path if alone else str(replace(cell, seed=0)), []).append(cell)
    return list(found.values())


def _or_raise(result: Any) -> Any:
    if isinstance(result, Exception):
        raise result
    return result


def device(cell: Cell) -> str:
    """The device used; baselines do not use JAX, and must not initialise it."""
    if kind_of(cell) == "baseline":
        return "cpu"
    import jax

    return jax.devices()[0].device_kind


def _wants_accelerator(cell: Cell) -> bool:
    if kind_of(cell) in ("baseline", FEATURES):
        return False
    import jax

    return jax.default_backend() != "cpu"


class _Job:
    """Cells of one run, in this process and in others; writes and reports their records."""

    def __init__(self, folder: Path, report: Report, clock: Clock, say: Say) -> None:
        self.folder, self.report, self.clock, self.say = folder, report, clock, say

    def run_here(self, cells: list[Cell], place: str) -> None:
        """Cells that run together, in this process, if there is time."""
        if not self.clock.allows(cells[0]):
            self.report.left += cells
            return
        start = time.monotonic()
        known = known_tunings(self.folder, cells[0].data)
        try:
            results: list[Any] = run_batch(cells, known)
        except Exception as error:  # reported with each cell
            results = [error] * len(cells)
        for cell, result in zip(cells, results, strict=True):
            self.settle(cell, partial(_or_raise, result))
        self.clock.note(cells[0], time.monotonic() - start)
        self.say(f"    {place}; {self.clock.left():.0f} s left")

    def run_beside(self, where: AbstractContextManager[Executor], cells: list[Cell]) -> None:
        """All cells on an executor."""
        with where as executor:
            self.report.left += spread(executor, cells, self._submit, self.settle, self.clock.left)

    def _submit(self, executor: Executor, cell: Cell) -> Future:
        return executor.submit(run_one, cell, known_tunings(self.folder, cell.data))

    def settle(self, cell: Cell, work: Callable[[], tuple[Outcome, Mapping[str, Any]]]) -> None:
        """Report a failed cell, which has no record, and continue with the others."""
        try:
            record = keep(self.folder, cell, *work())
        except Exception as error:  # whatever it is: the run goes on
            self.report.failed[cell.label] = "".join(traceback.format_exception(error))
            self.say(f"{cell.label}: failed: {type(error).__name__}: {error}")
            return
        self.report.finished.append(record)
        seconds = sum(record.data["seconds"].values())
        self.say(f"{cell.label}: {HEADLINE[cell.suite](record)}, {seconds:.0f} s")
