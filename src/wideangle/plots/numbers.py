"""What the pictures show, as arrays; the figures and the report page draw the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from wideangle.base import present
from wideangle.presentation.family import Presentation
from wideangle.sphere.geometry import normalise, pairwise_angles

PRIOR_ENTRIES = 20_000_000
"""Most numbers drawn from a prior at once."""


def check_some(shown: Presentation) -> None:
    """Refuse a model without components."""
    if len(shown.vectors()) == 0:
        raise ValueError(f"the model has no {shown.noun}s to draw.")


def angles(model: Any) -> np.ndarray:
    """Angles between the components in degrees, (K, K)."""
    return _degrees(present(model).vectors())


def pairs(table: np.ndarray) -> np.ndarray:
    """The angles of each pair once, from tables (..., K, K)."""
    return table[..., *np.triu_indices(table.shape[-1], 1)].ravel()


def posterior_angles(model: Any, n_draws: int = 100) -> np.ndarray:
    """Angles of all pairs in each of at most ``n_draws`` draws, in degrees, one after the other.

    Angles do not depend on how components are numbered, so draws can be put together.
    """
    found = present(model).posterior_vectors(n_draws)
    return np.concatenate([pairs(_degrees(rows)) for rows in found if len(rows) > 1] or [[]])


def prior_angles(model: Any, n_sets: int = 500, seed: int = 0) -> np.ndarray:
    """The same of ``n_sets`` sets drawn from the prior (fewer where they are large)."""
    shown = present(model)
    shape = shown.vectors().shape
    if shape[0] < 2:  # noqa: PLR2004
        return np.zeros(0)
    n_sets = max(min(n_sets, PRIOR_ENTRIES // (shape[0] * shape[1])), 1)
    return pairs(_degrees(shown.prior_vectors(n_sets, seed)))


def _degrees(sets: Any) -> np.ndarray:
    return np.degrees(np.asarray(pairwise_angles(normalise(np.asarray(sets)))))


def grid_over(points: np.ndarray, n: int, margin: float) -> tuple[np.ndarray, ...]:
    """Places (n,) along both axes that cover points (N, 2) and a margin, and all pairs of them."""
    low, high = points.min(axis=0), points.max(axis=0)
    room = margin * np.where(high > low, high - low, 1.0)
    x, y = np.linspace(low - room, high + room, n).T
    return x, y, np.stack([g.ravel() for g in np.meshgrid(x, y)], axis=1)


def plane_of(activations: np.ndarray) -> np.ndarray:
    """Rows along the two directions in which the log activations differ most, (n, 2).

    Logs of the activations (n, K) are centred in each row; these are their first two principal
    components. Unlike those of the data they show what tells the components apart.
    """
    scores = np.log(np.maximum(np.asarray(activations, float), 1e-30))
    scores -= scores.mean(axis=1, keepdims=True)
    scores -= scores.mean(axis=0)
    left, size, _ = np.linalg.svd(scores, full_matrices=False)
    plane = np.zeros((len(scores), 2))
    n = min(2, len(size))
    plane[:, :n] = left[:, :n] * size[:n]
    return plane


def traces(model: Any) -> dict[str, np.ndarray]:
    """Numbers of every draw, (chain, draw) each, the most telling first; none without chains."""
    preferred = list(present(model).words)
    if model.diagnostics_ is None:
        return {}
    found = {k: np.asarray(v) for k, v in model.trace_.values.items() if np.ndim(v) == 2}  # noqa: PLR2004
    ordered = [k for k in preferred if k in found] + [k for k in found if k not in preferred]
    return {k: found[k] for k in ordered}


def largest(weights: np.ndarray, n: int) -> np.ndarray:
    """Numbers of the ``n`` largest entries, largest first."""
    return np.argsort(-weights, kind="stable")[:n]
