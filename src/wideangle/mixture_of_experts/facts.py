"""A fitted mixture of experts in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from wideangle.base import of_chains
from wideangle.settings import INFERENCES, PRIORS, name_of


def facts(model: Any) -> list[tuple[str, str]]:
    """Name and value of what a user wants to know first."""
    spread = model.diversity_
    rows = [
        ("classes", ", ".join(str(c) for c in model.classes_[:8])),
        ("prior, inference", f"{_prior_name(model.prior)}, {name_of(model.inference, INFERENCES)}"),
        ("experts in use", f"{model.n_used_:.1f} of {model.n_experts}"),
    ]
    if model.n_experts > 1:
        mean, smallest = np.degrees([spread.mean_angle, spread.min_angle])
        rows.append(("angles between experts", f"mean {mean:.0f}°, smallest {smallest:.0f}°"))
        rows.append(("effective directions", f"{spread.effective_directions:.1f}"))
    if model.diagnostics_ is not None:
        rows += of_chains(model.diagnostics_)
    if "elbo" in model.notes_:
        pairs = zip(model.notes_["elbo"], model.notes_["elbo_error"], strict=True)
        rows.append(("ELBO of each start", ", ".join(f"{e:.1f} ± {s:.1f}" for e, s in pairs)))
        rows.append(("temperature", f"{model.notes_['temperature']:.2f}"))
    if model.notes_.get("interrupted"):
        rows.append(("stopped early", "yes: the draws up to then are kept"))
    return rows


def _prior_name(prior: Any) -> str:
    if isinstance(prior, tuple):
        return " (gate) and ".join(_prior_name(one) for one in prior) + " (experts)"
    name = name_of(prior, PRIORS)
    return name if name in PRIORS else "a prior object"
