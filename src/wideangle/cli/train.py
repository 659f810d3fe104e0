"""``wideangle train``: one command for each family, made from the presentation of the family."""

import inspect
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from wideangle.cli import fitting
from wideangle.cli import options as opt
from wideangle.presentation.records import Option
from wideangle.registry import FAMILIES, estimator_of

_KEYWORD = inspect.Parameter.KEYWORD_ONLY


class _Families(TyperGroup):
    """A command for each line of the registry, made when it is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(FAMILIES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _command_of(cmd_name) if cmd_name in FAMILIES else None


train = typer.Typer(
    name="train",
    cls=_Families,
    help="Fit a model to a file and write a run folder.",
    no_args_is_help=True,
)


@train.callback()
def _group() -> None:
    pass


def _command_of(kind: str) -> Any:
    """The command of a family: its offered options among those that all have."""
    from sklearn.base import is_classifier, is_regressor

    estimator = estimator_of(kind)
    shown = estimator.presentation
    offered = {_name(option.flag): option for option in shown.options}
    unused = {"kind", "chosen"}
    has_target = is_classifier(estimator()) or is_regressor(estimator())
    unused |= set() if has_target else {"target"}
    unused |= set() if shown.scales_tables else {"scale"}

    def run(**given: Any) -> None:
        values = {name: given.pop(name) for name in offered}
        chosen = {offered[name]: value for name, value in values.items() if value is not None}
        _train(kind, chosen, **given)

    shared = inspect.signature(_train).parameters
    place = list(shared).index("target") + 1
    more = [_parameter(name, option) for name, option in offered.items()]
    parameters = [*shared.values()]
    parameters[place:place] = more
    run.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess]
        [one.replace(kind=_KEYWORD) for one in parameters if one.name not in unused]
    )
    run.__doc__ = shown.help
    app = typer.Typer(rich_markup_mode="markdown", add_completion=False)
    app.command(kind)(run)
    return typer.main.get_command(app)


def _name(flag: str) -> str:
    return flag.partition("/")[0].removeprefix("--").replace("-", "_")


def _parameter(name: str, option: Option) -> inspect.Parameter:
    """An option of a family as one of the command."""
    declared = typer.Option(
        option.flag,
        help=option.help,
        show_default=option.default or False,
        min=option.least,
        max=option.most,
        rich_help_panel=option.panel,
    )
    choices = {choice: choice for choice in option.choices}
    kind: Any = StrEnum(name, choices) if choices else option.type
    annotation = Annotated[kind | None, declared]
    return inspect.Parameter(name, _KEYWORD, default=None, annotation=annotation)


def _train(
    kind: str,
    chosen: dict[Option, Any],
    data: opt.Data,
    output: opt.Output,
    target: opt.Target = None,
    scale: opt.Scale = None,
    held_out: opt.HeldOut = 0.2,
    refit: opt.Refit = True,
    ignore: opt.Ignore = None,
    category: opt.Categories = None,
    missing: opt.Missing = None,
    header: opt.Header = True,
    max_categories: opt.MaxCategories = 30,
    sparse: opt.Sparse = None,
    seed: opt.Seed = 0,
    resume: opt.Resume = False,
    force: opt.Force = False,
    as_json: opt.AsJson = False,
    quiet: opt.Quiet = False,
) -> None:
    from wideangle.frames.encoding import Reading
    from wideangle.frames.learn import Plan
    from wideangle.frames.read import is_array_file
    from wideangle.runs.train import Job

    shown, table = estimator_of(kind).presentation, not is_array_file(data)
    job = Job(
        kind,
        data,
        target,
        Reading(header, tuple(missing or ())),
        Plan(
            scale=(shown.scales_tables and table) if scale is None else scale,
            ignore=tuple(ignore or ()),
            categories=tuple(category or ()),
            max_categories=max_categories,
            sparse=sparse,
        ),
        shown.settings_for(table=table) | _settings(kind, chosen),
        held_out=held_out,
        refit=refit,
        seed=seed,
        command=("wideangle", *sys.argv[1:]),
    )
    fitting.run(job, output, resume=resume, force=force, as_json=as_json, quiet=quiet)


def _settings(kind: str, chosen: dict[Option, Any]) -> dict[str, Any]:
    """Settings of the estimator; ValueError for an option that goes with another choice."""
    settings = {}
    for option, value in chosen.items():
        plain = str(value) if option.choices else value
        settings[option.setting] = plain if option.value is None else option.value
    choices = {name: value for name, value in settings.items() if "__" not in name}
    known = estimator_of(kind)(**choices).get_params()
    for option in chosen:
        choice, _, nested = option.setting.partition("__")
        if nested and option.setting not in known:
            raise ValueError(f"{option.flag} is not for {choice} {known[choice]!r}.")
    return settings
