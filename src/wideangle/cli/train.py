"""``wideangle train moe`` and ``wideangle train features``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from wideangle.cli import fitting
from wideangle.cli import options as opt

train = typer.Typer(
    name="train",
    help="Fit a model to a file and write a run folder.\n\n"
    "`moe` learns to predict a column; `features` finds what rows have in common.",
    no_args_is_help=True,
)
_MODEL = "The model"


class Inference(StrEnum):
    """How the posterior is found."""

    MCMC = "mcmc"
    VI = "vi"
    MAP = "map"


class ExpertPrior(StrEnum):
    """Prior of the weights."""

    ANGULAR = "mutual-angular"
    VMF = "vmf"
    GAUSSIAN = "gaussian"
    DPP = "dpp"


class FeaturePrior(StrEnum):
    """Prior of the features."""

    ANGULAR = "mutual-angular"
    VMF = "vmf"
    GAUSSIAN = "gaussian"


class Process(StrEnum):
    """Law of how many features there are."""

    IBP = "ibp"
    PITMAN_YOR = "pitman-yor"


Concentration = Annotated[
    float | None,
    typer.Option(
        min=0,
        help="Strength of the repulsion as kappa, instead of --cosine.",
        rich_help_panel=_MODEL,
        show_default=False,
    ),
]
Cosine = Annotated[
    float,
    typer.Option(
        min=0,
        max=0.999,
        rich_help_panel=_MODEL,
        help="Strength of the repulsion, the same in every dimension: 0 is none.",
    ),
]


@train.command()
def moe(
    data: opt.Data,
    output: opt.Output,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            "-t",
            show_default=False,
            help="Column to predict. NPZ and LIBSVM files have labels of their own.",
        ),
    ] = None,
    experts: Annotated[
        int, typer.Option(min=1, help="Number of experts.", rich_help_panel=_MODEL)
    ] = 5,
    prior: Annotated[
        ExpertPrior, typer.Option(help="Prior of the weights.", rich_help_panel=_MODEL)
    ] = ExpertPrior.ANGULAR,
    inference: Annotated[
        Inference,
        typer.Option(
            help="mcmc: draws, best probabilities; vi: many rows; map: a quick look.",
            rich_help_panel=_MODEL,
        ),
    ] = Inference.MCMC,
    cosine: Cosine = 0.2,
    concentration: Concentration = None,
    balanced: Annotated[
        bool,
        typer.Option("--balanced", help="Let every class weigh the same.", rich_help_panel=_MODEL),
    ] = False,
    warmup: opt.Warmup = 400,
    draws: opt.Draws = 400,
    chains: opt.Chains = 4,
    passes: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="vi and map: passes through the rows.",
            show_default=False,
            rich_help_panel=opt.CHAINS,
        ),
    ] = None,
    starts: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="vi and map: independent starts.",
            show_default=False,
            rich_help_panel=opt.CHAINS,
        ),
    ] = None,
    held_out: opt.HeldOut = 0.2,
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
    """Learn to predict a column: a mixture of experts with calibrated probabilities.

    Example: `wideangle train moe patients.csv --target diagnosis -o run`, then
    `wideangle predict run new.csv -o predicted.csv` and `wideangle report run`.

    Words become columns of zeros and ones, missing values are replaced and marked; what was done is
    said. Ctrl-C keeps the draws so far: the same command with `--resume` goes on.
    """
    from wideangle.frames.learn import Plan

    chosen = {
        "n_experts": experts,
        "prior": str(prior),
        "inference": str(inference),
        "cosine": cosine,
        "concentration": concentration,
        "class_weight": "balanced" if balanced else None,
        "n_warmup": warmup,
        "n_draws": draws,
        "n_chains": chains,
        "n_passes": passes,
        "n_starts": starts,
    }
    plan = Plan(True, False, tuple(ignore or ()), tuple(category or ()), max_categories, sparse)
    job = fitting.make_job("moe", data, target, plan, chosen, header, missing, held_out, seed)
    fitting.run(job, output, resume=resume, force=force, as_json=as_json, quiet=quiet)


@train.command()
def features(
    data: opt.Data,
    output: opt.Output,
    prior: Annotated[
        FeaturePrior, typer.Option(help="Prior of the features.", rich_help_panel=_MODEL)
    ] = FeaturePrior.ANGULAR,
    process: Annotated[
        Process,
        typer.Option(
            help="Law of how many features there are; pitman-yor has many rare ones and needs "
            "another prior than mutual-angular.",
            rich_help_panel=_MODEL,
        ),
    ] = Process.IBP,
    cosine: Cosine = 0.1,
    concentration: Concentration = None,
    noise_scale: Annotated[
        float | None,
        typer.Option(
            min=1e-300,
            help="Standard deviation of the noise; learned by default.",
            rich_help_panel=_MODEL,
            show_default=False,
        ),
    ] = None,
    centre: Annotated[
        bool | None,
        typer.Option(
            "--centre/--no-centre",
            show_default=False,
            rich_help_panel=_MODEL,
            help="Subtract column means; by default for tables, not for arrays.",
        ),
    ] = None,
    scale: Annotated[
        bool | None,
        typer.Option(
            "--scale/--no-scale",
            show_default=False,
            rich_help_panel=_MODEL,
            help="Give numbers one unit, their standard deviation; by default for tables, not "
            "for arrays.",
        ),
    ] = None,
    max_features: Annotated[
        int, typer.Option(min=1, help="Most features to look for.", rich_help_panel=_MODEL)
    ] = 200,
    warmup: opt.Warmup = 100,
    draws: opt.Draws = 200,
    chains: opt.Chains = 4,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Chains at once; all cores by default.",
            show_default=False,
            rich_help_panel=opt.CHAINS,
        ),
    ] = None,
    held_out: opt.HeldOut = 0.2,
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
    """Find what rows have in common: features that are on or off, as many as the rows ask for.

    Example: `wideangle train features measurements.csv --ignore id -o run`, then
    `wideangle predict run new.csv -o features.csv` and `wideangle report run`.

    Missing values are left to the model, which fills them in. Ctrl-C keeps the draws so far: the
    same command with `--resume` goes on.
    """
    from wideangle.frames.learn import Plan
    from wideangle.frames.read import is_array_file

    if process is Process.PITMAN_YOR and prior is FeaturePrior.ANGULAR:
        raise ValueError("--process pitman-yor needs --prior gaussian or --prior vmf.")
    table = not is_array_file(data)
    chosen = {
        "prior": str(prior),
        "process": str(process),
        "cosine": cosine,
        "concentration": concentration,
        "noise_scale": "learn" if noise_scale is None else noise_scale,
        "centre": table if centre is None else centre,
        "max_features": max_features,
        "n_warmup": warmup,
        "n_draws": draws,
        "n_chains": chains,
        "n_jobs": jobs,
    }
    plan = Plan(
        False,
        table if scale is None else scale,
        tuple(ignore or ()),
        tuple(category or ()),
        max_categories,
        sparse,
    )
    job = fitting.make_job("features", data, None, plan, chosen, header, missing, held_out, seed)
    fitting.run(job, output, resume=resume, force=force, as_json=as_json, quiet=quiet)
