"""``wideangle bench``."""

from pathlib import Path
from typing import Annotated

import typer

from wideangle.cli.lab import lab
from wideangle.cli.options import Seed


def bench(
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The JSON record to write; by default results/bench/full.json."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small problems only: checks that it runs, not speed.")
    ] = False,
    seed: Seed = 0,
    area: Annotated[
        list[str] | None,
        typer.Option(
            "--area",
            "-a",
            help="Measure this area only and put it into the record that is there; may be given "
            "several times.",
        ),
    ] = None,
) -> None:
    """Measure speed and effective samples per second against other libraries.

    Close other programs first: times below a factor of 1.5 apart are noise on a busy machine.
    Needs a checkout and the bench extra: `pip install -e ".[bench]"`.
    """
    lab("bench").run(output=output, quick=quick, seed=seed, areas=area or [])
