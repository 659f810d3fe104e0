"""A fitted latent feature model in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from wideangle.base import of_chains
from wideangle.settings import PRIORS, PROCESSES, MutualAngularPrior, name_of


def facts(model: Any) -> list[tuple[str, str]]:
    """Name and value of what a user wants to know first."""
    values = model.trace_.values
    raw = values["n_active"]
    rows = [
        ("prior, process", f"{name_of(model.prior, PRIORS)}, {name_of(model.process, PROCESSES)}"),
        ("components", f"{model.n_components_}"),
        ("active features per draw", f"{raw.mean():.1f} ({raw.min():.0f} to {raw.max():.0f})"),
        ("noise scale", f"{model.noise_scale_:.4g}"),
        ("alpha", f"{model.alpha_:.3g}"),
    ]
    if isinstance(model.choice("prior"), MutualAngularPrior):
        rows.append(("concentration", f"{model.concentration_:.3g}"))
    if model.n_components_ > 1:
        spread = model.diversity_
        mean, smallest = np.degrees([spread.mean_angle, spread.min_angle])
        rows.append(("angles between components", f"mean {mean:.0f}°, smallest {smallest:.0f}°"))
    rows += of_chains(model.diagnostics_)
    rows.append(("features chains disagree on", f"{model.matched_.n_disputed}"))
    if model.interrupted_:
        rows.append(("stopped early", "yes: the draws up to then are kept"))
    return rows
