"""What to fit, from the user's settings; and the result of a fit.

The one place where settings become priors, and where settings that a fit cannot use are rejected.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.sparse as sp

from wideangle.checks import check_path
from wideangle.mixture_of_experts.coordinates import Priors
from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import ExpertLikelihood, Pair
from wideangle.posterior import Draws
from wideangle.priors.components import (
    MEAN_SCALE,
    ComponentPrior,
    GaussianComponents,
    HierarchicalComponents,
    PolarComponents,
)
from wideangle.priors.dpp import DeterminantalComponents
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.settings import (
    AUTO,
    LEARN,
    PRIORS,
    DeterminantalPrior,
    GaussianPrior,
    Maximise,
    MutualAngularPrior,
    Sampling,
    Settings,
    Variational,
    VonMisesFisherPrior,
    as_plain,
    named,
)
from wideangle.sharding import writes
from wideangle.sphere.geometry import angular_spread
from wideangle.sphere.vmf import inverse_on_host
from wideangle.storage import Checkpoint, fingerprint
from wideangle.types import Array, Key, Scalar

NEITHER: Pair[bool] = Pair(False, False)
COSINE, GAMMA_SHAPE = 0.2, 2.0
"""Default strength of the repulsion, and default shape of the distribution of lengths."""
GATE_SCALE = 3.0
"""Prior mean of the scale of gates between experts that predict a quantity. A gate that switches
within a part of a column's range has weights of several units."""


class Regulariser(NamedTuple):
    r"""Posterior regularisation :math:`\lambda_1\Omega(\beta) + \lambda_2\Omega(\eta)`."""

    weights: Pair[Any]
    r""":math:`\lambda_2` of the gate, :math:`\lambda_1` of the experts."""
    gamma: Any

    def value(self, vectors: Pair[Array]) -> Scalar:
        """The regulariser at the vectors (or mean directions) of gate and experts."""
        gate, experts = (angular_spread(one, self.gamma) for one in vectors)
        return self.weights.gate * gate + self.weights.experts * experts


class Task(NamedTuple):
    """What to fit, and how."""

    priors: Priors
    learn: Pair[bool]
    """Which priors are fitted to the data (empirical Bayes)."""
    expert: ExpertLikelihood
    inference: Any
    checkpoint: Any = None
    verbose: bool | None = None

    @property
    def regulariser(self) -> Regulariser | None:
        """What the inference adds to the log posterior, or None."""
        weights = _diversity(self.inference)
        if not any(weights):
            return None
        gamma = np.float32(self.inference.gamma)
        return Regulariser(Pair(*map(np.float32, weights)), gamma)


@dataclass(frozen=True)
class Fitted:
    """Result of a fit."""

    draws: Draws
    """Values ``weights`` and ``log_lik``, axes (chain, draw, ...); starts count as chains."""
    priors: Priors
    notes: dict[str, Any] = field(default_factory=dict)
    chains: Any = None
    """Markov chains that can be continued, if there are any."""


def plan(
    prior: Any,
    inference: Any,
    n_experts: int,
    n_columns: int,
    expert: ExpertLikelihood,
    *,
    checkpoint: Any = None,
    verbose: bool | None = None,
) -> Task:
    """The task from an estimator's settings, for rows with this many prepared columns."""
    check_choices(prior, inference, checkpoint)
    priors = _build_priors(prior, inference, n_experts, n_columns, expert)
    learn = Pair(*(_is_learned(one, inference) for one in _pair_of(prior)))
    return Task(priors, learn, expert, inference, checkpoint, verbose)


def check_choices(prior: Any, inference: Any, checkpoint: Any) -> None:
    """Reject settings that this model or inference cannot use."""
    for one in _pair_of(prior):
        _check_prior(one, inference)
    if isinstance(inference, Sampling) and inference.kernel == "gibbs":
        raise ValueError("kernel='gibbs': is for latent features; use 'hmc' or leave it None.")
    for name in ("max_features", "hops"):
        if getattr(inference, name, None) is not None:
            raise ValueError(f"{name}: is for latent features; leave it None.")
    if not isinstance(inference, Sampling):
        _diversity(inference)
    if checkpoint is not None:
        check_path("checkpoint", checkpoint)
    if checkpoint is not None and isinstance(inference, Maximise):
        raise ValueError(
            f"checkpoint={checkpoint!r}: only runs by inference='mcmc' and 'vi' are saved while "
            "they last; use checkpoint=None."
        )


def _pair_of(prior: Any) -> Pair[Any]:
    """The choices for gate and experts: names become settings objects."""
    pair = prior if isinstance(prior, tuple) else (prior, prior)
    if len(pair) != 2 or any(isinstance(one, str) and one not in PRIORS for one in pair):  # noqa: PLR2004
        raise ValueError(
            f"prior={prior!r}: a pair must hold two priors, of the gate and of the experts, each "
            f"one of {sorted(PRIORS)}, a settings object or a ComponentPrior."
        )
    return Pair(*(named(one, PRIORS) for one in pair))


def has_hierarchy(prior: Any, inference: Settings) -> bool:
    """Whether gate or experts have scales that are part of the posterior."""
    return any(_has_hierarchy(one, inference) for one in _pair_of(prior))


def _has_hierarchy(prior: Any, inference: Settings) -> bool:
    """Whether scales are part of the posterior, around a common expert or around 0."""
    if not isinstance(prior, GaussianPrior | VonMisesFisherPrior | MutualAngularPrior):
        return False
    if prior.common is None and prior.scale != LEARN:
        return prior.scale != AUTO and _reason_against(prior, inference) is None
    return bool(prior.common) or prior.scale == LEARN


def _reason_against(prior: Any, inference: Settings) -> str | None:
    """Why a fit cannot use a common expert and learned scales, or None."""
    if getattr(prior, "magnitude_shape", None) is not None:
        return f"magnitude_shape={prior.magnitude_shape}: is for Gamma lengths"
    if isinstance(inference, Sampling) and inference.kernel not in (None, "hmc"):
        return f"kernel={inference.kernel!r}: walks along the directions of the experts themselves"
    if isinstance(inference, Variational) and inference.guide != "diagonal":
        return f"guide={inference.guide!r}: has the prior of the paper"
    return None


def _check_prior(prior: Any, inference: Settings) -> None:
    scale = getattr(prior, "scale", None)
    if _has_hierarchy(prior, inference):
        if reason := _reason_against(prior, inference):
            raise ValueError(
                f"{reason}, and the prior has common={prior.common} and scale={scale!r}; use "
                "common=False and a scale of 'auto' or a number."
            )
        if scale == AUTO:
            raise ValueError(
                "scale='auto': the scale of deviations from a common expert is part of the "
                "posterior; use 'learn' or a number, or common=False."
            )
    elif scale == AUTO and isinstance(prior, GaussianPrior):
        raise ValueError("scale='auto': the Gaussian prior of experts has a fixed scale; use 1.0.")
    if scale == AUTO and isinstance(inference, Maximise):
        raise ValueError(
            "scale='auto': inference='map' does not fit the prior to the data; use a number."
        )
    if getattr(prior, "concentration", None) == LEARN:
        raise ValueError(
            "concentration='learn': the mixture of experts has a fixed one; set cosine instead."
        )


def _is_learned(prior: Any, inference: Settings) -> bool:
    """Whether a prior is fitted to the data: one in polar form without a fixed scale."""
    polar = isinstance(prior, MutualAngularPrior | VonMisesFisherPrior)
    fitted = polar and not _has_hierarchy(prior, inference) and prior.scale in (None, AUTO)
    return fitted and not isinstance(inference, Maximise)


def _build_priors(
    prior: Any, inference: Settings, n_experts: int, n_columns: int, expert: ExpertLikelihood
) -> Priors:
    """Priors of gate and flattened experts from what was chosen."""
    sizes = n_columns, n_columns * expert.n_outputs
    means = _mean_scales(expert, n_columns)
    built = []
    for name, one, size, mean in zip(Pair._fields, _pair_of(prior), sizes, means, strict=True):
        if isinstance(one, Settings):
            build = _build_prior
            if _has_hierarchy(one, inference):
                build = partial(_build_hierarchy, mean_scale=mean)
            built.append(build(name, one, inference, n_experts, size))
            continue
        shape = getattr(one, "event_shape", None)
        if not isinstance(one, ComponentPrior) or shape != (n_experts, size):
            raise ValueError(
                f"prior of the {name} has event shape {shape}: must be a ComponentPrior over "
                f"{n_experts} vectors of length {size} (intercept column included)."
            )
        built.append(one)
    return Pair(*built)


def _mean_scales(expert: ExpertLikelihood, n_columns: int) -> Pair[float]:
    r"""Prior means of the scales of the gate and of deviations from the common expert.

    Classes: scores of an expert are expected about 1 apart from the common ones. A standardised row
    has length :math:`\sqrt p`, so the means are :math:`1/\sqrt p`. For a quantity they are those
    that predicted best on small tables; see docs/regression.md.
    """
    if not expert.alike:
        return Pair(GATE_SCALE, MEAN_SCALE)
    mean = 1.0 / math.sqrt(n_columns)
    return Pair(mean, mean)


def _build_hierarchy(
    name: str, prior: Any, inference: Settings, n: int, size: int, *, mean_scale: float
) -> HierarchicalComponents:
    common = name == "experts" and prior.common is not False
    directions = (
        None if isinstance(prior, GaussianPrior) else _directions(prior, inference, n, size)
    )
    scale = None if prior.scale in (None, LEARN) else np.float32(prior.scale)
    return HierarchicalComponents(n, size, common, directions, scale, mean_scale=mean_scale)


def _build_prior(name: str, prior: Any, inference: Settings, n: int, size: int) -> ComponentPrior:
    # Empirical Bayes starts from 1, too.
    scale = np.float32(1.0 if prior.scale in (None, AUTO) else prior.scale)
    if isinstance(prior, GaussianPrior):
        return GaussianComponents(n, size, scale)
    if isinstance(prior, DeterminantalPrior):
        return DeterminantalComponents(n, size, scale)
    directions = _directions(prior, inference, n, size)
    shape = np.float32(GAMMA_SHAPE if prior.magnitude_shape is None else prior.magnitude_shape)
    return PolarComponents(directions, shape, shape / (scale * np.sqrt(np.float32(size))))


def _directions(prior: Any, inference: Settings, n: int, size: int) -> MutualAngular:
    if isinstance(prior, VonMisesFisherPrior):
        # Independent directions; without a mean direction they are uniform.
        return MutualAngular(n, size, np.float32(0.0), "independent")
    kind = prior.kind or ("II" if isinstance(inference, Variational) else "I")
    if prior.concentration is None:
        cosine = COSINE if prior.cosine is None else prior.cosine
        # On the host: a program for each number of columns would take longer to compile.
        return MutualAngular(n, size, np.float32(inverse_on_host(cosine, size)), kind)
    return MutualAngular(n, size, np.float32(prior.concentration), kind)


def _diversity(inference: Any) -> Pair[float]:
    """Weights of Omega; users give that of the experts first, or one number for both."""
    value = inference.diversity
    both = value if isinstance(value, tuple) else (value, value)
    if len(both) != 2 or not all(isinstance(one, int | float) and one >= 0 for one in both):  # noqa: PLR2004
        raise ValueError(
            f"diversity={value!r}: must be a number of at least 0, or two of them, for the experts "
            "and for the gate."
        )
    experts, gate = both
    return Pair(float(gate), float(experts))


def checkpoint_of(key: Key, task: Task, arrays: dict[str, Any]) -> Checkpoint | None:
    """The requested checkpoint, valid for these data and settings only."""
    if task.checkpoint is None:
        return None
    mark = mark_of(task, arrays | {"key": jax.random.key_data(key)})
    # One of several processes writes, and all read.
    kind = Checkpoint if writes() else _ReadOnlyCheckpoint
    return kind(task.checkpoint, fingerprint=mark)


def mark_of(task: Task, arrays: dict[str, Any]) -> str:
    """A fingerprint of data and of all settings that a fit depends on."""
    # Priors are hashed by their contents, not by a repr that contains an address.
    meta = {
        "inference": repr(as_plain(task.inference)),
        "learn": repr(task.learn),
        "expert": repr(task.expert),
        "prior": [type(prior).__name__ for prior in task.priors],
        "common": [getattr(prior, "common", None) for prior in task.priors],
        "mean_scale": [getattr(prior, "mean_scale", None) for prior in task.priors],
    }
    arrays = arrays | {f"prior_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(task.priors))}
    return fingerprint({k: np.asarray(v) for k, v in arrays.items()}, meta)


def arrays_of(data: Data) -> dict[str, Any]:
    """All arrays of data in memory, by name."""
    rows = data.rows
    parts = (rows.data, rows.indices, rows.indptr) if sp.issparse(rows) else (rows,)
    arrays = {f"rows_{i}": part for i, part in enumerate(parts)}
    return arrays | {"targets": data.targets, "weights": data.weights}


class _ReadOnlyCheckpoint(Checkpoint):
    """A checkpoint that another process writes."""

    def __call__(self, state: Any, draws: Any) -> None:
        """Leave it to the other."""

    def remove(self, *, may_fail: bool = False) -> None:
        """Leave it to the other."""
