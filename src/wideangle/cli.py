"""The ``wideangle`` command: parse, call, print."""

from pathlib import Path
from typing import Annotated

import typer

from wideangle import __version__

app = typer.Typer(
    name="wideangle",
    help="Bayesian latent-variable models whose components are pushed apart.\n\n"
    "Start with `wideangle demo`: it needs no data and draws one picture.",
    rich_markup_mode="markdown",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Seed = Annotated[
    int,
    typer.Option(min=0, help="Fixes every random draw: the same seed gives the same numbers."),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"wideangle {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    pass


@app.command()
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


@app.command()
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
) -> None:
    """Measure speed and effective samples per second against other libraries.

    Close other programs first: times below a factor of 1.5 apart are noise on a busy machine.
    Needs the bench extra: `pip install "wideangle[bench]"`.
    """
    from wideangle.bench import run

    run(output=output, quick=quick, seed=seed)


@app.command()
def datasets(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the data sets of the paper: which files are here, which are stand-ins.

    Files are looked for in the folder named by the variable WIDEANGLE_DATA, then in your cache.
    """
    from wideangle.datasets.listing import run

    run(as_json=as_json)


def main() -> None:
    """Run the command line; an error of the user's becomes one sentence and exit code 2."""
    try:
        app(prog_name="wideangle")
    except ModuleNotFoundError as error:
        if (error.name or "wideangle").startswith("wideangle"):
            raise
        _stop(f'{error.name} is not installed; try: pip install "wideangle[report,bench]"')
    except OSError as error:
        _stop(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except ValueError as error:
        _stop(str(error))


def _stop(message: str) -> None:
    typer.echo(f"wideangle: {' '.join(message.split())}", err=True)
    raise SystemExit(2)
