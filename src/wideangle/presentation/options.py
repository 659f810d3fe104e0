"""Options of ``wideangle train`` that several families offer."""

from __future__ import annotations

from wideangle.presentation.records import LENGTH, Option


def prior_options(of: str, cosine: str, names: tuple[str, ...]) -> tuple[Option, ...]:
    """Which prior, and how strong the repulsion is."""
    repulsion = "mutual-angular: strength of the repulsion"
    return (
        Option("--prior", "prior", str, f"Prior of the {of}.", names[0], names),
        Option(
            "--cosine", "prior__cosine", float,
            f"{repulsion}, the same in every dimension; 0 is none.", cosine, least=0, most=0.999,
        ),
        Option(
            "--concentration", "prior__concentration", float,
            f"{repulsion} as kappa, instead of --cosine.", least=0,
        ),
    )  # fmt: skip


def sampling_options(n_warmup: int, n_draws: str, thin: int, max_time: str) -> tuple[Option, ...]:
    """How long the chains are, how many there are, and how they are put together."""
    rows = (
        ("--warmup", "n_warmup", "Steps of a chain before its draws.", n_warmup, 0),
        ("--draws", "n_draws", "Draws of a chain that are kept.", n_draws, 1),
        ("--thin", "thin", "Steps of a chain for each draw.", thin, 1),
        ("--chains", "n_chains", "Independent chains; two or more show disagreement.", 4, 1),
    )
    counts = (
        Option(flag, f"inference__{name}", int, words, str(default), least=least, panel=LENGTH)
        for flag, name, words, default, least in rows
    )
    return (
        *counts,
        Option(
            "--max-time", "inference__max_time", float,
            "Seconds after which chains end that run until predictions are known.", max_time,
            least=1e-3, panel=LENGTH,
        ),
        Option(
            "--combine", "inference__combine", str,
            "Weights of chains in predictions; stacking is for chains that do not agree.", "equal",
            ("equal", "stacking"), panel=LENGTH,
        ),
    )  # fmt: skip
