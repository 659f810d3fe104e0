"""Running cells: each once, the rest another time, records as they come.

Baselines and latent features need no accelerator and run in processes of their own beside the main
one, where the mixtures run one after the other, so that JAX compiles once for each shape.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from wideangle.paper.baselines import BASELINES
from wideangle.paper.cells import Cell
from wideangle.paper.feature_methods import SUITE as FEATURES
from wideangle.paper.features import headline as feature_headline
from wideangle.paper.records import Record, find, keep
from wideangle.paper.suites import EXECUTE

Say = Callable[[str], None]


def say(line: str) -> None:
    """Print at once, also into a pipe."""
    print(line, flush=True)


@dataclass
class Report:
    """What became of the cells."""

    finished: list[Record] = field(default_factory=list)
    there_before: list[Record] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    left: list[Cell] = field(default_factory=list)
    """Not begun, or not finished, when the time was over."""


class Clock:
    """The time that is left, and what cells of a kind have taken."""

    def __init__(self, budget: float | None) -> None:
        self.end = None if budget is None else time.monotonic() + budget
        self.taken: dict[tuple[str, str], float] = {}

    @property
    def left(self) -> float:
        """Seconds."""
        return float("inf") if self.end is None else self.end - time.monotonic()

    def allows(self, cell: Cell) -> bool:
        """Whether a cell may begin: the last one of its kind must fit into what is left."""
        return self.left > self.taken.get((cell.data, cell.method), 0.0)

    def note(self, cell: Cell, seconds: float) -> None:
        """Remember how long a cell took."""
        self.taken[cell.data, cell.method] = seconds


def run(
    cells: Iterable[Cell],
    folder: Path,
    where: Mapping[str, Any],
    *,
    jobs: int = 1,
    budget: float | None = None,
    say: Say = say,
) -> Report:
    """Run the cells that have no record yet, until the time is over.

    Parameters
    ----------
    where
        Machine, versions and commit, written into every record.
    jobs
        Processes for the baselines and the latent features; 1 runs them here.
    budget
        Seconds after which no cell is begun; a cell that runs in this process is finished.
    """
    report, clock = Report(), Clock(budget)
    todo = []
    for cell in cells:
        record = find(folder, cell)
        if record is None:
            todo.append(cell)
        else:
            report.there_before.append(record)
    say(f"{len(report.there_before)} cells are there, {len(todo)} to run, records in {folder}")
    apart = [cell for cell in todo if jobs > 1 and _without_accelerator(cell)]
    here = [cell for cell in todo if cell not in apart]
    with _Workers(apart, folder, where, jobs, report, say) as workers:
        for place, cell in enumerate(here):
            if not clock.allows(cell):
                report.left.append(cell)
                continue
            begun = time.monotonic()
            _settle(report, cell, lambda cell=cell: run_one(cell, folder, where), say)
            clock.note(cell, time.monotonic() - begun)
            say(f"    {place + 1} of {len(here)}; {clock.left:.0f} s left")
        workers.finish(clock)
    say(
        f"{len(report.finished)} finished, {len(report.failed)} failed, {len(report.left)} left for"
        " another time"
    )
    return report


def run_one(cell: Cell, folder: Path, where: Mapping[str, Any]) -> Record:
    """Run a cell and write its record."""
    outcome = EXECUTE[cell.suite](cell, folder)
    return keep(folder, cell, outcome, {**where, "device": device(cell)})


def _without_accelerator(cell: Cell) -> bool:
    return cell.method in BASELINES or cell.suite == FEATURES


def device(cell: Cell) -> str:
    """What did the arithmetic; baselines do not touch JAX, and must not wake it up."""
    if cell.method in BASELINES:
        return "cpu"
    import jax

    return jax.devices()[0].device_kind


def _settle(report: Report, cell: Cell, work: Callable[[], Record], say: Say) -> None:
    """One cell that fails must not take the others with it; it is told, and has no record."""
    try:
        record = work()
    except Exception as error:  # whatever it is: the run goes on
        report.failed[cell.label] = "".join(traceback.format_exception(error))
        say(f"{cell.label}: failed: {type(error).__name__}: {error}")
        return
    report.finished.append(record)
    seconds = sum(record.data["seconds"].values())
    tell = feature_headline if cell.suite == FEATURES else _headline
    say(f"{cell.label}: {tell(record)}, {seconds:.0f} s")


def _headline(record: Record) -> str:
    metrics, used = record.metrics, record.diagnostics.get("n_used")
    text = f"accuracy {metrics['accuracy']:.2f} %, log-loss {metrics['log_loss']:.4f}"
    return text + (f", {used:.1f} experts used" if used is not None else "")


class _Workers:
    """Processes beside the main one; whatever still runs at the end is stopped."""

    def __init__(
        self,
        cells: list[Cell],
        folder: Path,
        where: Mapping[str, Any],
        jobs: int,
        report: Report,
        say: Say,
    ) -> None:
        self.cells, self.report, self.say = cells, report, say
        self.work = partial(run_one, folder=folder, where=dict(where))
        self.jobs, self.pool, self.futures = jobs, None, {}

    def __enter__(self) -> _Workers:
        if self.cells:
            from joblib.externals.loky import ProcessPoolExecutor

            # One thread each, and never the accelerator, whose memory is the main process's.
            alone = {
                "OMP_NUM_THREADS": "1",
                "NUMBA_NUM_THREADS": "1",
                "JAX_PLATFORMS": "cpu",
                "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
            }
            self.pool = ProcessPoolExecutor(min(self.jobs, len(self.cells)), env=alone)
            self.futures = {self.pool.submit(self.work, cell): cell for cell in self.cells}
        return self

    def finish(self, clock: Clock) -> None:
        """Collect what is done, waiting as long as there is time."""
        from concurrent.futures import as_completed

        waiting = dict(self.futures)
        try:
            limit = None if clock.end is None else max(clock.left, 0.0)
            for future in as_completed(self.futures, timeout=limit):
                _settle(self.report, waiting.pop(future), future.result, self.say)
        except TimeoutError:
            self.report.left += waiting.values()

    def __exit__(self, *_: Any) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=True, kill_workers=True)
