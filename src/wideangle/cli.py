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


@app.command()
def reproduce(
    tables: Annotated[
        list[str],
        typer.Argument(
            help="Suites (`classifiers`, `small-data`, `features`) or numbers of the paper's "
            "tables (1 to 5)."
        ),
    ],
    data: Annotated[
        list[str] | None, typer.Option("--data", help="Only these data sets; may be repeated.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option("--method", help="Only these rows, such as BMEM-MABN-I.")
    ] = None,
    experts: Annotated[
        list[int] | None, typer.Option("--experts", help="Only these numbers of experts.", min=1)
    ] = None,
    size: Annotated[
        list[int] | None, typer.Option("--size", help="small-data: numbers of rows.", min=1)
    ] = None,
    seed: Annotated[list[int] | None, typer.Option("--seed", help="Seeds.", min=0)] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder of the records; by default results/paper."),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick/--full", help="A few rows, short chains: shows that it runs."),
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Processes for baselines and features.")] = 1,
    budget_seconds: Annotated[
        float | None, typer.Option(min=0, help="Begin no cell after this time.")
    ] = None,
    n_warmup: Annotated[int | None, typer.Option(min=0, help="Of the chains.")] = None,
    n_draws: Annotated[int | None, typer.Option(min=1, help="Of the chains.")] = None,
    n_chains: Annotated[int | None, typer.Option(min=1, help="Of the sampler.")] = None,
    n_passes: Annotated[int | None, typer.Option(min=1, help="Of MAP and VI.")] = None,
    max_rows: Annotated[
        int | None, typer.Option(min=10, help="Most training and test rows.")
    ] = None,
    tune: Annotated[
        bool | None, typer.Option(help="Choose settings on a part of the training rows.")
    ] = None,
) -> None:
    """Run the paper's tables on real data, with baselines and controls.

    With `--quick` and no `--data` generated rows are used, so no file is needed.

    Every finished cell is a record in the folder; cells that have one are not run again, so a run
    that was stopped goes on where it was. Data files: see `wideangle datasets`.
    """
    from wideangle.bench.machine import describe
    from wideangle.paper.cells import FULL, QUICK
    from wideangle.paper.feature_methods import LENGTH
    from wideangle.paper.reproduce import FOLDER, SUITES, Choice
    from wideangle.paper.reproduce import reproduce as run

    changes = {
        "n_warmup": n_warmup,
        "n_draws": n_draws,
        "n_chains": n_chains,
        "n_passes": n_passes,
        "max_rows": max_rows,
        "tune": tune,
    }
    only_features = set(tables) == {"features"}
    usual = LENGTH if only_features else FULL
    made = "block_images" if only_features else "experts"
    effort = (QUICK if quick else usual)._replace(
        **{name: value for name, value in changes.items() if value is not None}
    )
    choice = Choice(
        data=tuple(data or ((made,) if quick and set(tables) <= {*SUITES} else ())),
        methods=tuple(method or ()),
        experts=tuple(experts or ((5,) if quick else ())),
        sizes=tuple(size or ((200,) if quick else ())),
        seeds=tuple(seed or ((0, 1) if quick and "small-data" in tables else ())),
        effort=effort,
    )
    folder = out or (FOLDER.with_name("paper-quick") if quick else FOLDER)
    report = run(tables, choice, folder, describe(), jobs=jobs, budget=budget_seconds)
    if report.failed:
        _stop(f"{len(report.failed)} cells failed: {', '.join(report.failed)}")


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
