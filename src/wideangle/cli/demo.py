"""``wideangle demo``."""

from pathlib import Path
from typing import Annotated

import typer

from wideangle.cli.options import Seed


def demo(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="The picture to write (PNG, PDF or SVG)."),
    ] = Path("wideangle-demo.png"),
    seed: Seed = 0,
) -> None:
    """See in a minute what the diversity prior does.

    Draws components from priors with and without repulsion, prints how far apart they are, and
    saves one picture. Needs the report extra: `pip install "wideangle[report]"`.
    """
    from wideangle.demo import run

    run(output=output, seed=seed)
