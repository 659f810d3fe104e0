"""Single draws at single rows: leave-one-out weights of chains, and groups for ArviZ."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from wideangle.mixture_of_experts.data import Data
from wideangle.mixture_of_experts.likelihood import ExpertLikelihood, Weights
from wideangle.mixture_of_experts.predict import block_size, log_lik_of_rows
from wideangle.mixture_of_experts.prepare import TargetScaling
from wideangle.posterior import Draws, arviz_stats, evenly
from wideangle.stacking import UNRELIABLE, leave_one_out, stack

STACK_ROWS, STACK_DRAWS = 4096, 400
"""Number of training rows, and of draws per chain, for the weights of chains: evenly spaced."""
MOST_BYTES = 2**28
"""Size of the log-likelihoods of rows for ArviZ; draws are thinned to it."""


class Stacked(NamedTuple):
    """Weights of chains, and their reliability."""

    weights: np.ndarray
    n_rows: int
    unreliable: float
    """Share of the leave-one-out densities, over rows and chains, that are unreliable."""


def stacked(expert: ExpertLikelihood, draws: Draws, data: Data) -> Stacked:
    """Weights of chains by how well they predict left-out training rows."""
    places = evenly(data.rows.shape[0], STACK_ROWS)
    rows, targets = data.rows[places], np.asarray(data.targets)[places]
    row_weights = np.asarray(data.weights, np.float64)[places]
    kept = evenly(draws.n_draws, STACK_DRAWS)
    scores, shapes = [], []
    for chain in range(draws.n_chains):
        weights = _picked(draws, chain, kept)
        found = leave_one_out(log_lik_of_rows(expert, weights, rows, targets), row_weights)
        scores.append(found.log_density)
        shapes.append(found.pareto_k)
    unreliable = float(np.mean(np.array(shapes) > UNRELIABLE))
    return Stacked(stack(np.array(scores), row_weights), len(places), unreliable)


def _picked(draws: Draws, chain: int, places: np.ndarray) -> Weights:
    pick = draws.values["weights"]
    return jax.tree.map(lambda leaf: np.asarray(leaf[chain][places], np.float32), pick)


def drawn_targets(
    expert: ExpertLikelihood, rng: np.random.Generator, weights: Weights, rows: Any
) -> np.ndarray:
    """A target of each row from each draw, (S, N)."""
    size = block_size(weights)
    starts = range(0, rows.shape[0], size)
    parts = [expert.draw(rng, weights, rows[first : first + size]) for first in starts]
    return np.concatenate(parts, axis=1)


def to_arviz(
    draws: Draws,
    trace: Draws,
    about_rows: AboutRows | None,
    names: dict[str, Any],
    starts: np.ndarray | None = None,
) -> Any:
    """Draws, and their predictions of rows if there are any, for ArviZ.

    Parameters
    ----------
    draws, trace
        Weights, and quantities that do not depend on how experts are numbered.
    about_rows
        From :func:`groups_of_rows`, or None.
    names
        Coordinates ``column``, that of the outputs of an expert if it has several, and ``row``.
    starts
        Which start each draw of an approximation comes from, (1, draw); None for Markov chains.
    """
    from wideangle.arviz_adapter import to_arviz as convert  # optional, and slow to import

    groups_about, places = about_rows or AboutRows({}, np.arange(draws.n_draws))
    weights = draws.values["weights"]
    outputs = [name for name in names if name not in ("column", "row")]
    one_output = weights.experts.shape[3] == 1
    experts = weights.experts[:, :, :, 0] if one_output else weights.experts
    of_draws = {
        "posterior": trace.values,
        "posterior_raw": {"gate": weights.gate, "experts": experts},
    }
    if starts is not None:
        of_draws["sample_stats"] = {"start": starts}
    elif draws.stats:
        of_draws["sample_stats"] = arviz_stats(draws.stats)
    groups = {
        group: {name: np.asarray(values)[:, places] for name, values in table.items()}
        for group, table in of_draws.items()
    }
    return convert(
        groups | groups_about,
        coords=names | {"draw": places, "expert": np.arange(weights.gate.shape[2])},
        dims={
            "y": ["row"],
            "gate": ["expert", "column"],
            "experts": ["expert", *([] if one_output else outputs), "column"],
            **{name: ["watched"] for name in ("probability", "prediction", "spread")},
        },
    )


class AboutRows(NamedTuple):
    """Groups about rows, and the draws they belong to."""

    groups: dict[str, dict[str, np.ndarray]]
    places: np.ndarray


def groups_of_rows(
    expert: ExpertLikelihood,
    draws: Draws,
    rows: Any,
    targets: np.ndarray | None,
    rng: np.random.Generator,
    scaling: TargetScaling | None = None,
) -> AboutRows:
    """Predictions of draws for rows.

    ``log_likelihood``, ``observed_data`` and ``posterior_predictive`` for rows with known targets,
    ``predictions`` for others. Classes are numbers; quantities are in the units of ``scaling``.
    """
    n_chains, n_rows = draws.n_chains, max(rows.shape[0], 1)
    places = evenly(draws.n_draws, max(MOST_BYTES // (4 * n_chains * n_rows), 1))
    by_chain = [_picked(draws, chain, places) for chain in range(n_chains)]
    drawn = np.stack([drawn_targets(expert, rng, weights, rows) for weights in by_chain])
    if scaling is not None:
        drawn = scaling.restore(drawn)
    if targets is None:
        return AboutRows({"predictions": {"y": drawn}}, places)
    each = (log_lik_of_rows(expert, weights, rows, targets) for weights in by_chain)
    found = np.stack([one.astype(np.float32) for one in each])
    if scaling is not None:
        found, targets = found - np.log(scaling.scale), scaling.restore(targets)
    return AboutRows(
        {
            "log_likelihood": {"y": found},
            "observed_data": {"y": targets},
            "posterior_predictive": {"y": drawn},
        },
        places,
    )
