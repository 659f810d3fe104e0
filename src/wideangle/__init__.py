"""Diversity-promoting Bayesian latent-variable models.

Components whose prior pushes them to point in different directions, for mixtures of experts and
infinite latent feature models, and as NumPyro distributions for a model of your own.
"""

from importlib.metadata import version

from wideangle.priors.components import ComponentPrior, GaussianComponents, PolarComponents
from wideangle.priors.dpp import DeterminantalComponents
from wideangle.priors.expected import expected_log_prior
from wideangle.priors.factors import VmfGammaFactors
from wideangle.priors.learning import update_prior
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.priors.von_mises_fisher import VonMisesFisher
from wideangle.sphere.diversity import Diversity, angular_spread, diversity, effective_directions
from wideangle.sphere.geometry import pairwise_angles
from wideangle.types import Components

__version__ = version("wideangle")

__all__ = [
    "ComponentPrior",
    "Components",
    "DeterminantalComponents",
    "Diversity",
    "GaussianComponents",
    "MutualAngular",
    "PolarComponents",
    "VmfGammaFactors",
    "VonMisesFisher",
    "__version__",
    "angular_spread",
    "diversity",
    "effective_directions",
    "expected_log_prior",
    "pairwise_angles",
    "update_prior",
]
