"""Whether a fit finds features that are known, and what a user's other choices make of the rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from wideangle.bench.harness import Settings
from wideangle.bench.record import OURS, Case, Series
from wideangle.datasets import Generated, block_images, sparse_features
from wideangle.estimators.latent_features import LatentFeatureModel

NEAR = 0.25
"""A feature is found if a component is this near, relative to its length."""
EVERY = "every seed"


class Problem(NamedTuple):
    """Data whose features are known, and what a good fit of it is."""

    name: str
    make: Callable[[int], Generated]
    fresh: Callable[[int], Generated]
    """Rows of the same features that no fit has seen."""
    n_seeds: int
    most_components: int
    mean_error: float
    """Root mean square error of posterior means of fresh rows, against rows without noise."""
    draw_error: float | None
    """The same of single draws on the rows of the fit; None asks for nothing."""


class Found(NamedTuple):
    """One fit."""

    n_found: int
    n_components: int
    mean_error: float
    draw_error: float
    seconds: float

    def good(self, problem: Problem, n_features: int) -> bool:
        """All of it at once."""
        limit = np.inf if problem.draw_error is None else problem.draw_error
        return (
            self.n_found == n_features
            and n_features <= self.n_components <= problem.most_components
            and self.mean_error <= problem.mean_error
            and self.draw_error <= limit
        )


def problems(quick: bool) -> list[Problem]:
    """Block-Images of the paper, and thirty sparse features."""
    small: dict[str, Any] = {"n_columns": 60, "n_features": 6} if quick else {}
    n_rows, most = (500, 8) if quick else (5000, 33)

    def sparse(seed: int, offset: int) -> Generated:
        """Rows of a longer draw: the features come first, so they are the same."""
        made = sparse_features(seed, 2 * n_rows, **small)
        rows = slice(offset, offset + n_rows)
        return Generated(made.X[rows], made.signal[rows], made.features, made.assignments[rows])

    return [
        Problem(
            "Block-Images",
            block_images,
            lambda seed: block_images(seed + 10_000),
            2 if quick else 20,
            5,
            0.10,
            None,
        ),
        Problem(
            "sparse features",
            lambda seed: sparse(seed, 0),
            lambda seed: sparse(seed, n_rows),
            1 if quick else 10,
            most,
            0.05,
            0.06,
        ),
    ]


def measure(settings: Settings) -> list[Case]:
    """Share of good fits, errors beside those of peers, seconds."""
    options: dict[str, Any] = {"n_warmup": 30, "n_draws": 30} if settings.quick else {}
    return [
        case for problem in problems(settings.quick) for case in cases(problem, settings, options)
    ]


def cases(problem: Problem, settings: Settings, options: dict[str, Any]) -> list[Case]:
    """Cases of one problem."""
    fits: list[Found] = []
    errors: dict[str, list[float]] = {}
    seconds: dict[str, list[float]] = {}
    n_features = 0
    for seed in range(settings.seed, settings.seed + problem.n_seeds):
        made, fresh = problem.make(seed), problem.fresh(seed)
        n_features = len(made.features)
        fits.append(fit_ours(made, fresh, seed, options))
        for name, peer in peers(n_features, seed).items():
            error, taken = fit_peer(name, peer, made, fresh)
            errors.setdefault(name, []).append(error)
            seconds.setdefault(name, []).append(taken)
    good = float(np.mean([one.good(problem, n_features) for one in fits]))
    ours = {
        OURS: Series(tuple(one.mean_error for one in fits)),
        **{name: Series(tuple(values)) for name, values in errors.items()},
    }
    times = {
        OURS: Series(tuple(one.seconds for one in fits)),
        **{name: Series(tuple(values)) for name, values in seconds.items()},
    }
    note = (
        f"{problem.name}: good is all {n_features} features within {NEAR} of their length, at most "
        f"{problem.most_components} components, error of fresh rows against rows without noise at "
        f"most {problem.mean_error:g}"
        + ("" if problem.draw_error is None else f" and of single draws {problem.draw_error:g}")
        + f"; {len(fits)} seeds: {told(fits)}. Peers are told K; NMF gets negative entries as 0."
    )
    full = {} if settings.quick else {EVERY: 1.0}
    name = problem.name
    return [
        Case(
            f"{name}: share of good fits",
            "share",
            {OURS: Series((good,)), EVERY: Series((1.0,))},
            higher_is_better=True,
            targets=full,
            note=note,
        ),
        Case(f"{name}: error against clean rows", "RMSE", ours, note=note),
        Case(f"{name}: whole fit", "s", times, note=note),
    ]


def told(fits: list[Found]) -> str:
    """The worst of every number."""
    return (
        f"found {min(one.n_found for one in fits)} or more, components "
        f"{min(one.n_components for one in fits)} to {max(one.n_components for one in fits)}, "
        f"single draws {max(one.draw_error for one in fits):.3f} at most, means "
        f"{max(one.mean_error for one in fits):.3f} at most"
    )


def fit_ours(made: Generated, fresh: Generated, seed: int, options: dict[str, Any]) -> Found:
    """A fit at the defaults."""
    model = LatentFeatureModel(random_state=seed, progress=False, **options)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # short chains, in a quick run
        model.fit(made.X)
    seconds = time.perf_counter() - start
    draws = [
        rms(state.assignments @ state.vectors * model.units_.scale + model.units_.shift, made)
        for state in model.chains_.states
    ]
    return Found(
        n_found(made.features, model.components_),
        model.n_components_,
        rms(model.reconstruct(fresh.X), fresh),
        float(np.median(draws)),
        seconds,
    )


def rms(rows: np.ndarray, made: Generated) -> float:
    """Root mean square error against rows without noise."""
    return float(np.sqrt(np.mean((rows - made.signal) ** 2)))


def n_found(features: np.ndarray, components: np.ndarray) -> int:
    """Features that have a component of their own near them."""
    if len(components) == 0:
        return 0
    gaps = np.linalg.norm(features[:, None] - components, axis=2)
    gaps /= np.linalg.norm(features, axis=1)[:, None]
    # Matching the most that are near, not the least total distance.
    pairs = linear_sum_assignment((gaps > NEAR).astype(float))
    return int(np.sum(gaps[pairs] <= NEAR))


def peers(n_components: int, seed: int) -> dict[str, Any]:
    """What else a user could pick; all are told the number of features."""
    from sklearn.decomposition import (
        NMF,
        FactorAnalysis,
        MiniBatchDictionaryLearning,
        TruncatedSVD,
    )

    return {
        "NMF": NMF(n_components, init="nndsvda", max_iter=500, random_state=seed),
        "factor analysis": FactorAnalysis(n_components, random_state=seed),
        "dictionary learning": MiniBatchDictionaryLearning(n_components, random_state=seed),
        "truncated SVD": TruncatedSVD(n_components, random_state=seed),
    }


def fit_peer(name: str, peer: Any, made: Generated, fresh: Generated) -> tuple[float, float]:
    """Error of reconstructed fresh rows, and seconds of the fit."""

    def rows(X: np.ndarray) -> np.ndarray:
        return np.maximum(X, 0.0) if name == "NMF" else X

    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # no convergence in so many steps
        peer.fit(rows(made.X))
    seconds = time.perf_counter() - start
    found = peer.transform(rows(fresh.X)) @ peer.components_
    return rms(found + getattr(peer, "mean_", 0.0), fresh), seconds
