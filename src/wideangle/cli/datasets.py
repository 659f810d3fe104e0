"""``wideangle datasets``; its sub-commands ``fetch`` and ``images`` are those of the lab."""

from typing import Annotated, ClassVar

import typer

from wideangle.cli.lab import LabGroup


class _Datasets(LabGroup):
    lab_commands: ClassVar[tuple[str, ...]] = ("fetch", "images")


app = typer.Typer(
    name="datasets", cls=_Datasets, invoke_without_command=True, rich_markup_mode="markdown"
)


@app.callback()
def datasets(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the data sets of the paper: which files are here, which are stand-ins, how to get them.

    Files are looked for in the folder named by the variable WIDEANGLE_DATA, then in your cache.
    """
    from wideangle.datasets.listing import run

    if context.invoked_subcommand is None:
        run(as_json=as_json)
