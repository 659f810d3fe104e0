"""Commands of ``wideangle_lab``, which is not part of the installed package."""

from importlib import import_module
from typing import Any

import typer

MISSING = (
    "this command needs wideangle_lab (benchmarks, the paper's tables and data sets), which comes "
    "with the source of wideangle and not with the installed package: in a checkout, run "
    "`pip install -e .`"
)


def lab_command(name: str) -> Any:
    """A command of the lab; without the lab, one that says where to get it."""
    try:
        app = import_module("wideangle_lab.commands").APPS[name]
    except ModuleNotFoundError as error:
        if error.name != "wideangle_lab":
            raise
        app = _missing(name)
    return typer.main.get_command(app)


def _missing(name: str) -> typer.Typer:
    app = typer.Typer(add_completion=False)
    anything = {"ignore_unknown_options": True, "allow_extra_args": True}

    @app.command(name, help="Needs a checkout of the source.", context_settings=anything)
    def stop() -> None:
        raise ValueError(MISSING)

    return app
