"""``wideangle report``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from wideangle.cli import options as opt


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
    """Height and width of an image as `28x28` says them."""
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
