"""``wideangle reproduce``."""

from pathlib import Path
from typing import Annotated

import typer

from wideangle.cli.lab import lab


def reproduce(
    tables: Annotated[
        list[str],
        typer.Argument(
            help="Numbers of the paper's tables (1 to 13), `all` of them, or suites of cells "
            "(`classifiers`, `features`, and `small-data`, a study of ours)."
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
            "--full", help="The paper's protocol: 5 splits, 5-fold cross-validation of every row."
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
    """Run the paper's tables, with baselines and controls, beside its printed numbers.

    Every finished cell is a record in the folder; cells that have one are not run again, so a run
    that was stopped goes on where it was. Cells that several tables need are run once. Between
    `--quick` and `--full` lies what the records of this repository were made with: one split, and
    settings chosen on a fifth of the training rows. Data files: see `wideangle datasets`.
    """
    paper = lab("paper.reproduce")
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
    small = quick and "small-data" in tables
    choice = paper.Choice(
        data=tuple(data or (("experts",) if small else ())),
        methods=tuple(method or ()),
        experts=tuple(experts or ((5,) if quick else ())),
        sizes=tuple(size or ((200,) if quick else ())),
        seeds=tuple(seed or ((0, 1) if small else ())),
        level=level,
        changes={name: value for name, value in changes.items() if value is not None},
    )
    folder = out or (paper.FOLDER if level == "usual" else paper.FOLDER / level)
    report = paper.reproduce(tables, choice, folder, jobs=jobs, dask=dask, budget=budget_seconds)
    if report.failed:
        raise ValueError(f"{len(report.failed)} cells failed: {', '.join(report.failed)}")
