"""What to fit, from the user's settings, and the result of every inference."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wideangle.settings import (
    LEARN,
    Maximise,
    MutualAngularPrior,
    Sampling,
    Settings,
    Variational,
    VonMisesFisherPrior,
)
from wideangle.sphere.vmf import inverse_on_host
from wideangle.spherical_mixture.centres import CentrePrior

COSINE = 0.1
"""Default strength of the repulsion."""
TIGHTNESS_ROWS = 5.0
"""Number of rows that the prior of a concentration counts as."""
ALPHA = 1.0
"""Initial value of alpha if it is learned."""


class Task(NamedTuple):
    """A model of clusters, and how to fit it."""

    n_components: int
    """Largest number of clusters; if there is no limit, the initial number."""
    infinite: bool
    prior: CentrePrior
    """Its cosine is NaN if it is to be taken from the rows."""
    alpha: float
    learn_alpha: bool
    inference: Any
    verbose: bool | None = None

    @property
    def factors(self) -> bool:
        """Whether centres have a distribution in an ascent."""
        return isinstance(self.inference, Variational)


class Mixture(NamedTuple):
    """A mixture of von Mises-Fisher distributions."""

    directions: np.ndarray
    concentrations: np.ndarray
    weights: np.ndarray

    def only(self, chosen: np.ndarray) -> Mixture:
        """Some of the clusters, with weights rescaled to sum to one."""
        directions, concentrations, weights = (leaf[chosen] for leaf in self)
        return Mixture(directions, concentrations, weights / weights.sum())


class Fitted(NamedTuple):
    """Result of a fit."""

    mixture: Mixture
    """The clusters to show and to predict with."""
    prior: CentrePrior
    alpha: float
    trace: dict[str, np.ndarray]
    """Quantities that do not depend on how clusters are numbered, (chain, draw, ...)."""
    notes: dict[str, Any]
    kept: Mixture | None = None
    """Kept states of chains, (chain, state, ...)."""
    labels: np.ndarray | None = None
    """Summary partition of the training rows, from chains."""


def plan(model: Any, n_rows: int, dim: int) -> Task:
    """The task of an estimator."""
    infinite = model.n_components == "infinite"
    inference = model.choice("inference")
    learn = model.alpha == LEARN
    tightness = np.nan if model.tightness == "auto" else float(model.tightness)
    prior = CentrePrior(
        _strength(model.choice("prior"), dim), tightness, TIGHTNESS_ROWS,
        kind_of(model.choice("prior"), inference),
    )  # fmt: skip
    return Task(
        min(INFINITE, max(n_rows, 1)) if infinite else int(model.n_components),
        infinite,
        prior,
        ALPHA if learn else float(model.alpha),
        learn,
        inference,
        model.verbose,
    )


INFINITE = 64
"""Initial number of clusters of an infinite mixture, and where an ascent ends the process."""


def _strength(prior: Settings, dim: int) -> float:
    if isinstance(prior, VonMisesFisherPrior):
        return 0.0
    assert isinstance(prior, MutualAngularPrior)
    if prior.concentration is not None:
        return float(prior.concentration)
    return float(inverse_on_host(COSINE if prior.cosine is None else prior.cosine, dim))


def kind_of(prior: Settings, inference: Settings) -> str:
    """Type of the prior of the centres."""
    kind = getattr(prior, "kind", None)
    return kind or ("II" if isinstance(inference, Variational) else "I")


NOT_OURS: dict[type, tuple[str, ...]] = {
    MutualAngularPrior: ("scale", "magnitude_shape", "common"),
    VonMisesFisherPrior: ("scale", "magnitude_shape", "common"),
    Sampling: ("kernel", "combine"),
    Variational: ("guide", "temperature", "diversity", "gamma"),
    Maximise: ("diversity", "gamma"),
}
"""Settings that have no meaning here."""


def check_choices(prior: Settings, inference: Settings) -> None:
    """Reject settings that this model cannot use."""
    for chosen in (prior, inference):
        usual = type(chosen)()
        for name in NOT_OURS[type(chosen)]:
            if getattr(chosen, name) != getattr(usual, name):
                raise ValueError(
                    f"{name}={getattr(chosen, name)!r}: clusters of directions have no such "
                    f"setting; leave it out of {type(chosen).__name__}."
                )
    if getattr(prior, "concentration", None) == LEARN:
        raise ValueError(
            "concentration='learn': the strength of the repulsion is not learned here; give a "
            "number, or cosine=..., and compare scores of held-out rows."
        )
    if isinstance(inference, Variational) and getattr(prior, "kind", None) == "I":
        raise ValueError("kind='I': variational inference needs kind='II' (or None).")
