"""The ``wideangle`` command: parse, call, print."""

from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from wideangle import __version__
from wideangle.checks import not_installed
from wideangle.cli.commands import demo, predict, report
from wideangle.cli.train import train
from wideangle.compiled import keep_compiled

_ORDER = ("demo", "train", "predict", "report", "reproduce", "datasets", "bench")
_LAB = ("reproduce", "datasets", "bench")
"""Commands of the lab, made when they are used."""


_NO_LAB = (
    "this command needs wideangle_lab (benchmarks, the paper's tables and data sets), which comes "
    "with the source of wideangle and not with the installed package: in a checkout, run "
    "`pip install -e .`"
)


def _lab_command(name: str) -> Any:
    """A command of the lab; without the lab, one that explains where to get it."""
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
        raise ValueError(_NO_LAB)

    return app


class _InOrder(TyperGroup):
    """Commands in the order a newcomer needs them, those of the lab among them."""

    def list_commands(self, ctx: Any) -> list[str]:
        names = {*super().list_commands(ctx), *_LAB}
        return sorted(names, key=lambda name: (*_ORDER, name).index(name))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _lab_command(cmd_name) if cmd_name in _LAB else super().get_command(ctx, cmd_name)


app = typer.Typer(
    name="wideangle",
    cls=_InOrder,
    help="Predict classes and quantities with their uncertainty; find features and clusters.\n\n"
    "Start with `wideangle demo`: it needs no data. With a table of your own:\n\n"
    "`wideangle train moe data.csv --target y -o run`, then `wideangle predict run new.csv` and "
    "`wideangle report run`.",
    rich_markup_mode="markdown",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
    keep_compiled()


for command in (demo, predict, report):
    app.command()(command)
app.add_typer(train)


def main() -> None:
    """Run the command line; an error of the user's becomes one sentence and exit code 2."""
    try:
        app(prog_name="wideangle")
    except ModuleNotFoundError as error:
        if (error.name or "wideangle").startswith("wideangle"):
            raise
        _stop(not_installed((error.name or "").partition(".")[0]))
    except OSError as error:
        reason = error.strerror or str(error)
        _stop(f"{error.filename}: {reason}" if error.filename else reason)
    except ValueError as error:
        _stop(str(error))


def _stop(message: str) -> None:
    typer.echo(f"wideangle: {' '.join(message.split())}", err=True)
    raise SystemExit(2)
