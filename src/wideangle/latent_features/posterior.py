r"""Results of all chains together: draws, and the components that draws have in common.

Draws differ in the number and the order of their features. A component is a feature that matters
and is found in at least half of the draws, where features of different draws are the same if their
relative distance is below a cut-off. Vectors of the same component are averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from wideangle.latent_features.chain import Chain
from wideangle.latent_features.fit import tolerance
from wideangle.latent_features.state import Draw, probes
from wideangle.posterior import Draws, evenly

N_DRAWS = 25
"""Number of draws that predictions average over: more change little and cost time."""
NEEDED = ("signal",)
"""Numbers of the trace that predictions depend on: reconstructed entries. The others describe how a
draw is made up, and may mix slowly without harm."""
MIN_PRESENCE = 0.5
"""Share of the draws that must have a feature for it to be a component."""
SEARCHED = 10
"""Draws of every chain in which candidates are searched for: all lack a component as rare as the
rarest with a probability of 0.001."""
CUTOFF = 0.5
"""Largest relative distance between features that count as the same."""
MOST = 0.5
"""Least share of a chain's draws at which the chain has found a feature."""


class DrawsOfChains(NamedTuple):
    """Draws of all chains, one after the other, and the trace of each chain."""

    draws: list[Draw]
    chains: np.ndarray
    """(draws,) number of the chain of each draw."""
    trace: dict[str, np.ndarray]
    """(chain, draw) each, in scaled units."""
    stacked: np.ndarray | None = None
    """(chain,) weights of chains in predictions, unless they are equal."""

    @property
    def members(self) -> list[np.ndarray]:
        """Numbers of the draws of each chain."""
        return [np.flatnonzero(self.chains == c) for c in range(int(self.chains.max()) + 1)]

    @property
    def weights(self) -> np.ndarray:
        """(chain,) weights of chains in predictions."""
        n_chains = len(self.members)
        return np.full(n_chains, 1.0 / n_chains) if self.stacked is None else self.stacked

    @property
    def dim(self) -> int:
        """Number of columns of the rows, D."""
        return self.draws[0].vectors.shape[1]


def gather(chains: list[Chain]) -> DrawsOfChains:
    """Draws and traces; interrupted chains are cut to the shortest."""
    draws = [draw for chain in chains for draw in chain.draws]
    numbers = np.repeat(np.arange(len(chains)), [len(chain.draws) for chain in chains])
    length = min(len(chain.trace["n_active"]) for chain in chains)
    names = chains[0].trace
    trace = {name: np.array([chain.trace[name][:length] for chain in chains]) for name in names}
    return DrawsOfChains(draws, numbers, trace)


def some_draws(chains: DrawsOfChains) -> tuple[list[Draw], np.ndarray]:
    """At most :data:`N_DRAWS` draws, evenly spaced over all chains, and their numbers.

    If chains have weights, draws are taken in proportion to them, some more than once.
    """
    total = len(chains.draws)
    if chains.stacked is None:
        numbers = np.unique(np.linspace(0, total - 1, min(N_DRAWS, total)).round().astype(int))
    else:
        share = (chains.stacked / np.bincount(chains.chains))[chains.chains]
        levels = (np.arange(N_DRAWS) + 0.5) / N_DRAWS
        numbers = np.searchsorted(np.cumsum(share), levels * share.sum()).clip(max=total - 1)
    return [chains.draws[i] for i in numbers], numbers


def as_draws(chains: DrawsOfChains, scaling: Any) -> Draws:
    """Draws padded to one size, in units of the data, axes (chain, draw, ...)."""
    members = chains.members
    length = min(map(len, members))
    most = max(len(draw.weights) for draw in chains.draws)
    shape = len(members), length, most
    # Values in extreme units do not fit into single precision.
    wide = not 1e-20 < scaling.scale < 1e20  # noqa: PLR2004
    dtype = np.float64 if wide else chains.draws[0].vectors.dtype
    vectors = np.zeros((*shape, chains.dim), dtype)
    weights = np.zeros(shape)
    counts = np.zeros(shape, np.int64)
    numbers = np.zeros(shape[:2], np.int64)
    for c, of_chain in enumerate(members):
        for t, i in enumerate(of_chain[:length]):
            draw = chains.draws[i]
            n = len(draw.weights)
            vectors[c, t, :n] = draw.vectors.astype(np.float64) * scaling.scale
            weights[c, t, :n] = draw.weights
            counts[c, t, :n] = draw.assignments.sum(axis=0)
            numbers[c, t] = n
    values = {"features": vectors, "weights": weights, "counts": counts, "n_features": numbers}
    return Draws(values)


def trace(
    chains: DrawsOfChains, scaling: Any, magnitude_shape: float | None
) -> dict[str, np.ndarray]:
    """Quantities of every draw, in units of the data; constant ones are left out.

    Only log densities are those of scaled rows: in other units they would shift by an amount that
    depends on the number of features. With missing entries they are for the imputed rows.
    ``magnitude_shape`` is None for Gaussian features.
    """
    found = dict(chains.trace)
    found["noise_scale"] = np.sqrt(found.pop("noise_variance")) * scaling.scale
    found["residual_rms"] = found["residual_rms"] * scaling.scale
    columns = probes(1, chains.dim)[1]
    found["signal"] = found["signal"] * scaling.scale + scaling.shift[columns]
    rate = found.pop("rate")
    if magnitude_shape is None:  # the precision of an entry
        size = rate**-0.5
    else:
        size = magnitude_shape / (rate * chains.dim**0.5)
    found["feature_scale"] = size * scaling.scale
    found.pop("acceptance", None)
    always = ("alpha", "noise_scale", "concentration")
    return {
        name: values
        for name, values in found.items()
        if name in always or np.ptp(values) > 0 or name in ("n_active", "log_lik", "log_joint")
    }


def agreement(objectives: np.ndarray, n_rows: int) -> float:
    """Share of searches that reached the best objective, up to what counts as the same."""
    known = objectives[np.isfinite(objectives)]
    return float(np.mean(known >= known.max() - tolerance(n_rows))) if len(known) else 1.0


def disagreements(objectives: np.ndarray, n_disputed: int, n_rows: int) -> list[str]:
    """Sentences for the report about searches or chains that found different features."""
    sentences = []
    n_best = round(agreement(objectives, n_rows) * len(objectives))
    if n_best == 1 < len(objectives):
        sentences.append(
            f"only one of {len(objectives)} searches for features reached the best objective "
            f"({objectives.max():.0f}; the others {np.sort(objectives)[:-1].round().tolist()}): "
            "there may be better features; try more chains or hops."
        )
    if n_disputed:
        sentences.append(
            f"{n_disputed} features are in most draws of one chain and not of another: the chains "
            "explain the data in different ways; see matched_.by_chain."
        )
    return sentences


# ---------------------------------------------------------------- components


class Matched(NamedTuple):
    """Components shared by draws, the largest energy first."""

    components: np.ndarray
    """(K, D): mean vector over the draws that have the component."""
    presence: np.ndarray
    """(K,): share of the draws that have it."""
    index: np.ndarray
    """(draws, K): its index in each draw, -1 where it is absent."""
    spread: np.ndarray
    """(K,): root mean square distance of a draw's vector from the mean, relative to its length."""
    prevalence: np.ndarray
    """(K,): mean weight over the draws that have it, the share of rows with the component."""
    energy: np.ndarray
    r"""(K,): mean of :math:`\mu |w|^2`, what it adds to the squared length of a row."""
    by_chain: np.ndarray
    """(chains, K): share of the draws of each chain that have it."""
    n_disputed: int
    """Features, kept or not, that most draws of one chain have and most of another lack."""


def match(draws: Sequence[Draw], *, chains: Any = None) -> Matched:
    """Find the features that matter and that draws have in common.

    Features a, b of different draws can be the same if :math:`|a - b| < c max(|a|, |b|)`, c the
    :data:`CUTOFF`; a feature and its negative never are. Candidates are collected from a few draws
    of every chain and averaged over those draws. Every draw is then assigned to these averages, one
    to one with the least total distance. ``chains`` has the number of the chain of each draw; all
    are of one chain when it is left out.
    """
    kept = [np.flatnonzero(draw.worth > 0) for draw in draws]
    chains = (
        np.zeros(len(draws), int) if chains is None else np.unique(chains, return_inverse=True)[1]
    )
    members = [np.flatnonzero(chains == c) for c in range(chains.max() + 1)]
    searched = [s for one in members for s in one[evenly(len(one), SEARCHED)]]
    centres = _candidates([_vectors(draws[s], kept[s]) for s in searched])
    found = np.stack(
        [
            np.append(numbers, -1)[_assign(_vectors(draw, numbers), centres)]
            for draw, numbers in zip(draws, kept, strict=True)
        ]
    )
    by_chain = np.stack([(found[one] >= 0).mean(axis=0) for one in members])
    has = by_chain >= MOST
    disputed = int((has.any(axis=0) & ~has.all(axis=0)).sum())
    # Compare counts with a margin: a share such as 3/10 may be rounded to either side of 0.3.
    chosen = (found >= 0).sum(axis=0) > MIN_PRESENCE * len(draws) - 1e-6
    return _summary(draws, found[:, chosen], by_chain[:, chosen], disputed)


def _vectors(draw: Draw, numbers: np.ndarray) -> np.ndarray:
    """Features in single precision: enough for distances, and half the time."""
    return np.asarray(draw.vectors)[numbers].astype(np.float32)


def _candidates(searched: list[np.ndarray]) -> np.ndarray:
    """Features of the searched draws; one that matches an earlier one is averaged with it."""
    centres = searched[0].copy()
    weights = np.ones(len(centres), np.float32)
    for vectors in searched[1:]:
        found = _assign(vectors, centres)
        known = np.flatnonzero(found >= 0)
        weights[known] += 1.0
        centres[known] += (vectors[found[known]] - centres[known]) / weights[known, None]
        new = np.setdiff1d(np.arange(len(vectors)), found[known])
        centres = np.concatenate([centres, vectors[new]])
        weights = np.append(weights, np.ones(len(new), np.float32))
    return centres


def _assign(vectors: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Index of the vector of each centre, or -1: one to one, with the least total distance."""
    result = np.full(len(centres), -1)
    gain = np.maximum(CUTOFF - relative_distance(vectors, centres), 0.0)
    rows, columns = linear_sum_assignment(gain, maximize=True)
    close = gain[rows, columns] > 0.0
    result[columns[close]] = rows[close]
    return result


def relative_distance(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """|a - b| / max(|a|, |b|) for every pair, (K, K'); 1 between a zero vector and any other."""
    a, b = np.sum(left**2, axis=1)[:, None], np.sum(right**2, axis=1)[None, :]
    larger = np.maximum(np.maximum(a, b), np.finfo(float).tiny)
    return np.sqrt(np.maximum(a + b - 2.0 * (left @ right.T), 0.0) / larger)


def _summary(
    draws: Sequence[Draw], index: np.ndarray, by_chain: np.ndarray, n_disputed: int
) -> Matched:
    """Averages over draws of the matched features, in falling order of energy."""
    n_found, dim = index.shape[1], draws[0].vectors.shape[1]
    mean, square = np.zeros((n_found, dim)), np.zeros(n_found)
    prevalence, energy = np.zeros(n_found), np.zeros(n_found)
    for draw, numbers in zip(draws, index, strict=True):
        present = numbers >= 0
        vectors = np.asarray(draw.vectors)[numbers[present]].astype(np.float64)
        weights = np.asarray(draw.weights)[numbers[present]].astype(np.float64)
        length = np.sum(vectors**2, axis=1)
        mean[present] += vectors
        square[present] += length
        prevalence[present] += weights
        energy[present] += weights * length
    times = (index >= 0).sum(axis=0)
    mean, square = mean / times[:, None], square / times
    centre = np.sum(mean**2, axis=1)
    order = np.argsort(-energy / times, kind="stable")
    return Matched(
        components=mean[order],
        presence=times[order] / len(draws),
        index=index[:, order],
        spread=np.sqrt(np.maximum(square - centre, 0.0) / np.maximum(centre, 1e-300))[order],
        prevalence=(prevalence / times)[order],
        energy=(energy / times)[order],
        by_chain=by_chain[:, order],
        n_disputed=n_disputed,
    )


def to_arviz(
    chains: DrawsOfChains,
    raw: Draws,
    trace: Draws,
    names: Sequence[str],
    about: tuple[np.ndarray, Callable[[Draw], np.ndarray]] | None = None,
) -> Any:
    """Draws for ArviZ; ``about`` are rows and their log densities given a draw, if rows are given.

    Names are those of the columns.
    """
    from wideangle.arviz_adapter import to_arviz as gathered  # optional, and slow to import

    groups: dict[str, Any] = {"posterior": trace.values, "posterior_raw": raw.values}
    coords: dict[str, Any] = {"column": names}
    if about is not None:
        rows, density = about
        found = [
            [density(chains.draws[i]) for i in members[: raw.n_draws]] for members in chains.members
        ]
        # The trace has every sweep; all groups must have the same draws.
        thin = trace.n_draws // raw.n_draws
        kept = slice(thin - 1, thin * raw.n_draws, thin)
        groups["posterior"] = {name: values[:, kept] for name, values in trace.values.items()}
        groups["log_likelihood"] = {"x": np.array(found)}
        groups["observed_data"] = {"rows": rows}
        coords["row"] = np.arange(len(rows))
    of_features = {name: ["feature"] for name in ("weights", "counts")}
    dims = {"x": ["row"], "rows": ["row", "column"], "features": ["feature", "column"]}
    return gathered(groups, coords=coords, dims=dims | of_features)
