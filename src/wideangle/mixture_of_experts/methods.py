"""The rows of the paper's tables as settings of one estimator."""

from __future__ import annotations

from typing import Any

from wideangle.checks import check_choice
from wideangle.mixture_of_experts.estimator import MixtureOfExpertsClassifier

METHODS: dict[str, dict[str, Any]] = {
    "MEM-L2": {"prior": "gaussian", "inference": "map"},
    "MEM-MAR": {"prior": "gaussian", "inference": "map", "strength": 1.0},
    "BMEM-G": {"prior": "gaussian", "inference": "mcmc"},
    "BMEM-G-VI": {"prior": "gaussian", "inference": "vi"},
    "BMEM-MABN-I": {"prior": "mutual-angular", "kind": "I", "inference": "mcmc"},
    "BMEM-MABN-II": {"prior": "mutual-angular", "kind": "II", "inference": "vi"},
    "BMEM-PR": {"prior": "vmf", "inference": "vi", "strength": 1.0},
    "BMEM-DPP": {"prior": "dpp", "inference": "mcmc"},
}
"""A method is a (prior, inference) pair; strengths and concentrations are to be tuned."""


def paper_method(name: str, n_experts: int = 5, **settings: Any) -> MixtureOfExpertsClassifier:
    """The estimator behind a row of the paper, such as ``paper_method("BMEM-MABN-II", 30)``.

    Parameters
    ----------
    name : str
        A row of the paper's tables: ``"MEM-L2"``, ``"BMEM-MABN-I"`` and so on, as in ``METHODS``.
    n_experts : int
        Number of experts K.
    **settings
        Further settings of :class:`~wideangle.MixtureOfExpertsClassifier`; they win.
    """
    check_choice("name", name, METHODS)
    return MixtureOfExpertsClassifier(n_experts, **{**METHODS[name], **settings})
