"""Commands of the lab, as ``wideangle`` shows them: parse, call, print."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

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
            "several times. `defaults` and `regression`, default fits of real tables, and "
            "`clusters`, a study of their number, take long, have records of their own, and go "
            "on where they were stopped.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help="Of these: this table only; may be given several times."),
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Of these: repeat fits that the record has, not rivals."),
    ] = False,
    part: Annotated[
        str | None,
        typer.Option(
            "--part",
            help="Of these: `fit` (ours), `inferences` (ours, map and vi) or `rivals`; `study`, "
            "`chains` (on a GPU) or `speed`.",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", help="Of these: fits at once; seconds are left out.", min=1),
    ] = None,
) -> None:
    """Measure speed and effective samples per second against other libraries.

    Close other programs first: times below a factor of 1.5 apart are noise on a busy machine.
    Needs a checkout and the bench extra: `pip install -e ".[bench]"`.
    """
    from wideangle_lab.bench import run

    given = {"only": only, "again": again, "part": part, "jobs": jobs}
    of_panels = {name: value for name, value in given.items() if value}
    run(output=output, quick=quick, seed=seed, areas=area or [], **of_panels)


def reproduce(
    tables: Annotated[
        list[str],
        typer.Argument(
            help="Numbers of the paper's tables (1 to 13), `all` of them, or suites of cells "
            "(`classifiers`, `features`)."
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
    seed: Annotated[
        list[int] | None, typer.Option("--seed", help="Seeds of splits and fits.", min=0)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the records; by default results.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Generated rows, short chains: shows that it runs.")
    ] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="The paper's protocol: 5-fold cross-validation of every row, long chains.",
        ),
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Processes of this machine.")] = 1,
    dask: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler: its workers run the cells.")
    ] = None,
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
    """Run the paper's tables, with baselines and controls, next to its printed numbers.

    Every finished cell is a record in the folder; cells that have one are not run again, so a run
    that was stopped continues where it was. Cells that several tables need are run once. Between
    `--quick` and `--full` lies what the records of this repository were made with: five splits, and
    settings of mixtures chosen on a fifth of the training rows of the first. Data files: see
    `wideangle datasets`.
    """
    from wideangle_lab.paper import reproduce as paper

    if quick and full:
        raise ValueError("--quick and --full exclude each other.")
    changes = {
        "n_warmup": n_warmup,
        "n_draws": n_draws,
        "n_chains": n_chains,
        "n_passes": n_passes,
        "max_rows": max_rows,
        "tune": tune,
    }
    level = "quick" if quick else "full" if full else "usual"
    choice = paper.Choice(
        data=tuple(data or ()),
        methods=tuple(method or ()),
        experts=tuple(experts or ((5,) if quick else ())),
        seeds=tuple(seed or ()),
        level=level,
        changes={name: value for name, value in changes.items() if value is not None},
    )
    folder = out or (paper.FOLDER if level == "usual" else paper.FOLDER / level)
    report = paper.reproduce(tables, choice, folder, jobs=jobs, dask=dask, budget=budget_seconds)
    if report.failed:
        raise ValueError(f"{len(report.failed)} cells failed: {', '.join(report.failed)}")


def fetch(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Names from `wideangle datasets`; without one, all that can be had."),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Folder; by default that of WIDEANGLE_DATA, or your cache."),
    ] = None,
    given: Annotated[
        Path | None,
        typer.Option("--from", help="Originals that are here already: a folder, or the archive."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Make the file again.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the originals too.")] = False,
    accept_new: Annotated[
        bool,
        typer.Option(
            "--accept-new", help="Accept an original that changed since the first download."
        ),
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds without a byte until a try is given up.")
    ] = 30.0,
    tries: Annotated[int, typer.Option(min=1, help="Tries for each address.")] = 5,
) -> None:
    """Download the originals of data sets and convert them.

    A download that was stopped continues where it was. Checksums are compared where they are
    published; elsewhere the first download is trusted, and its checksum is kept.
    Needs a checkout of the source.
    """
    from wideangle_lab.originals.terminal import run

    run(
        names or (),
        to,
        given,
        force=force,
        keep=keep,
        accept_new=accept_new,
        timeout=timeout,
        tries=tries,
    )


def images(
    folder: Annotated[Path, typer.Argument(help="One folder of images for each class.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .npz file to write.")],
    words: Annotated[int, typer.Option(min=2, help="Size of the vocabulary.")] = 1000,
    train_fraction: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="Share of images that make the vocabulary.")
    ] = 0.7,
    jobs: Annotated[int, typer.Option(min=1, help="Processes that read images.")] = 1,
    seed: Seed = 0,
) -> None:
    """Turn folders of images into counts of visual words (dense SIFT, k-means).

    Needs a checkout and the images extra: `pip install -e ".[images]"`.
    """
    from wideangle_lab.originals import images as maker

    made = maker.bag_of_words(folder, words, seed, train_fraction=train_fraction, n_jobs=jobs)
    maker.save(made, output)
    typer.echo(f"{output}: {made.counts.shape[0]:,} images, {len(made.label_names)} classes")


datasets = typer.Typer(
    name="datasets", invoke_without_command=True, rich_markup_mode="markdown", add_completion=False
)
datasets.command()(fetch)
datasets.command()(images)


@datasets.callback()
def _list(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the data sets of the paper: which files are here, which are stand-ins, how to get them.

    Files are looked for in the folder named by the variable WIDEANGLE_DATA, then in your cache.
    """
    from wideangle_lab.datasets.listing import run

    if context.invoked_subcommand is None:
        run(as_json=as_json)


def _app_of(function: Callable[..., None]) -> typer.Typer:
    """One command as a separate application."""
    app: Any = typer.Typer(rich_markup_mode="markdown", add_completion=False)
    app.command()(function)
    return app


APPS = {"bench": _app_of(bench), "reproduce": _app_of(reproduce), "datasets": datasets}
"""Applications by the name of their command."""
