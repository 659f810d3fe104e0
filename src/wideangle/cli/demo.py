"""``wideangle demo``."""

from pathlib import Path
from typing import Annotated

import typer

from wideangle.cli.options import Seed


def demo(
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Folder for the pages; a new one, or of a past demo."),
    ] = Path("wideangle-demo"),
    seed: Seed = 0,
) -> None:
    """See in a minute what the library is for.

    Fits a mixture of experts and latent features to data it draws itself, prints how they do beside
    logistic regression and PCA, and writes one page with links to a report on each fit. Needs the
    report extra: `pip install "wideangle[report]"`.
    """
    from wideangle.demo import run

    run(output=output, seed=seed)
