"""``wideangle datasets``."""

from typing import Annotated

import typer


def datasets(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the data sets of the paper: which files are here, which are stand-ins.

    Files are looked for in the folder named by the variable WIDEANGLE_DATA, then in your cache.
    """
    from wideangle.datasets.listing import run

    run(as_json=as_json)
