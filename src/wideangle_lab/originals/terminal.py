"""``wideangle datasets fetch``: messages and progress bars on the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from wideangle.checks import check_choice
from wideangle_lab.originals.download import DownloadError, Patience, Report
from wideangle_lab.originals.fetching import fetch
from wideangle_lab.originals.sources import RECIPES


def run(
    names: Iterable[str],
    folder: Path | None = None,
    given: Path | None = None,
    *,
    force: bool = False,
    keep: bool = False,
    accept_new: bool = False,
    timeout: float = Patience().timeout,
    tries: int = Patience().tries,
) -> None:
    """Fetch several data sets; continue after a failure."""
    names = list(dict.fromkeys(names)) or [name for name, r in RECIPES.items() if r.originals]
    for name in names:
        check_choice("name", name, RECIPES)
    if given and len(names) != 1:
        raise ValueError("--from goes with one name.")
    console, failed = Console(stderr=True, soft_wrap=True, highlight=False), []

    def note(sentence: str) -> None:
        console.print(sentence, markup=False)

    for name in names:
        with _bars(console) as bars:

            def progress(file: str, bars: Progress = bars) -> Report:
                task = bars.add_task(file, total=None)
                return lambda done, total: bars.update(task, completed=done, total=total)

            try:
                path = fetch(
                    name,
                    folder,
                    given=given,
                    force=force,
                    keep=keep,
                    accept_new=accept_new,
                    patience=Patience(timeout=timeout, tries=tries),
                    note=note,
                    progress=progress,
                )
                sys.stdout.write(f"{path}\n")
            except (DownloadError, ValueError) as error:
                failed.append(str(error))
    if failed:
        raise DownloadError(" | ".join(failed))


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
