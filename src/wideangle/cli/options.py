"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from wideangle.presentation.records import MODEL

Seed = Annotated[
    int,
    typer.Option(min=0, help="Fixes every random draw: the same seed gives the same numbers."),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object on standard output instead of a table."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but the result.")]

DATA, OUTPUT = "Columns and rows", "Where it goes"
"""Headings in the help of a command."""

Data = Annotated[
    Path,
    typer.Argument(
        help="CSV, TSV, Parquet, NPZ (arrays X and y, or a sparse matrix) or LIBSVM file.",
        show_default=False,
    ),
]
RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder that `wideangle train` wrote.")
]
Output = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        help="Folder to write the run to; it must not exist yet.",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Replace an earlier run in that folder.", rich_help_panel=OUTPUT),
]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Go on with a run that was interrupted.", rich_help_panel=OUTPUT),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(help="Column to leave out; may be repeated.", rich_help_panel=DATA),
]
Categories = Annotated[
    list[str] | None,
    typer.Option(
        "--category",
        help="Column of numbers that stand for categories, such as codes; may be repeated.",
        rich_help_panel=DATA,
    ),
]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        help="A word that stands for a missing value, beside the empty cell, NA, NaN, null and ?.",
        rich_help_panel=DATA,
    ),
]
Header = Annotated[
    bool,
    typer.Option(
        "--header/--no-header",
        help="Whether the first line names the columns; otherwise they are c1, c2, ...",
        rich_help_panel=DATA,
    ),
]
MaxCategories = Annotated[
    int,
    typer.Option(
        min=2,
        help="Most words of a column that get a column of their own; rarer ones share one.",
        rich_help_panel=DATA,
    ),
]
Sparse = Annotated[
    bool | None,
    typer.Option(
        "--sparse/--dense",
        help="How rows are held in memory; by default as in the file.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
HeldOut = Annotated[
    float,
    typer.Option(
        min=0.0,
        max=0.9,
        help="Share of the rows that is not trained on but used to check the model.",
        rich_help_panel=DATA,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        help="Column to predict. NPZ and LIBSVM files have labels of their own.",
        show_default=False,
    ),
]
Scale = Annotated[
    bool | None,
    typer.Option(
        "--scale/--no-scale",
        help="Give numbers one unit, their standard deviation.",
        rich_help_panel=MODEL,
        show_default="for tables, not for arrays",
    ),
]
