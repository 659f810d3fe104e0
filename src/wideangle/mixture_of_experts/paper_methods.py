"""The rows of the paper's tables as settings of one estimator."""

from __future__ import annotations

from typing import Any

from wideangle.checks import check_choice
from wideangle.mixture_of_experts.classifier import MixtureOfExpertsClassifier

# The paper has no common expert.
GAUSSIAN = {"prior": "gaussian", "prior__common": False}
MUTUAL_ANGULAR = {"prior": "mutual-angular", "prior__common": False}
VMF = {"prior": "vmf", "prior__common": False}

METHODS: dict[str, dict[str, Any]] = {
    "MEM-L2": GAUSSIAN | {"inference": "map"},
    "MEM-MAR": GAUSSIAN | {"inference": "map", "inference__diversity": 1.0},
    "BMEM-G": GAUSSIAN | {"inference": "mcmc"},
    "BMEM-G-VI": GAUSSIAN | {"inference": "vi"},
    "BMEM-MABN-I": MUTUAL_ANGULAR | {"prior__kind": "I", "inference": "mcmc"},
    "BMEM-MABN-II": MUTUAL_ANGULAR | {"prior__kind": "II", "inference": "vi"},
    "BMEM-PR": VMF | {"inference": "vi", "inference__diversity": 1.0},
    "BMEM-DPP": {"prior": "dpp", "inference": "mcmc"},
}
"""A method is a (prior, inference) pair; diversity and cosine are to be tuned."""


def paper_method(name: str, n_experts: int = 5, **settings: Any) -> MixtureOfExpertsClassifier:
    """The estimator behind a row of the paper, such as ``paper_method("BMEM-MABN-II", 30)``.

    Parameters
    ----------
    name : str
        A row of the paper's tables: ``"MEM-L2"``, ``"BMEM-MABN-I"`` and so on, as in ``METHODS``.
    n_experts : int
        Number of experts K.
    **settings
        Further settings of :class:`~wideangle.MixtureOfExpertsClassifier`, nested ones such as
        ``inference__n_draws=50`` too; they take precedence. A prior or inference given here
        replaces that of the method with all its settings.

    Examples
    --------
    >>> paper_method("BMEM-MABN-II", 30, prior__cosine=0.3)
    MixtureOfExpertsClassifier(inference='vi', n_experts=30,
                               prior=MutualAngularPrior(common=False, cosine=0.3,
                                                        kind='II'))
    """
    check_choice("name", name, METHODS)
    kept = {k: v for k, v in METHODS[name].items() if k.partition("__")[0] not in settings}
    return MixtureOfExpertsClassifier(n_experts).set_params(**kept | settings)
