"""Options that several commands share."""

from typing import Annotated

import typer

Seed = Annotated[
    int,
    typer.Option(min=0, help="Fixes every random draw: the same seed gives the same numbers."),
]
