"""Bayesian models of small tables that say how sure they are.

Mixtures of experts predict classes and quantities; there are also infinite latent features and
clusters of directions. A prior can push the components of each to point in different directions. It
is a NumPyro distribution, for a model of your own, too.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from wideangle.priors.components import ComponentPrior, GaussianComponents, PolarComponents
from wideangle.priors.dpp import DeterminantalComponents
from wideangle.priors.expected import expected_log_prior
from wideangle.priors.factors import VmfGammaFactors
from wideangle.priors.learning import update_prior
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.priors.von_mises_fisher import VonMisesFisher
from wideangle.sphere.geometry import (
    Diversity,
    angular_spread,
    diversity,
    effective_directions,
    pairwise_angles,
)
from wideangle.types import Components

if TYPE_CHECKING:
    from wideangle.comparison import compare
    from wideangle.compiled import keep_compiled
    from wideangle.convergence import ConvergenceWarning
    from wideangle.frames.encoder import TableEncoder
    from wideangle.latent_features.estimator import LatentFeatureModel
    from wideangle.mixture_of_experts.classifier import MixtureOfExpertsClassifier
    from wideangle.mixture_of_experts.many import fit_many
    from wideangle.mixture_of_experts.paper_methods import paper_method
    from wideangle.mixture_of_experts.regressor import MixtureOfExpertsRegressor
    from wideangle.settings import (
        DeterminantalPrior,
        GaussianPrior,
        IndianBuffet,
        Maximise,
        MutualAngularPrior,
        PitmanYor,
        Sampling,
        Variational,
        VonMisesFisherPrior,
    )
    from wideangle.spherical_mixture.estimator import SphericalMixture

try:
    __version__ = version("wideangle")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"

# scikit-learn takes a second to import: only those who use an estimator pay for it.
_LAZY = {
    "ConvergenceWarning": "wideangle.convergence",
    "TableEncoder": "wideangle.frames.encoder",
    "compare": "wideangle.comparison",
    "fit_many": "wideangle.mixture_of_experts.many",
    "keep_compiled": "wideangle.compiled",
    "LatentFeatureModel": "wideangle.latent_features.estimator",
    "MixtureOfExpertsClassifier": "wideangle.mixture_of_experts.classifier",
    "MixtureOfExpertsRegressor": "wideangle.mixture_of_experts.regressor",
    "paper_method": "wideangle.mixture_of_experts.paper_methods",
    "SphericalMixture": "wideangle.spherical_mixture.estimator",
    **dict.fromkeys(
        (
            "DeterminantalPrior",
            "GaussianPrior",
            "IndianBuffet",
            "Maximise",
            "MutualAngularPrior",
            "PitmanYor",
            "Sampling",
            "Variational",
            "VonMisesFisherPrior",
        ),
        "wideangle.settings",
    ),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'wideangle' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "ComponentPrior",
    "Components",
    "ConvergenceWarning",
    "DeterminantalComponents",
    "DeterminantalPrior",
    "Diversity",
    "GaussianComponents",
    "GaussianPrior",
    "IndianBuffet",
    "LatentFeatureModel",
    "Maximise",
    "MixtureOfExpertsClassifier",
    "MixtureOfExpertsRegressor",
    "MutualAngular",
    "MutualAngularPrior",
    "PitmanYor",
    "PolarComponents",
    "Sampling",
    "SphericalMixture",
    "TableEncoder",
    "Variational",
    "VmfGammaFactors",
    "VonMisesFisher",
    "VonMisesFisherPrior",
    "__version__",
    "angular_spread",
    "compare",
    "diversity",
    "effective_directions",
    "expected_log_prior",
    "fit_many",
    "keep_compiled",
    "pairwise_angles",
    "paper_method",
    "update_prior",
]
