"""The rows of the paper's tables, the controls we add, and how their settings are chosen.

The rule: a fifth of the training rows is set aside. The settings of a row are searched one after
the other over the grid below, at K = 10, by log-loss on that fifth, with the inference of the row
and shorter chains. The best settings are used at every K. A diverse row uses the settings of the
row that differs only by the diversity, and tunes only its strength. Test rows are not used.
"""

from __future__ import annotations

from typing import Any

from wideangle.mixture_of_experts.classifier import MixtureOfExpertsClassifier
from wideangle.mixture_of_experts.paper_methods import METHODS, VMF, paper_method

CONTROLS: dict[str, dict[str, Any]] = {
    "BMEM-V": VMF | {"inference": "mcmc"},
    "BMEM-V-VI": VMF | {"inference": "vi"},
}
"""Independent directions with learned lengths: the mutual-angular prior without angles."""
ROWS: dict[str, dict[str, Any]] = {**METHODS, **CONTROLS}

SCALE = {"prior__scale": [0.03, 0.1, 0.3, 1.0]}
LENGTHS = {"prior__scale": ["auto"]}
"""Polar priors learn their lengths: one value, with the loss of no diversity."""
DIVERSITY = {"inference__diversity": [1.0, 10.0, 100.0, 1000.0]}
COSINE = {"prior__cosine": [0.05, 0.2, 0.5]}
TEMPERATURE = {"inference__temperature": [0.35, 1.0]}
"""Temperature of the variational objective. If low, learned lengths overfit with 1000 columns."""
GRIDS: dict[str, dict[str, list[Any]]] = {
    "MEM-L2": SCALE,
    "MEM-MAR": DIVERSITY,
    "BMEM-G": SCALE,
    "BMEM-G-VI": TEMPERATURE | SCALE,
    "BMEM-MABN-I": COSINE,
    "BMEM-MABN-II": COSINE,
    "BMEM-PR": DIVERSITY,
    "BMEM-DPP": {},
    "BMEM-V": LENGTHS,
    "BMEM-V-VI": TEMPERATURE | LENGTHS,
}

UNREPULSED = {
    "MEM-MAR": "MEM-L2",
    "BMEM-MABN-I": "BMEM-V",
    "BMEM-MABN-II": "BMEM-V-VI",
    "BMEM-PR": "BMEM-V-VI",
    "BMEM-DPP": "BMEM-G",
}
"""Each diverse row and the row that differs from it only by the diversity."""


def estimator(row: str, n_experts: int, **settings: Any) -> MixtureOfExpertsClassifier:
    """The estimator of a row; for other names, only the settings are used."""
    if row in METHODS:
        return paper_method(row, n_experts, **settings)
    model = MixtureOfExpertsClassifier(n_experts)
    return model.set_params(**CONTROLS.get(row, {}) | settings)


def plain_name(setting: str) -> str:
    """The name of a setting without the name of its object."""
    return setting.rpartition("__")[2]
