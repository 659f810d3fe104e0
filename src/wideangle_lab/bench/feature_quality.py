"""Whether fits recover known features, compared with other methods."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from wideangle.datasets import Generated, block_images
from wideangle.latent_features.estimator import LatentFeatureModel
from wideangle.settings import Sampling
from wideangle_lab.bench.harness import Settings
from wideangle_lab.bench.record import OURS, Case, Series

NEAR = 0.25
"""A feature is found if a component is within this distance, relative to its length."""
EVERY = "every seed"
MIXTURE = "Bayesian Gaussian mixture"


class Problem(NamedTuple):
    """Data with known features, and the criteria of a good fit."""

    name: str
    make: Callable[[int], Generated]
    fresh: Callable[[int], Generated]
    """New rows with the same features."""
    n_seeds: int
    most_components: int
    mean_error: float
    """Root mean square error of posterior means of fresh rows, against rows without noise."""
    draw_error: float | None
    """The same for single draws on the training rows; None sets no limit."""
    good_share: float
    """Smallest allowed share of seeds with a good fit."""
    seconds: float
    """Limit of the seconds of a fit."""


class Found(NamedTuple):
    """One fit."""

    n_found: int
    n_components: int
    mean_error: float
    draw_error: float
    seconds: float
    applied: float
    """Seconds to reconstruct the fresh rows."""

    def good(self, problem: Problem, n_features: int) -> bool:
        """Whether all criteria hold."""
        limit = np.inf if problem.draw_error is None else problem.draw_error
        return (
            self.n_found == n_features
            and n_features <= self.n_components <= problem.most_components
            and self.mean_error <= problem.mean_error
            and self.draw_error <= limit
        )


def sparse_features(
    seed: int = 0,
    n_rows: int = 5000,
    n_columns: int = 200,
    n_features: int = 30,
    *,
    n_nonzero: int = 20,
    presence: float = 0.2,
    noise: float = 0.5,
) -> Generated:
    """Many sparse features, each present or absent, and noise.

    Parameters
    ----------
    seed : int
        The same seed gives the same rows.
    n_rows : int
        Number of rows.
    n_columns : int
        Entries of a row.
    n_features : int
        Number of features.
    n_nonzero : int
        Entries of a feature that are not 0: standard normal, at random places.
    presence : float
        Probability of each feature.
    noise : float
        Standard deviation of an entry.
    """
    generator = np.random.default_rng(seed)
    features = np.zeros((n_features, n_columns))
    for row in features:
        places = generator.choice(n_columns, n_nonzero, replace=False)
        row[places] = generator.standard_normal(n_nonzero)
    assignments = (generator.random((n_rows, n_features)) < presence).astype(np.float64)
    signal = assignments @ features
    X = signal + noise * generator.standard_normal(signal.shape)
    return Generated(X, signal, features, assignments)


def problems(quick: bool) -> list[Problem]:
    """Block-Images of the paper, and thirty sparse features."""
    small: dict[str, Any] = {"n_columns": 60, "n_features": 6} if quick else {}
    n_rows, most = (500, 8) if quick else (5000, 33)

    def sparse(seed: int, offset: int) -> Generated:
        """Rows of a longer draw with the same seed, which has the same features."""
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
            0.95,
            10.0,
        ),
        Problem(
            "sparse features",
            lambda seed: sparse(seed, 0),
            lambda seed: sparse(seed, n_rows),
            1 if quick else 10,
            most,
            0.05,
            0.06,
            0.9,
            30.0,
        ),
    ]


def measure(settings: Settings) -> list[Case]:
    """Share of good fits, errors, and seconds, compared with other methods."""
    inference = Sampling(n_warmup=30, n_draws=30, thin=1) if settings.quick else None
    return [
        case for problem in problems(settings.quick) for case in cases(problem, settings, inference)
    ]


def cases(problem: Problem, settings: Settings, inference: Sampling | None) -> list[Case]:
    """Cases of one problem."""
    fits: dict[str, list[Found]] = {}
    n_features = 0
    for seed in range(settings.seed, settings.seed + problem.n_seeds):
        made, fresh = problem.make(seed), problem.fresh(seed)
        n_features = len(made.features)
        fits.setdefault(OURS, []).append(fit_ours(made, fresh, seed, inference))
        for name, peer in peers(n_features, seed).items():
            fits.setdefault(name, []).append(fit_peer(name, peer, made, fresh))
    ours = fits[OURS]
    good = float(np.mean([one.good(problem, n_features) for one in ours]))
    note = (
        f"{problem.name}: good is all {n_features} features within {NEAR} of their length, at most "
        f"{problem.most_components} components, error of fresh rows against rows without noise at "
        f"most {problem.mean_error:g}"
        + ("" if problem.draw_error is None else f" and of single draws {problem.draw_error:g}")
        + f"; {len(ours)} seeds: {words_of(ours)}. Peers are given K (the mixture has twice as "
        "many clusters, at least 16) and their components may have any length and sign; NMF gets "
        "negative entries as 0. The first fit of a process compiles."
    )

    def series(field: str) -> dict[str, Series]:
        return {
            name: Series(tuple(float(getattr(one, field)) for one in each))
            for name, each in fits.items()
        }

    limit = f"{problem.seconds:g} seconds"
    times = series("seconds") | {limit: Series((problem.seconds,) * len(ours))}
    full = not settings.quick
    name = problem.name
    return [
        Case(
            f"{name}: share of good fits",
            "share",
            {OURS: Series((good,)), EVERY: Series((1.0,))},
            higher_is_better=True,
            targets={EVERY: problem.good_share} if full else {},
            note=note,
        ),
        Case(f"{name}: error against clean rows", "RMSE", series("mean_error"), note=note),
        Case(
            f"{name}: features found of {n_features}",
            "features",
            series("n_found"),
            higher_is_better=True,
            note=note,
        ),
        Case(f"{name}: whole fit", "s", times, targets={limit: 1.0} if full else {}, note=note),
        Case(f"{name}: reconstruct fresh rows", "s", series("applied"), note=note),
    ]


def words_of(fits: list[Found]) -> str:
    """The worst of every number."""
    return (
        f"found {min(one.n_found for one in fits)} or more, components "
        f"{min(one.n_components for one in fits)} to {max(one.n_components for one in fits)}, "
        f"single draws {max(one.draw_error for one in fits):.3f} at most, means "
        f"{max(one.mean_error for one in fits):.3f} at most"
    )


def fit_ours(made: Generated, fresh: Generated, seed: int, inference: Sampling | None) -> Found:
    """A fit with default settings, or shorter if quick."""
    model = LatentFeatureModel(inference=inference, random_state=seed, verbose=False)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # short chains, in a quick run
        model.fit(made.X)
    seconds = time.perf_counter() - start
    scale, shift = model.scaling_.scale, model.scaling_.shift
    draws = [
        rms(draw.assignments @ draw.vectors * scale + shift, made) for draw in model.chains_.draws
    ]
    start = time.perf_counter()
    reconstructed = model.reconstruct(fresh.X)
    applied = time.perf_counter() - start
    return Found(
        n_found(made.features, model.components_),
        model.n_components_,
        rms(reconstructed, fresh),
        float(np.median(draws)),
        seconds,
        applied,
    )


def rms(rows: np.ndarray, made: Generated) -> float:
    """Root mean square error against rows without noise."""
    return float(np.sqrt(np.mean((rows - made.signal) ** 2)))


def n_found(features: np.ndarray, components: np.ndarray) -> int:
    """Number of features that are matched by different components."""
    if len(components) == 0:
        return 0
    gaps = np.linalg.norm(features[:, None] - components, axis=2)
    gaps /= np.linalg.norm(features, axis=1)[:, None]
    # Maximise the number of matches, not the total distance.
    pairs = linear_sum_assignment((gaps > NEAR).astype(float))
    return int(np.sum(gaps[pairs] <= NEAR))


def n_found_up_to_length(features: np.ndarray, components: np.ndarray) -> int:
    """The same with the best length and sign for every component."""
    units = components / np.maximum(np.linalg.norm(components, axis=1, keepdims=True), 1e-12)
    inner = features @ units.T
    gaps = np.sqrt(np.maximum(np.sum(features**2, axis=1)[:, None] - inner**2, 0.0))
    near = gaps <= NEAR * np.linalg.norm(features, axis=1)[:, None]
    return int(np.sum(near[linear_sum_assignment(near, maximize=True)]))


def peers(n_components: int, seed: int) -> dict[str, Any]:
    """Other methods; all are given the true number of features."""
    from sklearn.decomposition import NMF, PCA, FactorAnalysis
    from sklearn.mixture import BayesianGaussianMixture

    return {
        "NMF": NMF(n_components, init="nndsvda", max_iter=500, random_state=seed),
        "PCA": PCA(n_components, random_state=seed),
        "factor analysis": FactorAnalysis(n_components, random_state=seed),
        MIXTURE: BayesianGaussianMixture(
            n_components=max(16, 2 * n_components),
            covariance_type="tied",  # the best of the four on these data
            max_iter=200,
            random_state=seed,
        ),
    }


def fit_peer(name: str, peer: Any, made: Generated, fresh: Generated) -> Found:
    """Result of another method on the same rows; it has no posterior draws."""

    def rows(X: np.ndarray) -> np.ndarray:
        return np.maximum(X, 0.0) if name == "NMF" else X

    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # not converged within the limit of steps
        peer.fit(rows(made.X))
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    if name == MIXTURE:
        components = peer.means_
        reconstructed = peer.predict_proba(fresh.X) @ components
    else:
        components = peer.components_
        reconstructed = peer.transform(rows(fresh.X)) @ components + getattr(peer, "mean_", 0.0)
    applied = time.perf_counter() - start
    found = n_found_up_to_length(made.features, components)
    return Found(found, len(components), rms(reconstructed, fresh), np.nan, seconds, applied)
