"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer

from wideangle.presentation.records import MODEL

DATA, OUTPUT = "Columns and rows", "Where it goes"
"""Headings in the help of a command."""


def _data(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=DATA, **more)


def _output(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=OUTPUT, **more)


Seed = Annotated[
    int,
    typer.Option(min=0, help="Seed of all random numbers: the same seed gives the same result."),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object on standard output instead of a table."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only the result.")]

_FILES = "CSV, TSV, Parquet, NPZ (arrays X and y, or a sparse matrix) or LIBSVM file."
Data = Annotated[Path, typer.Argument(metavar="DATA", help=_FILES, show_default=False)]
RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder that `wideangle train` wrote.")
]

_FOLDER = "Folder to write the run to; it must not exist yet."
Output = Annotated[Path, _output(_FOLDER, "--output", "-o", show_default=False)]
Force = Annotated[bool, _output("Replace an earlier run in that folder.", "--force")]
Resume = Annotated[bool, _output("Continue a run that was interrupted.", "--resume")]

_TARGET = "Column to predict. NPZ and LIBSVM files contain their labels."
Target = Annotated[str | None, typer.Option("--target", "-t", help=_TARGET, show_default=False)]
Ignore = Annotated[
    list[str] | None, _data("Column to leave out; may be repeated.", metavar="COLUMN")
]
_CODES = "Column of numbers that stand for categories, such as codes; may be repeated."
Categories = Annotated[list[str] | None, _data(_CODES, "--category", metavar="COLUMN")]
_WORD = "Text that stands for a missing value, in addition to an empty cell, NA, NaN, null and ?."
Missing = Annotated[list[str] | None, _data(_WORD, metavar="TEXT")]
_NAMES = "Whether the first line names the columns; otherwise they are c1, c2, ..."
Header = Annotated[bool, _data(_NAMES, "--header/--no-header")]
_MOST = "Categories of a column that get a 0/1 column each; rarer ones share one."
MaxCategories = Annotated[int, _data(_MOST, min=2)]
_MEMORY = "How rows are held in memory; by default as in the file."
Sparse = Annotated[bool | None, _data(_MEMORY, "--sparse/--dense", show_default=False)]
_SHARE = "Share of the rows that is held out to check the model."
HeldOut = Annotated[float, _data(_SHARE, min=0.0, max=0.9)]
_REFIT = "Fit again to all rows once the held-out ones were scored, and keep that model."
Refit = Annotated[bool, _data(_REFIT, "--refit/--no-refit")]
Scale = Annotated[
    bool | None,
    typer.Option(
        "--scale/--no-scale",
        help="Divide numbers by their standard deviation.",
        rich_help_panel=MODEL,
        show_default="for tables, not for arrays",
    ),
]
