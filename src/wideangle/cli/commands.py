"""``wideangle demo``, ``wideangle predict`` and ``wideangle report``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from wideangle.cli import options as opt
from wideangle.cli import printing


def demo(
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Folder for the pages; a new one, or that of an earlier demo."
        ),
    ] = Path("wideangle-demo"),
    seed: opt.Seed = 0,
) -> None:
    """Fit two models to simulated data and write reports, in about a minute.

    The models are a mixture of experts and latent features. The command prints how they compare
    with logistic regression and PCA, and writes one page with links to a report on each fit. Needs
    the extra `report`: `pip install ".[report]"` in a checkout.
    """
    from wideangle.demo import run

    run(output=output, seed=seed)


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
        typer.Option(
            "--keep",
            metavar="COLUMN",
            help="Column of the file to copy, such as an id; may be repeated.",
        ),
    ] = None,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    """Apply a run to new rows, in their order.

    Example: `wideangle predict run new.csv --keep id -o predicted.csv`.

    A classifier gives the class, the probability of each class, the uncertainty in nats and its
    epistemic part, which more data would remove. A regressor gives the prediction, a 90 % interval
    and the same two as standard deviations. Other models give how much a row uses each component;
    with features also the log density of the row, and how far it is from its reconstruction.

    Categories that were not in the training data count as missing, or as rare where rare categories
    share a column; a note names them.
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


def report(
    run: opt.RunFolder,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The page to write; by default report.html in the run folder."
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(
            "--image",
            metavar="HEIGHTxWIDTH",
            help="Show components as images of this size: the columns are pixels, row by row.",
        ),
    ] = None,
) -> None:
    """Write one self-contained HTML page about a run: open it in any browser, without a network.

    Example: `wideangle report run -o page.html`; for pictures, `--image 28x28`.

    Needs the extra `report`: `pip install ".[report]"` in a checkout.
    """
    from wideangle.report import page
    from wideangle.runs.folder import read_run

    found = read_run(run)
    if image is not None:
        shape = _shape(image, len(found.columns))
        found = replace(found, settings={**found.settings, "image_shape": shape})
    place = output or run / "report.html"
    page.write(found, place)
    typer.echo(str(place))


def _shape(text: str, n_columns: int) -> list[int]:
    """Height and width of an image from text such as `28x28`."""
    sides = text.lower().split("x")
    if len(sides) != 2 or not all(side.isdecimal() for side in sides):  # noqa: PLR2004
        raise ValueError(f"--image wants HEIGHTxWIDTH, such as 28x28; got {text!r}.")
    height, width = map(int, sides)
    if height * width != n_columns:
        raise ValueError(
            f"--image {text}: {height} x {width} pixels are {height * width}, and the run has "
            f"{n_columns} columns."
        )
    return [height, width]
