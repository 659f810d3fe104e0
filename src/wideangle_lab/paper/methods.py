"""The rows of the paper's tables, the controls we add, and how their settings are chosen.

The rule: a fifth of the training rows is set aside; the settings of a row are searched one after
the other over the grid below at K = 10 by log-loss on that fifth, by the row's own inference with
shorter chains; the winner is used at every K. A diverse row takes over what was chosen for the row
that differs from it by the diversity alone, and searches its own strength. Test rows take no part.
"""

from __future__ import annotations

from typing import Any

from wideangle.mixture_of_experts.estimator import MixtureOfExpertsClassifier
from wideangle.mixture_of_experts.methods import METHODS, paper_method

CONTROLS: dict[str, dict[str, Any]] = {
    "BMEM-V": {"prior": "vmf", "inference": "mcmc"},
    "BMEM-V-VI": {"prior": "vmf", "inference": "vi"},
}
"""Independent directions with learned lengths: what the mutual-angular prior is without angles."""
ROWS: dict[str, dict[str, Any]] = {**METHODS, **CONTROLS}

SCALES = [0.03, 0.1, 0.3, 1.0]
STRENGTHS = [1.0, 10.0, 100.0, 1000.0]
COSINES = [0.05, 0.2, 0.5]
TEMPERATURES = [0.35, 1.0]
"""Of the variational objective. With 1000 columns learned lengths overfit when it is low."""
GRIDS: dict[str, dict[str, list[float]]] = {
    "MEM-L2": {"scale": SCALES},
    "MEM-MAR": {"strength": STRENGTHS},
    "BMEM-G": {"scale": SCALES},
    "BMEM-G-VI": {"temperature": TEMPERATURES, "scale": SCALES},
    "BMEM-MABN-I": {"cosine": COSINES},
    "BMEM-MABN-II": {"cosine": COSINES},
    "BMEM-PR": {"strength": STRENGTHS},
    "BMEM-DPP": {},
    "BMEM-V": {"scale": SCALES},
    "BMEM-V-VI": {"temperature": TEMPERATURES, "scale": SCALES},
}
"""For the polar priors, whose lengths are learned by EM, the scale is where that begins."""

UNREPULSED = {
    "MEM-MAR": "MEM-L2",
    "BMEM-MABN-I": "BMEM-V",
    "BMEM-MABN-II": "BMEM-V-VI",
    "BMEM-PR": "BMEM-V-VI",
    "BMEM-DPP": "BMEM-G",
}
"""Each diverse row and the row that differs from it by the diversity alone."""


def estimator(row: str, n_experts: int, **settings: Any) -> MixtureOfExpertsClassifier:
    """The estimator of a row; a name that is no row is told by its settings alone."""
    if row in METHODS:
        return paper_method(row, n_experts, **settings)
    return MixtureOfExpertsClassifier(n_experts, **{**CONTROLS.get(row, {}), **settings})
