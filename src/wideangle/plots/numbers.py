"""What the pictures show, as arrays; the figures and the report page draw the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from sklearn.utils.validation import check_is_fitted

from wideangle.mixture_of_experts.predict import thinned
from wideangle.posterior import evenly
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.sphere.geometry import normalise, pairwise_angles

INTERCEPT = "(intercept)"
PRIOR_ENTRIES = 20_000_000
"""Most numbers drawn from a prior at once."""


def is_mixture(model: Any) -> bool:
    """Whether the components are experts, and not features."""
    return hasattr(model, "gate_proba")


def noun(model: Any) -> str:
    """What a component of the model is called."""
    return "expert" if is_mixture(model) else "feature"


def vectors(model: Any) -> np.ndarray:
    """Components as rows, (K, P); the classes of an expert one after the other."""
    check_is_fitted(model)
    found = model.experts_ if is_mixture(model) else model.components_
    found = np.asarray(found, float)
    return found.reshape(len(found), int(np.prod(found.shape[1:])))


def column_names(model: Any, names: Sequence[str] | None = None) -> list[str]:
    """Names of the entries of a weight vector: those given, those of the fit, or numbers."""
    check_is_fitted(model)
    if names is None:
        names = getattr(model, "feature_names_in_", None)
    n = model.n_features_in_
    chosen = [f"column {i + 1}" for i in range(n)] if names is None else [str(c) for c in names]
    if len(chosen) != n:
        raise ValueError(f"names: the model has {n} columns, got {len(chosen)} names.")
    return chosen + [INTERCEPT] * bool(is_mixture(model) and model.fit_intercept)


def angles(model: Any) -> np.ndarray:
    """Angles between the components in degrees, (K, K)."""
    return np.degrees(np.asarray(pairwise_angles(normalise(vectors(model)))))


def pairs(table: np.ndarray) -> np.ndarray:
    """The angles of each pair once, from tables (..., K, K)."""
    return table[..., *np.triu_indices(table.shape[-1], 1)].ravel()


def posterior_angles(model: Any, n_draws: int = 100) -> np.ndarray:
    """Angles of all pairs in each of at most ``n_draws`` draws, in degrees, one after the other.

    Angles do not depend on how components are numbered, so draws can be put together. Of a latent
    feature model only features that matter are counted, those matched to a component.
    """
    check_is_fitted(model)
    if is_mixture(model):
        experts = np.asarray(thinned(model.posterior_, n_draws).experts)
        return pairs(_degrees(experts.reshape(*experts.shape[:2], -1)))
    states, index = model.chains_.states, model.matched_.index
    chosen = evenly(len(states), n_draws)
    found = [states[i].vectors[index[i][index[i] >= 0]] for i in chosen]
    return np.concatenate([pairs(_degrees(rows)) for rows in found if len(rows) > 1] or [[]])


def prior_angles(model: Any, n_sets: int = 500, seed: int = 0) -> np.ndarray:
    """The same of ``n_sets`` sets drawn from the prior of the model (fewer where they are large).

    A Gaussian or independent prior has uniform directions.
    """
    shape = vectors(model).shape
    if shape[0] < 2:  # noqa: PLR2004
        return np.zeros(0)
    n_sets = max(min(n_sets, PRIOR_ENTRIES // (shape[0] * shape[1])), 1)
    if is_mixture(model):
        prior = model.priors_.experts
        prior = getattr(prior, "directions", prior)  # lengths change no angle
    else:
        concentration = model.concentration_ if model.prior == "mutual-angular" else 0.0
        prior = MutualAngular(*shape, np.float32(concentration))
    return pairs(_degrees(prior.sample(jax.random.key(seed), (n_sets,))))


def _degrees(sets: Any) -> np.ndarray:
    return np.degrees(np.asarray(pairwise_angles(normalise(np.asarray(sets)))))


def activations(model: Any, X: Any) -> np.ndarray:
    """How much each row uses each component, between 0 and 1, (N, K)."""
    return np.asarray(model.gate_proba(X) if is_mixture(model) else model.transform(X))


def gate_plane(proba: np.ndarray) -> np.ndarray:
    """Rows along the two directions in which the gate's scores differ most, (N, 2).

    Scores are the logs of the gate's probabilities (N, K), centred in each row; these are their
    first two principal components. Unlike those of the data they show what the gate looks at.
    """
    scores = np.log(np.maximum(np.asarray(proba, float), 1e-30))
    scores -= scores.mean(axis=1, keepdims=True)
    scores -= scores.mean(axis=0)
    left, size, _ = np.linalg.svd(scores, full_matrices=False)
    plane = np.zeros((len(scores), 2))
    n = min(2, len(size))
    plane[:, :n] = left[:, :n] * size[:n]
    return plane


def traces(model: Any) -> dict[str, np.ndarray]:
    """Numbers of every draw that can be compared between chains, (chain, draw) each."""
    check_is_fitted(model)
    values = model.invariants_ if is_mixture(model) else model.trace_.values
    return {k: np.asarray(v) for k, v in values.items() if np.ndim(v) == 2}  # noqa: PLR2004


def largest(weights: np.ndarray, n: int) -> np.ndarray:
    """Numbers of the ``n`` largest entries, largest first."""
    return np.argsort(-weights, kind="stable")[:n]
