"""Commands of ``wideangle_lab``, which is not part of the installed package."""

from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

MISSING = (
    "this command needs wideangle_lab (benchmarks, the paper's tables, original data), which comes "
    "with the source of wideangle and not with the installed package: in a checkout, run "
    "`pip install -e .`"
)


class LabGroup(TyperGroup):
    """A group with commands of the lab among its own; they are made when they are asked for."""

    lab_commands: ClassVar[tuple[str, ...]] = ()

    def list_commands(self, ctx: Any) -> list[str]:
        """Own ones first."""
        return [*super().list_commands(ctx), *self.lab_commands]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """From the lab, or what says where to get it."""
        if cmd_name in self.lab_commands:
            return _lab_command(cmd_name)
        return super().get_command(ctx, cmd_name)


def _lab_command(name: str) -> Any:
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
