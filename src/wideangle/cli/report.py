"""``wideangle report``."""

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
) -> None:
    """Write one self-contained HTML page about a run: open it in any browser, without a network.

    Example: `wideangle report run -o page.html`.

    Needs the report extra: `pip install "wideangle[report]"`.
    """
    from wideangle.report import page
    from wideangle.runs.folder import read_run

    found = read_run(run)
    place = output or run / "report.html"
    page.write(found, place)
    typer.echo(str(place))
