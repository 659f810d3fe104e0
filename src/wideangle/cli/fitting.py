"""What both commands of ``wideangle train`` do once their options are known."""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from wideangle.cli import printing

if TYPE_CHECKING:
    from wideangle.frames.learn import Plan
    from wideangle.runs.folder import Kind, Run
    from wideangle.runs.partial import Partial
    from wideangle.runs.train import Job


def make_job(
    kind: Kind,
    data: Path,
    target: str | None,
    plan: Plan,
    chosen: dict[str, Any],
    header: bool,
    missing: list[str] | None,
    held_out: float,
    seed: int,
) -> Job:
    """What to fit to what, from the options of a command."""
    from wideangle.frames.encoding import Reading
    from wideangle.runs.train import Job

    reading = Reading(header, tuple(missing or ()))
    command = ("wideangle", *sys.argv[1:])
    return Job(
        kind, data, target, reading, plan, chosen, held_out=held_out, seed=seed, command=command
    )


def run(job: Job, output: Path, *, resume: bool, force: bool, as_json: bool, quiet: bool) -> None:
    """Train, write, show; a run that was interrupted says what it left and how to go on."""
    from wideangle.runs.folder import check_free
    from wideangle.runs.partial import Partial
    from wideangle.runs.train import Interrupted, train
    from wideangle.storage import StorageError

    check_free(output, force=force)
    if quiet:
        job = replace(job, options={**job.options, "progress": False})
    with Partial(output, job, resume=resume, force=force) as partial:
        try:
            fitted = train(
                replace(job, checkpoint=partial.checkpoint),
                (lambda _: None) if quiet else printing.say,
            )
        except (Interrupted, KeyboardInterrupt) as stopped:
            _stopped(stopped, partial)
        except StorageError as error:  # a checkpoint that cannot be written, or read
            hint = f" What was saved before is in {partial.folder}." * partial.holds_something
            raise StorageError(f"{error}{hint}") from error
        _write(fitted, output, force)
        partial.done()
    if not quiet:
        for sentence in fitted.metrics["warnings"]:
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
        hint = f"kept in {partial.folder}; the same command with --resume goes on"
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
    rows = [("rows", f"{m['n_train']:,} to learn from, {m['n_test']:,} held out")]
    if "accuracy" in m:
        guess = f"(most frequent class: {m['accuracy_of_guess']:.3f})"
        rows.append(("accuracy", f"{_plus(m, 'accuracy', '.3f')} {guess}"))
        guess = f"(class frequencies: {m['log_loss_of_guess']:.3f})"
        rows.append(("log-loss", f"{_plus(m, 'log_loss', '.3f')} {guess}"))
        rows.append(("calibration error", f"{m['calibration_error']:.3f}"))
    if "log_likelihood" in m:
        rows.append(("log-likelihood of a row", _plus(m, "log_likelihood", ".2f")))
    for key, name in (("reconstruction", "reconstruction error"), ("hidden", "hidden entries")):
        if f"{key}_error" in m:
            guess = f"(column means: {m[f'{key}_error_of_mean']:.3f})"
            rows.append((name, f"{m[f'{key}_error']:.3f} {guess}"))
    rows += [(name, value) for name, value in m["facts"]]
    times = [f"{name} {value:.1f}" for name, value in m["seconds"].items()]
    return [*rows, ("seconds", ", ".join(times))]


def _plus(metrics: dict[str, Any], key: str, form: str) -> str:
    error = metrics[f"{key}_error"]
    return f"{metrics[key]:{form}}" + ("" if error is None else f" ± {error:{form}}")
