"""Which families of models there are: one line each.

The name is that of the command, ``wideangle train NAME``, and is written into the folder of a run.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

FAMILIES = {
    "moe": "wideangle.mixture_of_experts.classifier:MixtureOfExpertsClassifier",
    "regression": "wideangle.mixture_of_experts.regressor:MixtureOfExpertsRegressor",
    "features": "wideangle.latent_features.estimator:LatentFeatureModel",
    "clusters": "wideangle.spherical_mixture.estimator:SphericalMixture",
}
"""Module and class of the estimator of each family; imported when it is used."""


def estimator_of(name: str) -> Any:
    """The estimator class of a family; its ``presentation`` has all that others need."""
    module, _, attribute = FAMILIES[name].partition(":")
    return getattr(import_module(module), attribute)
