"""What the chains of the latent feature model say together."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wideangle.latent_features import components as lfm_components
from wideangle.latent_features import match as lfm_match
from wideangle.latent_features.chain import Chain, State
from wideangle.latent_features.fit import tolerance
from wideangle.latent_features.predict.held_out import FeatureDraw
from wideangle.latent_features.rows.columns import gram_of
from wideangle.latent_features.rows.imputed import ImputedRows
from wideangle.latent_features.rows.memory import FeatureRows
from wideangle.posterior import Draws

N_DRAWS = 25
"""Kept states that predictions are averaged over: more change little and cost time."""

MIN_PRESENCE = 0.5
"""Share of the draws that must have a feature for it to be a component."""


class Gathered(NamedTuple):
    """Kept states of all chains, one after the other, and the trace of each chain."""

    states: list[State]
    chains: np.ndarray
    """(states,) number of the chain of each state."""
    trace: dict[str, np.ndarray]
    """(chain, draw) each, in scaled units."""

    @property
    def dim(self) -> int:
        """Number of columns of the rows, D."""
        return self.states[0].vectors.shape[1]


def gather(chains: list[Chain]) -> Gathered:
    """States and traces; chains that were stopped are cut to the shortest."""
    states = [state for chain in chains for state in chain.kept]
    numbers = np.repeat(np.arange(len(chains)), [len(chain.kept) for chain in chains])
    length = min(len(chain.trace["n_active"]) for chain in chains)
    names = chains[0].trace
    trace = {name: np.array([chain.trace[name][:length] for chain in chains]) for name in names}
    return Gathered(states, numbers, trace)


def as_draw(state: State, *, with_assignments: bool = False) -> FeatureDraw:
    """A kept state as the scoring functions take it."""
    used = state.assignments if with_assignments else None
    return FeatureDraw(state.vectors, state.weights, float(state.hyper.noise), used)


def some_draws(gathered: Gathered) -> tuple[list[FeatureDraw], np.ndarray]:
    """At most :data:`N_DRAWS` states, evenly spaced over all chains, and their numbers."""
    total = len(gathered.states)
    numbers = np.unique(np.linspace(0, total - 1, min(N_DRAWS, total)).round().astype(int))
    return [as_draw(gathered.states[i]) for i in numbers], numbers


def components(gathered: Gathered, rows: FeatureRows) -> lfm_match.Matched:
    """Features that matter, matched across draws; the draw of highest density leads."""
    masks = []
    for state in gathered.states:
        used = state.assignments
        draw = as_draw(state)
        gram, cross = gram_of(used), _cross(rows, used, draw)
        masks.append(lfm_components.matters(draw, gram, cross, rows.n_rows))
    return lfm_match.match(
        [as_draw(state) for state in gathered.states],
        masks,
        chains=gathered.chains,
        min_presence=MIN_PRESENCE,
    )


def _cross(rows: FeatureRows, used: np.ndarray, draw: FeatureDraw) -> np.ndarray:
    """Z'X such that :func:`~.lfm_components.removal_cost` counts the entries that are seen.

    Missing entries are filled with what the draw expects, so they have no residual. The cost of
    removal would still count the squares of the feature there, n_kd w_kd^2 with n_kd gaps: half of
    n_kd w_kd less in the sums takes them out.
    """
    if not isinstance(rows, ImputedRows):
        return rows.cross(used)
    rows.fill_with_expected(used, draw.features)
    return rows.cross(used) - 0.5 * rows.n_gaps_of(used) * draw.features


def as_draws(gathered: Gathered, scaling: Any) -> Draws:
    """Kept states padded to one size, in units of the data, axes (chain, draw, ...)."""
    n_chains = int(gathered.chains.max()) + 1
    by_chain = [np.flatnonzero(gathered.chains == c) for c in range(n_chains)]
    length = min(map(len, by_chain))
    most = max(len(state.weights) for state in gathered.states)
    first = gathered.states[0]
    shape = n_chains, length, most
    # Draws of extreme units have no place in single precision.
    wide = not 1e-20 < scaling.scale < 1e20  # noqa: PLR2004
    dtype = np.float64 if wide else first.vectors.dtype
    vectors = np.zeros((*shape, first.vectors.shape[1]), dtype)
    weights = np.zeros(shape)
    counts = np.zeros(shape, np.int64)
    numbers = np.zeros(shape[:2], np.int64)
    for c, members in enumerate(by_chain):
        for t, i in enumerate(members[:length]):
            state = gathered.states[i]
            n = len(state.weights)
            vectors[c, t, :n] = state.vectors.astype(np.float64) * scaling.scale
            weights[c, t, :n] = state.weights
            counts[c, t, :n] = state.assignments.sum(axis=0)
            numbers[c, t] = n
    values = {"features": vectors, "weights": weights, "counts": counts, "n_features": numbers}
    return Draws(values)


def trace(gathered: Gathered, scaling: Any, magnitude_shape: float | None) -> dict[str, np.ndarray]:
    """Numbers of every draw, in units of the data; those that never change are left out.

    Log densities alone are those of scaled rows: in other units they would shift by an amount that
    depends on the number of features. With missing entries they are of the rows as filled in.
    ``magnitude_shape`` is None for Gaussian features.
    """
    found = dict(gathered.trace)
    found["noise_scale"] = np.sqrt(found.pop("noise_variance")) * scaling.scale
    found["residual_rms"] = found["residual_rms"] * scaling.scale
    rate = found.pop("rate")
    if magnitude_shape is None:  # the precision of an entry
        size = rate**-0.5
    else:
        size = magnitude_shape / (rate * gathered.dim**0.5)
    found["feature_scale"] = size * scaling.scale
    found.pop("acceptance", None)
    always = ("alpha", "noise_scale", "concentration")
    return {
        name: values
        for name, values in found.items()
        if name in always or np.ptp(values) > 0 or name in ("n_active", "log_lik", "log_joint")
    }


def disagreements(model: Any) -> list[str]:
    """Sentences about searches or chains that found different features."""
    sentences = []
    objectives = model.start_objectives_
    known = objectives[np.isfinite(objectives)]
    if len(known) > 1:
        worse = known < known.max() - tolerance(model.n_rows_)
        if worse.sum() == len(known) - 1:
            sentences.append(
                f"only one of {len(known)} searches for features reached the best objective "
                f"({known.max():.0f}; the others {np.sort(known)[:-1].round().tolist()}): there "
                "may be better features still; more n_chains or hops would tell."
            )
    n_disputed = model.matched_.n_disputed
    if n_disputed:
        sentences.append(
            f"{n_disputed} features are in most draws of one chain and not of another: the chains "
            "explain the data in different ways; see matched_.by_chain."
        )
    return sentences


def to_arviz(trace_draws: Draws, raw: Draws) -> Any:
    """Groups ``posterior`` (comparable between chains) and ``posterior_raw``."""
    from wideangle.arviz_adapter import to_arviz as convert  # optional, and slow to import

    return convert({"posterior": trace_draws.values, "posterior_raw": raw.values})
