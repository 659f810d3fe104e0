"""``wideangle demo``."""

from pathlib import Path
from typing import Annotated

import typer

from wideangle.cli.options import Seed


def demo(
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="Folder for the pages; a new one, or that of an earlier demo."
        ),
    ] = Path("wideangle-demo"),
    seed: Seed = 0,
) -> None:
    """See in a minute or two what the library is for.

    Fits a mixture of experts and latent features to simulated data, prints how they do next to
    logistic regression and PCA, and writes one page with links to a report on each fit. Needs the
    extra `report`: `pip install ".[report]"` in a checkout.
    """
    from wideangle.demo import run

    run(output=output, seed=seed)
