"""``wideangle reproduce``."""

from pathlib import Path
from typing import Annotated

import typer


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
        raise ValueError(f"{len(report.failed)} cells failed: {', '.join(report.failed)}")
