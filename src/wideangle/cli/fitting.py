"""What every command of ``wideangle train`` does once its options are known."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from wideangle.cli import printing

if TYPE_CHECKING:
    from wideangle.presentation.records import Card, Run
    from wideangle.runs.partial import Partial
    from wideangle.runs.train import Job


def run(job: Job, output: Path, *, resume: bool, force: bool, as_json: bool, quiet: bool) -> None:
    """Train, write, show; a run that was interrupted reports what it left and how to continue."""
    from wideangle.runs.folder import check_free
    from wideangle.runs.partial import Partial
    from wideangle.runs.train import WARNING, Interrupted, train
    from wideangle.storage import StorageError

    check_free(output, force=force)
    if quiet:
        job = replace(job, options={**job.options, "verbose": False})
    said: list[str] = []

    def say(sentence: str) -> None:
        said.append(sentence)
        if not quiet:
            printing.say(sentence)

    with Partial(output, job, resume=resume, force=force) as partial:
        try:
            fitted = train(
                replace(job, checkpoint=partial.checkpoint),
                say,
                lambda first: _write(first, output, force),
            )
        except (Interrupted, KeyboardInterrupt) as stopped:
            _stopped(stopped, partial)
        except StorageError as error:  # a checkpoint that cannot be written, or read
            hint = f" What was saved before is in {partial.folder}." * partial.holds_something
            raise StorageError(f"{error}{hint}") from error
        _write(fitted, output, force or job.refit)
        partial.done()
    if not quiet:
        for sentence in fitted.metrics["warnings"]:
            if f"{WARNING}{sentence}" not in said:
                printing.warn(sentence)
    if as_json:
        printing.show_json({"run": str(output), "kind": fitted.kind, "metrics": fitted.metrics})
        return
    printing.show_table(results(fitted), f"{output}: {fitted.kind}")
    if not quiet:
        printing.say(f"next: wideangle report {output}, wideangle predict {output} NEW-FILE")


def _stopped(stopped: BaseException, partial: Partial) -> NoReturn:
    done = str(stopped) or "stopped"
    if partial.holds_something:
        hint = f"kept in {partial.folder}; the same command with --resume continues"
    else:
        hint = "there was nothing to keep"
    typer.echo(f"wideangle: {done}: {hint}.", err=True)
    raise typer.Exit(130)


def _write(fitted: Run, output: Path, force: bool) -> None:
    """Write the run; where that fails, the work of hours is not thrown away."""
    from wideangle.runs.folder import write_run
    from wideangle.storage import StorageError

    try:
        write_run(fitted, output, force=force)
    except StorageError as error:
        place = Path(tempfile.mkdtemp(prefix="wideangle-")) / output.name
        try:
            write_run(fitted, place)
        except StorageError:
            shutil.rmtree(place.parent, ignore_errors=True)
            raise error from None
        raise StorageError(f"{error} The run, which is complete, is in {place} instead.") from error


def results(run: Run) -> list[tuple[str, str]]:
    """The metrics that matter, in words."""
    m = run.metrics
    again = "; the model that is kept was fitted again to all" * bool(run.settings.get("refit"))
    times = [f"{name} {value:.1f}" for name, value in m["seconds"].items()]
    return [
        ("rows", f"{m['n_train']:,} to learn from, {m['n_test']:,} held out{again}"),
        *((card.title.lower(), _cell(card)) for card in run.presentation.results(m)),
        *((name, value) for name, value in m["facts"]),
        ("seconds", ", ".join(times)),
    ]


def _cell(card: Card) -> str:
    return f"{card.value} ({card.note})" if card.note else card.value
