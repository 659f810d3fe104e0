"""What a user chooses: a prior, a process, an inference, each as a small object.

They hold parameters and nothing else, as scikit-learn's estimators do, so ``clone``, ``repr``,
``set_params(prior__cosine=0.3)`` and ``GridSearchCV`` reach every one of them. ``None`` means "the
default of the model". A model refuses a setting that it has no use for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar

from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import Interval, StrOptions

LEARN = "learn"
AUTO = "auto"

# Ranges end where single precision does.
MOST = 10_000
"""Largest number of components, chains or starts: a slip must not fill the memory."""
SEVERAL = Interval(Integral, 1, MOST, closed="both")
_COUNT = [Interval(Integral, 1, None, closed="left"), None]
_SCALE = [Interval(Real, 1e-10, 1e10, closed="both"), StrOptions({AUTO, LEARN}), None]
_POSITIVE = [Interval(Real, 1e-6, 1e6, closed="both"), StrOptions({LEARN})]
_SHAPE = [Interval(Real, 0.1, 1e6, closed="both"), None]
_YES_NO = ["boolean", None]
_WEIGHT = Interval(Real, 0, 1e10, closed="both")


class Settings(BaseEstimator):
    """A holder of parameters; :meth:`check` refuses impossible values."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {}

    def check(self) -> None:
        """Raise an error that names the parameter, its value and what is allowed."""
        self._validate_params()


@dataclass(kw_only=True, repr=False, eq=False)
class GaussianPrior(Settings):
    r"""Independent Gaussian components, the usual baseline.

    Parameters
    ----------
    scale : float, "auto" or "learn", optional
        Standard deviation of an entry, in units of the prepared columns.
    common : bool, optional
        Mixture of experts: see :class:`MutualAngularPrior`.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {"scale": _SCALE, "common": _YES_NO}

    scale: Any = None
    common: bool | None = None


@dataclass(kw_only=True, repr=False, eq=False)
class VonMisesFisherPrior(Settings):
    r"""Independent uniform directions and Gamma lengths: the mutual-angular prior without angles.

    Parameters
    ----------
    scale : float, "auto" or "learn", optional
        The expected length of a component in p dimensions is ``scale * sqrt(p)``. ``"auto"`` fits
        the distribution of lengths to the data before the draws (empirical Bayes), ``"learn"``
        makes it part of the posterior.
    magnitude_shape : float, optional
        Shape of the Gamma distribution of lengths; 2 by default.
    common : bool, optional
        Mixture of experts: see :class:`MutualAngularPrior`.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "scale": _SCALE,
        "magnitude_shape": _SHAPE,
        "common": _YES_NO,
    }

    scale: Any = None
    magnitude_shape: float | None = None
    common: bool | None = None


@dataclass(kw_only=True, repr=False, eq=False)
class MutualAngularPrior(Settings):
    r"""Directions that repel each other, and Gamma lengths: the paper's prior.

    Parameters
    ----------
    cosine : float in [0, 1), optional
        Strength of the repulsion, as the expected cosine between a component and the direction it
        is pushed to, opposite to the sum of the earlier ones. It means the same in every dimension.
    concentration : float or "learn", optional
        The strength as the paper's :math:`\kappa`, in place of ``cosine``. A fixed number such as 1
        has no effect in hundreds of dimensions.
    kind : {"I", "II"}, optional
        Type of the prior: the natural parameter is the unit vector of the resultant (I) or the
        resultant itself (II). By default I, and II for variational inference, which needs it.
    scale, magnitude_shape
        Lengths, as in :class:`VonMisesFisherPrior`.
    common : bool, optional
        Mixture of experts: whether experts are deviations from a common one. The prior is then one
        of the deviations, whose lengths are those of Gaussian vectors, and the scales of the
        deviations, of the common expert and of the gate are part of the posterior: where one rule
        is enough, experts become that rule. By default wherever the inference can; not with a
        Gamma distribution of lengths (``magnitude_shape``, ``scale="auto"``), which is the paper's
        prior.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "cosine": [Interval(Real, 0, 1, closed="left"), None],
        "concentration": [Interval(Real, 0, 1e6, closed="both"), StrOptions({LEARN}), None],
        "kind": [StrOptions({"I", "II"}), None],
        "scale": _SCALE,
        "magnitude_shape": _SHAPE,
        "common": _YES_NO,
    }

    cosine: float | None = None
    concentration: Any = None
    kind: str | None = None
    scale: Any = None
    magnitude_shape: float | None = None
    common: bool | None = None

    def check(self) -> None:
        """Also refuse two strengths at once."""
        super().check()
        if self.cosine is not None and self.concentration is not None:
            raise ValueError(
                f"cosine={self.cosine} and concentration={self.concentration}: both set the "
                "strength of the repulsion; give one of them."
            )


@dataclass(kw_only=True, repr=False, eq=False)
class DeterminantalPrior(Settings):
    """Components from a determinantal point process.

    Parameters
    ----------
    scale : float, optional
        Standard deviation of an entry.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "scale": [Interval(Real, 1e-10, 1e10, closed="both"), None]
    }

    scale: float | None = None


@dataclass(repr=False, eq=False)
class IndianBuffet(Settings):
    """Indian buffet process: how many features there are, and how often each is used.

    Parameters
    ----------
    alpha : float or "learn"
        Expected number of features of a row.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {"alpha": _POSITIVE}

    alpha: Any = LEARN


@dataclass(repr=False, eq=False)
class PitmanYor(Settings):
    """The Indian buffet with a power law: many rare features.

    Parameters
    ----------
    alpha : float or "learn"
        Expected number of features of a row.
    discount : float in [0, 0.5) or "learn"
        How heavy the tail of rare features is.
    strength : float or "learn"
        1 gives the two-parameter process.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "alpha": _POSITIVE,
        "discount": [Interval(Real, 0, 0.5, closed="left"), StrOptions({LEARN})],
        "strength": _POSITIVE,
    }

    alpha: Any = LEARN
    discount: Any = 0.25
    strength: Any = 1.0


@dataclass(kw_only=True, repr=False, eq=False)
class Sampling(Settings):
    """Sample from the posterior with Markov chains.

    Parameters
    ----------
    n_warmup : int, optional
        Steps of a chain before its first draw.
    n_draws : int or "auto"
        Draws kept of each chain. ``"auto"``: until the numbers behind predictions have an effective
        sample size of 400 and an R-hat of at most 1.01, ``max_time`` is over, or chains are in
        different modes, where longer ones would not help.
    n_chains : int
        Independent chains; agreement is checked with two or more.
    thin : int, optional
        Steps per kept draw; only kept draws cost memory and prediction time.
    kernel : str, optional
        How the weights are moved. Mixture of experts: ``"hmc"``, ``"geodesic"`` or
        ``"metropolis"`` (the paper's walk). Latent features: ``"gibbs"``, one feature after the
        other, or ``"hmc"``, all at once, which suits a GPU.
    max_time : float, optional
        With ``n_draws="auto"``, seconds after which a fit ends with the draws it has: by default
        two minutes for the mixture of experts, five for latent features.
    combine : {"equal", "stacking"}
        Weights of the chains in predictions: all the same, or those whose mixture predicts best
        what was left out, for chains that are in different modes.
    max_features : int, optional
        Latent features: largest number of features that the search before the chains may find; 200
        by default.
    hops : int, optional
        Latent features: how often that search tries to improve on what it found; by default until
        it no longer does.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_warmup": [Interval(Integral, 0, None, closed="left"), None],
        "n_draws": [Interval(Integral, 1, None, closed="left"), StrOptions({AUTO})],
        "n_chains": [SEVERAL],
        "thin": _COUNT,
        "kernel": [StrOptions({"hmc", "geodesic", "metropolis", "gibbs"}), None],
        "max_time": [Interval(Real, 0, None, closed="neither"), None],
        "combine": [StrOptions({"equal", "stacking"})],
        "max_features": [SEVERAL, None],
        "hops": [Interval(Integral, 0, None, closed="left"), None],
    }

    n_warmup: int | None = None
    n_draws: Any = AUTO
    n_chains: int = 4
    thin: int | None = None
    kernel: str | None = None
    max_time: float | None = None
    combine: str = "equal"
    max_features: int | None = None
    hops: int | None = None

    def of_any_length(self) -> Sampling:
        """The same chains, whatever their length and their weights in predictions."""
        usual: Any = clone(self)
        return usual.set_params(n_draws=1, max_time=None, combine="equal")

    def check(self) -> None:
        """Also refuse a time limit that nothing would obey."""
        super().check()
        if self.max_time is not None and self.n_draws != AUTO:
            raise ValueError(
                f"max_time={self.max_time} and n_draws={self.n_draws}: a fixed number of draws "
                "takes as long as it takes; use n_draws='auto' or max_time=None."
            )


@dataclass(kw_only=True, repr=False, eq=False)
class Variational(Settings):
    """The closest member of a simple family of distributions.

    Parameters
    ----------
    guide : {"diagonal", "vmf"}
        The family: Gaussian entries, or the paper's von Mises-Fisher directions and Gamma lengths.
    temperature : float or "auto"
        Weight of the divergence from the prior. Below 1 more experts stay in use; the bound at 1
        is reported next to it.
    n_starts : int
        Independent starts, whose predictions are averaged.
    n_passes : int, optional
        Passes through the data.
    batch_size : int
        Rows of a minibatch.
    diversity : float or (float, float)
        Weight of the paper's angular regulariser Omega of the experts and the gate (posterior
        regularisation); one number is for both.
    gamma : float
        Weight of the variance of angles inside Omega.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "guide": [StrOptions({"diagonal", "vmf"})],
        "temperature": [Interval(Real, 1e-6, 1e6, closed="both"), StrOptions({AUTO})],
        "n_starts": [SEVERAL],
        "n_passes": _COUNT,
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "diversity": [_WEIGHT, tuple],
        "gamma": [Interval(Real, 0, 1e6, closed="both")],
    }

    guide: str = "diagonal"
    temperature: Any = AUTO
    n_starts: int = 4
    n_passes: int | None = None
    batch_size: int = 1024
    diversity: Any = 0.0
    gamma: float = 1.0


@dataclass(kw_only=True, repr=False, eq=False)
class Maximise(Settings):
    """The most probable weights, from the best of several starts.

    Parameters
    ----------
    n_starts : int
        Independent starts, of which the best is kept.
    n_passes : int, optional
        Passes through the data.
    diversity, gamma
        As in :class:`Variational`.
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_starts": [SEVERAL],
        "n_passes": _COUNT,
        "diversity": [_WEIGHT, tuple],
        "gamma": [Interval(Real, 0, 1e6, closed="both")],
    }

    n_starts: int = 8
    n_passes: int | None = None
    diversity: Any = 0.0
    gamma: float = 1.0


Choices = Mapping[str | None, type[Settings]]
"""Classes of settings by name; that of ``None`` is the default where a parameter may be None."""

PRIORS: dict[str | None, type[Settings]] = {
    "mutual-angular": MutualAngularPrior,
    "gaussian": GaussianPrior,
    "vmf": VonMisesFisherPrior,
    "dpp": DeterminantalPrior,
}
PROCESSES: dict[str | None, type[Settings]] = {"ibp": IndianBuffet, "pitman-yor": PitmanYor}
INFERENCES: dict[str | None, type[Settings]] = {
    "mcmc": Sampling,
    "vi": Variational,
    "map": Maximise,
}


def named(value: Any, choices: Choices) -> Any:
    """The default object of a name or of None; an object is returned as it is."""
    by_name = value is None or isinstance(value, str)
    return choices[value]() if by_name and value in choices else value


def name_of(value: Any, choices: Choices) -> str:
    """The name of a choice, given as a name or as an object; the class name of any other object."""
    if isinstance(value, str):
        return value
    chosen = type(named(value, choices))
    names = [name for name, kind in choices.items() if name and kind is chosen]
    return names[0] if names else chosen.__name__


class NamedChoices(BaseEstimator):
    """Parameters that are a name or an object: ``prior="mutual-angular"`` or ``prior=Prior(...)``.

    A name stands for the object with default settings, so ``get_params`` lists the settings of the
    object and ``set_params(prior__cosine=0.3)`` works from the name, too.
    """

    _choices: ClassVar[dict[str, Choices]] = {}
    """For each such parameter the classes by name; by None where that is a choice, too."""

    def choice(self, parameter: str) -> Any:
        """The object behind a parameter."""
        return named(getattr(self, parameter), self._choices[parameter])

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters; with ``deep`` also those of the objects behind names."""
        params = super().get_params(deep=deep)
        for parameter in self._choices if deep else ():
            chosen = self.choice(parameter)
            if chosen is not params[parameter] and isinstance(chosen, Settings):
                nested = chosen.get_params()
                params |= {f"{parameter}__{name}": value for name, value in nested.items()}
        return params

    def set_params(self, **params: Any) -> Any:
        """Set parameters, nested ones too; a name becomes an object where it has to hold them."""
        for parameter in self._choices:
            if any(name.startswith(f"{parameter}__") for name in params):
                chosen = named(
                    params.pop(parameter, self.choice(parameter)), self._choices[parameter]
                )
                setattr(self, parameter, chosen)
        return super().set_params(**params)

    def _validate_params(self) -> None:
        super()._validate_params()
        for parameter in self._choices:
            chosen = self.choice(parameter)
            for one in chosen if isinstance(chosen, tuple) else (chosen,):
                if isinstance(one, Settings):
                    one.check()


def as_plain(value: Any) -> Any:
    """A choice as JSON can hold it: a settings object by its class name and parameters."""
    if isinstance(value, Settings):
        params = {name: as_plain(one) for name, one in value.get_params(deep=False).items()}
        return {"class": type(value).__name__, "params": params}
    return [as_plain(one) for one in value] if isinstance(value, tuple) else value


def from_plain(value: Any) -> Any:
    """The choice of :func:`as_plain`; only classes of this module are made."""
    if isinstance(value, list):
        return tuple(from_plain(one) for one in value)
    if not isinstance(value, dict):
        return value
    kind = KINDS[value["class"]]
    return kind(**{name: from_plain(one) for name, one in value["params"].items()})


KINDS = {kind.__name__: kind for kind in Settings.__subclasses__()}
"""Classes of this module: those that a file can name."""
