"""``wideangle predict``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from wideangle.cli import options as opt
from wideangle.cli import printing


def predict(
    run: opt.RunFolder,
    data: opt.Data,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File to write: .csv, .tsv, .parquet, .json or .jsonl; by default CSV on "
            "standard output.",
        ),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", help="Column of the file to copy, such as an id; may be repeated."),
    ] = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Apply a run to new rows, in their order.

    Example: `wideangle predict run new.csv --keep id -o predicted.csv`.

    A classifier gives the class, the probability of each class, and the uncertainty in nats; with
    experts also its part that more data would remove. Other models give how much a row uses each
    component; with features also the log density of the row, and how far it is from its
    reconstruction.

    Words that were not there in training count as missing, or as rare ones where a column has such;
    which ones is said.
    """
    from wideangle.runs.folder import read_run
    from wideangle.runs.predict import predict_file, write_predictions

    if output is None and as_json:
        raise ValueError("--json describes the file that -o names: set -o too.")
    done = predict_file(read_run(run), data, keep=tuple(keep or ()))
    if not quiet:
        for note in done.notes:
            printing.say(note)
    write_predictions(done.frame, output, source=data)
    summary: dict[str, Any] = {"output": str(output), "n_rows": len(done.frame), **done.scores}
    if as_json:
        printing.show_json({**summary, "notes": done.notes})
    elif output is not None and not quiet:
        printing.say(f"{output}: {len(done.frame):,} rows")
        for name, value in done.scores.items():
            printing.say(f"{name.replace('_', '-')} {value:.3f} (target column found)")
