"""What single draws say of single rows: leave-one-out weights of chains, and groups for ArviZ."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import Weights
from wideangle.mixture_of_experts.predict import block_size, probabilities, score
from wideangle.posterior import Draws, arviz_stats, evenly
from wideangle.stacking import UNRELIABLE, leave_one_out, stack

STACK_ROWS, STACK_DRAWS = 4096, 400
"""Training rows, and draws of each chain, that decide the weights of chains: evenly spaced."""
MOST_BYTES = 2**28
"""Size of the log-likelihoods of rows for ArviZ; draws are thinned to it."""


class Stacked(NamedTuple):
    """Weights of chains, and what they rest on."""

    weights: np.ndarray
    n_rows: int
    unreliable: float
    """Share of the leave-one-out densities, over rows and chains, that are not to be trusted."""


def stacked(draws: Draws, data: Data) -> Stacked:
    """Weights of chains by how well they predict training rows that are left out."""
    places = evenly(data.rows.shape[0], STACK_ROWS)
    rows, targets = data.rows[places], np.asarray(data.targets)[places]
    row_weights = np.asarray(data.weights, np.float64)[places]
    kept = evenly(draws.n_draws, STACK_DRAWS)
    scores, shapes = [], []
    for chain in range(draws.n_chains):
        weights = _picked(draws, chain, kept)
        found = leave_one_out(log_lik_of_rows(weights, rows, targets), row_weights)
        scores.append(found.log_density)
        shapes.append(found.pareto_k)
    unreliable = float(np.mean(np.array(shapes) > UNRELIABLE))
    return Stacked(stack(np.array(scores), row_weights), len(places), unreliable)


def _picked(draws: Draws, chain: int, places: np.ndarray) -> Weights:
    pick = draws.values["weights"]
    return jax.tree.map(lambda leaf: np.asarray(leaf[chain][places], np.float32), pick)


def log_lik_of_rows(weights: Weights, rows: Any, targets: np.ndarray) -> np.ndarray:
    """Log probability of the class of each row in each draw, (S, N), the expert summed out."""
    size = block_size(weights)
    result = np.empty((len(weights.gate), rows.shape[0]), np.float32)
    for first in range(0, rows.shape[0], size):
        part = slice(first, first + size)
        result[:, part] = _log_lik(weights, rows[part], targets[part])
    return result


def _log_lik(weights: Weights, rows: Any, targets: np.ndarray) -> np.ndarray:
    """As in ``likelihood.summed_out``: no probability underflows, however small."""
    live = rows.shape[0]
    gate, says = (part[..., :live] for part in score(weights, rows))
    if says.shape[2] == 1:
        margin = np.where(targets == 1, says[:, :, 0], -says[:, :, 0])
        exponent = np.minimum(margin, 0.0)
        factor = 1.0 / (1.0 + np.exp(-np.abs(margin)))
    else:
        top = says.max(axis=2)
        factor = 1.0 / np.exp(says - top[:, :, None]).sum(axis=2)
        exponent = says[:, :, targets, np.arange(live)] - top
    relative = gate - gate.max(axis=1, keepdims=True)
    total = np.exp(relative).sum(axis=1)
    exponent = exponent + relative
    top = exponent.max(axis=1, keepdims=True)
    joint = (np.exp(exponent - top) * factor).sum(axis=1)
    return np.log(joint / total) + top[:, 0]


def drawn_classes(rng: np.random.Generator, weights: Weights, rows: Any) -> np.ndarray:
    """A class of each row from each draw, (S, N)."""
    size = block_size(weights)
    result = np.empty((len(weights.gate), rows.shape[0]), np.int32)
    for first in range(0, rows.shape[0], size):
        part = rows[first : first + size]
        below = np.cumsum(probabilities(weights, part), axis=1)[..., : part.shape[0]]
        level = rng.random((len(weights.gate), 1, part.shape[0])) * below[:, -1:]
        result[:, first : first + size] = np.sum(below[:, :-1] < level, axis=1)
    return result


def to_arviz(
    draws: Draws,
    trace: Draws,
    rows: Any,
    targets: np.ndarray | None,
    rng: np.random.Generator,
    names: dict[str, Any],
) -> Any:
    """Draws, and what they say of rows where there are such, as ArviZ takes them.

    Parameters
    ----------
    draws, trace
        Weights, and quantities that do not depend on how experts are numbered.
    rows, targets
        Rows and the numbers of their classes; None without.
    rng
        For classes drawn from the posterior predictive distribution.
    names
        Coordinates ``class`` and ``column``.
    """
    from wideangle.arviz_adapter import to_arviz as convert  # optional, and slow to import

    about_rows, places = {}, np.arange(draws.n_draws)
    if rows is not None:
        about_rows, places = groups_of_rows(draws, rows, targets, rng)
        names = names | {"row": np.arange(rows.shape[0])}
    weights = draws.values["weights"]
    two_classes = weights.experts.shape[3] == 1
    experts = weights.experts[:, :, :, 0] if two_classes else weights.experts
    of_draws = {
        "posterior": trace.values,
        "posterior_raw": {"gate": weights.gate, "experts": experts},
    }
    if draws.stats:
        of_draws["sample_stats"] = arviz_stats(draws.stats)
    groups = {
        group: {name: np.asarray(values)[:, places] for name, values in table.items()}
        for group, table in of_draws.items()
    }
    return convert(
        groups | about_rows,
        coords=names | {"draw": places, "expert": np.arange(weights.gate.shape[2])},
        dims={
            "y": ["row"],
            "gate": ["expert", "column"],
            "experts": ["expert", *([] if two_classes else ["class"]), "column"],
            "probability": ["watched"],
        },
    )


def groups_of_rows(
    draws: Draws, rows: Any, targets: np.ndarray | None, rng: np.random.Generator
) -> tuple[dict[str, dict[str, np.ndarray]], np.ndarray]:
    """Groups about rows, and the draws they are of.

    ``log_likelihood``, ``observed_data`` and ``posterior_predictive`` of rows whose class is known,
    ``predictions`` of others. Classes are numbers.
    """
    n_chains, n_rows = draws.n_chains, max(rows.shape[0], 1)
    places = evenly(draws.n_draws, max(MOST_BYTES // (4 * n_chains * n_rows), 1))
    by_chain = [_picked(draws, chain, places) for chain in range(n_chains)]
    drawn = np.stack([drawn_classes(rng, weights, rows) for weights in by_chain])
    if targets is None:
        return {"predictions": {"y": drawn}}, places
    found = np.stack([log_lik_of_rows(weights, rows, targets) for weights in by_chain])
    return {
        "log_likelihood": {"y": found},
        "observed_data": {"y": targets},
        "posterior_predictive": {"y": drawn},
    }, places
