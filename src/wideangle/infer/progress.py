"""A progress bar on the host, drawn between compiled chunks."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

PATIENCE = 1.0
"""Seconds before a bar appears: a quick run prints nothing."""


class Progress:
    """Context manager with one method, :meth:`at`; prints only where someone can see it.

    Parameters
    ----------
    total
        Number of rounds of the whole run.
    n_warmup
        How many of them are warm-up.
    show
        True: always. False: never. None: only on a terminal, and only if the run takes longer
        than a second.
    """

    def __init__(self, total: int, n_warmup: int, show: bool | None = None) -> None:
        self.total = total
        self.n_warmup = n_warmup
        self.show = show
        self._bar: Any = None
        self._task: Any = None
        self._began = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def at(self, done: int) -> None:
        """Tell how many rounds are done."""
        if self._bar is None:
            self._open()
        if self._bar is not None:
            what = "warm-up" if done < self.n_warmup else "sampling"
            self._bar.update(self._task, completed=done, description=what)

    def _open(self) -> None:
        if self.show is False:
            return
        if self.show is None and time.monotonic() - self._began < PATIENCE:
            return
        # Imported on use: a run without a bar needs no Rich.
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        if self.show is None and not console.is_terminal:
            self.show = False
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        # In a log, where nothing can be redrawn, only the last line is written, and stays.
        self._bar = Bar(*columns, console=console, transient=console.is_terminal)
        self._task = self._bar.add_task("warm-up", total=self.total)
        self._bar.start()
