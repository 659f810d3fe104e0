"""A bar that shows how far a fit is."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any

PATIENCE = 1.0
"""Seconds before a bar appears: a quick run prints nothing."""
COMPILING = "compiling, once for each shape of the data"


class Progress:
    """Context manager for a progress bar of rounds, the first ones of warm-up.

    By default (``show=None``) on a terminal only, and only if the run takes longer than a second.
    """

    def __init__(self, total: int, n_warmup: int, show: bool | None = None) -> None:
        self.total = total
        self.n_warmup = n_warmup
        self.show = None if show is None else bool(show)  # or a level, as in scikit-learn
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

    def at(self, done: int, what: str | None = None) -> None:
        """Show how many rounds are done, and the current activity if it is not a round."""
        if self._bar is None and (self.show or time.monotonic() - self._began >= PATIENCE):
            self._open()
        if self._bar is not None:
            what = what or ("warm-up" if done < self.n_warmup else "sampling")
            self._bar.update(self._task, completed=done, description=what)

    def compiling(self) -> None:
        """Show that compilation is about to take some seconds."""
        self._open()
        self.at(0, COMPILING)

    def _open(self) -> None:
        if self.show is False or self._bar is not None:
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
        # In a log, where nothing can be redrawn, only the last line is written.
        self._bar = Bar(*columns, console=console, transient=console.is_terminal)
        self._task = self._bar.add_task("warm-up", total=self.total)
        self._bar.start()
