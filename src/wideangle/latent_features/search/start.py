"""Where a fit of the latent feature model begins: features found by search, not by chance.

The exact sampler of the model moves between neighbouring explanations of the data; started from
nothing it needs very long to leave a wrong one. The search here obeys no such law: it anneals,
then rethinks groups of features, and keeps what a penalised likelihood likes best.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from wideangle.latent_features.rows.memory import FeatureRows
from wideangle.latent_features.search.anneal import (
    Effort,
    Found,
    Schedule,
    anneal,
    empty,
    least_noise,
)
from wideangle.latent_features.search.hop import WORTH, hop
from wideangle.latent_features.search.launch import Problem
from wideangle.latent_features.search.noise import Reading, read_spectrum

FEW = 12
"""Up to so many features a fresh anneal of all of them can be better by chance."""
FEW_HOPS, MANY_HOPS = 100, 60
FEW_FAILURES, MANY_FAILURES = 45, 30
"""Hops for few and for many features, and failures in a row after which they end."""
FRESH = 0.2
"""Share of hops that forget everything, where features are few."""
WARM = Schedule(hottest=3.0, n_steps=8, n_cool=4)
"""Anneal after the noise turned out to be another than was guessed."""
NOISE_ROUNDS, NOISE_CHANGE = 3, 1.2
FEW_COLUMNS = 8
SLOWER = 5
"""How much longer an anneal takes where the number of features is known."""


class Start(NamedTuple):
    """What the search found, and the objective after each hop."""

    features: np.ndarray
    """(K, D) float64, in the units of the rows."""
    assignments: np.ndarray
    """(N, K) uint8."""
    noise_variance: float
    """As given, or as left by the features where it was not."""
    objective: float
    """Log likelihood less the price of the features."""
    history: np.ndarray


def find_features(
    rng: np.random.Generator,
    rows: FeatureRows,
    noise_variance: float | None = None,
    *,
    max_features: int = 100,
    hops: int | None = None,
    births: int | None = None,
    schedule: Schedule | None = None,
    launch_rows: int = 1000,
    stop: Callable[[], bool] = lambda: False,
) -> Start:
    r"""Search for binary features: :math:`x_n = \sum_k z_{nk} w_k + N(0, \sigma^2 I)`.

    Maximises the log likelihood less, for each feature, the :func:`~.lfm_launch.penalty` of
    saying which rows have it and what it looks like. Not a sample from anything: a first state.

    Parameters
    ----------
    rng : numpy.random.Generator
        Decides everything; equal generators give equal answers.
    rows : FeatureRows
        The data.
    noise_variance : float, optional
        :math:`\sigma^2`. If absent it is guessed from the spectrum, then learned from residuals.
    max_features : int
        Most features there may be.
    hops : int, optional
        Groups of features to think over again; by default 100 for few features, and for many
        until 30 in a row bring nothing, at most 60.
    births : int, optional
        Most new features per step of the anneal; by default ``max_features / 15``, at least 3.
    schedule : Schedule, optional
        Temperatures of the anneal.
    launch_rows : int
        Rows among which a new feature is looked for.
    stop : callable, optional
        Asked between hops; when it says yes, what there is is returned.
    """
    scale = math.sqrt(rows.energy / max(rows.n_rows * rows.dim, 1))
    if scale == 0 or max_features == 0:
        return _nothing(rows, noise_variance)
    # Squares of very large or small float32 numbers do not exist.
    scale = 1.0 if 1e-3 < scale < 1e3 else scale  # noqa: PLR2004
    problem = Problem(rows if scale == 1.0 else rows.scaled(1.0 / scale), rows.dim)
    effort = Effort(
        max_features,
        births=max(3, max_features // 15) if births is None else births,
        launch_rows=launch_rows,
    )
    learn = noise_variance is None
    reading = read_spectrum(rng, problem.rows)
    noises = [noise_variance / scale**2] if not learn else _first_noises(reading, problem.rows)
    schedule = Schedule() if schedule is None else schedule
    tried = [_search(rng, problem, noise, effort, schedule, learn_noise=learn) for noise in noises]
    best = max(tried, key=lambda found: found.objective)
    best = _tighten(rng, problem, best, reading, effort, schedule, learn_noise=learn)
    best, history = _hops(rng, problem, best, effort, schedule, hops, stop, learn_noise=learn)
    in_units = rows.n_rows * rows.dim * math.log(scale)
    return Start(
        best.features * scale,
        best.assignments,
        best.noise_variance * scale**2,
        best.objective - in_units,
        np.array(history) - in_units,
    )


def _search(
    rng: np.random.Generator,
    problem: Problem,
    noise: float,
    effort: Effort,
    schedule: Schedule,
    *,
    learn_noise: bool,
) -> Found:
    """Anneal; if the residuals speak of another noise than was assumed, anneal again with it."""
    best = anneal(rng, problem, noise, effort, schedule, learn_noise=learn_noise)
    for _ in range(NOISE_ROUNDS if learn_noise else 0):
        if abs(math.log(best.noise_variance / noise)) < math.log(NOISE_CHANGE):
            break
        noise = best.noise_variance
        start = best.features, best.assignments
        new = anneal(rng, problem, noise, effort, WARM, start, learn_noise=True)
        best = max(best, new, key=lambda found: found.objective)
    return best


def _hops(
    rng: np.random.Generator,
    problem: Problem,
    best: Found,
    effort: Effort,
    schedule: Schedule,
    n_hops: int | None,
    stop: Callable[[], bool],
    *,
    learn_noise: bool,
) -> tuple[Found, list[float]]:
    """Rethink groups of features, or all of them if they are few; keep what is better."""
    tries, failures = np.zeros(len(best.features)), 0
    history = [best.objective]
    for i in range(FEW_HOPS if n_hops is None else n_hops):
        n_features = len(best.features)
        many = n_features > FEW
        enough = MANY_FAILURES if many else FEW_FAILURES
        if n_hops is None and (failures >= enough or (many and i >= MANY_HOPS)):
            break
        if stop():
            break
        if n_features == 0 or (n_features <= FEW and rng.random() < FRESH):
            cap = int(rng.integers(max(1, n_features // 2), n_features + 3))
            less = effort._replace(max_features=min(cap, effort.max_features))
            noise = best.noise_variance
            new = anneal(rng, problem, noise, less, schedule, learn_noise=learn_noise)
        else:
            new = hop(rng, problem, best, tries, effort, schedule, learn_noise=learn_noise)
        if new is not None and new.objective > best.objective + WORTH:
            best, tries, failures = new, np.zeros(len(new.features)), 0
        else:
            failures += 1
        history.append(best.objective)
    return best, history


def _tighten(
    rng: np.random.Generator,
    problem: Problem,
    best: Found,
    reading: Reading,
    effort: Effort,
    schedule: Schedule,
    *,
    learn_noise: bool,
) -> Found:
    """Anneal slowly with no more features than the spectrum has room for, if there are more.

    Features that overlap much, or that half of the rows have, are otherwise explained by many
    mixtures of them. Only where the spectrum is clear about the noise can it speak of the rank.
    """
    if reading.rank is None or len(best.features) <= reading.rank + 1:
        return best
    if abs(math.log(reading.noise_variance / best.noise_variance)) > math.log(NOISE_CHANGE):
        return best
    rows, noise = problem.rows, reading.noise_variance
    hottest = max(schedule.hottest, rows.energy / (rows.n_rows * rows.dim * noise))
    slow = schedule._replace(hottest=hottest, n_steps=SLOWER * schedule.n_steps)
    less = effort._replace(max_features=min(effort.max_features, reading.rank + 2))
    new = anneal(rng, problem, best.noise_variance, less, slow, learn_noise=learn_noise)
    return max(best, new, key=lambda found: found.objective)


def _first_noises(reading: Reading, rows: FeatureRows) -> list[float]:
    """Noise variances to begin with: few columns cannot tell signal from noise, so try several."""
    smallest = least_noise(rows)
    guess = max(reading.noise_variance, smallest)
    shrink = 10.0 ** -np.arange(3 if min(rows.n_rows, rows.dim) < FEW_COLUMNS else 1)
    return [max(guess * factor, smallest) for factor in shrink]


def _nothing(rows: FeatureRows, noise_variance: float | None) -> Start:
    """No features; zeros say nothing about their noise, which is then called 1."""
    size = max(rows.n_rows * rows.dim, 1)
    noise = noise_variance or rows.energy / size or 1.0
    log_lik = -0.5 * size * math.log(2.0 * math.pi * noise) - 0.5 * rows.energy / noise
    return Start(*empty(rows), noise, log_lik, np.array([log_lik]))
