"""Other regressors with predictive distributions, with usual settings.

Bayesian ridge regression and Gaussian processes give a distribution. Gradient boosting
for the mean and random forests get a Gaussian with the spread of their errors on rows they were not
fitted to. Gradient boosting with the quantile loss gives quantiles, and a distribution that is
linear between them.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from wideangle.presentation.regressor import LEVELS, N_SAMPLES, levels_of, score_quantity
from wideangle_lab.bench.defaults.tables import Parts

LINEAR = "Bayesian ridge"
BOOSTED_LEVELS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.95, 0.975, 0.99)
NARROWEST = 1e-3
"""Smallest distance between quantiles, in standard deviations of the training targets."""
MOST_GP = 1500
"""Largest number of rows for a Gaussian process."""


class Normal(NamedTuple):
    """A Gaussian for each row."""

    mean: np.ndarray
    deviation: Any

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Of each row."""
        return norm.logpdf(y, self.mean, self.deviation)

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        """(n, Q)."""
        spread = np.broadcast_to(self.deviation, self.mean.shape)
        return self.mean[:, None] + spread[:, None] * norm.ppf(levels)


class Interpolated(NamedTuple):
    """Quantiles of each row; linear between them, exponential beyond."""

    levels: np.ndarray
    ends: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """From evenly spaced quantiles."""
        return self.quantiles((np.arange(200) + 0.5) / 200).mean(axis=1)

    def _slopes(self) -> np.ndarray:
        return np.diff(self.levels) / np.diff(self.ends, axis=1)

    def log_density(self, y: np.ndarray) -> np.ndarray:
        """Log density of each row; tails start with the density of the neighbouring segment."""
        slopes = self._slopes()
        place = np.sum(y[:, None] >= self.ends, axis=1) - 1
        inside = np.clip(place, 0, slopes.shape[1] - 1)
        found = np.log(slopes[np.arange(len(y)), inside])
        low, high = self.levels[0] / slopes[:, 0], (1.0 - self.levels[-1]) / slopes[:, -1]
        found -= np.where(place < 0, (self.ends[:, 0] - y) / low, 0.0)
        return found - np.where(y >= self.ends[:, -1], (y - self.ends[:, -1]) / high, 0.0)

    def quantiles(self, levels: np.ndarray) -> np.ndarray:
        """(n, Q)."""
        levels = np.asarray(levels)
        slopes = self._slopes()
        found = np.stack([np.interp(levels, self.levels, row) for row in self.ends])
        low, high = self.levels[0], 1.0 - self.levels[-1]
        below, above = levels < low, levels > 1.0 - high
        found[:, below] += low / slopes[:, :1] * np.log(levels[below] / low)
        found[:, above] -= high / slopes[:, -1:] * np.log((1.0 - levels[above]) / high)
        return found


Distribution = Normal | Interpolated
Fit = Callable[[Parts, int], Distribution]
"""Training rows, and a seed, to distributions of the test rows."""


def bayesian_ridge(parts: Parts, seed: int) -> Normal:
    """Linear, with a spread that depends on the row."""
    model = make_pipeline(StandardScaler(), BayesianRidge()).fit(parts.train, parts.y_train)
    return Normal(*model.predict(parts.test, return_std=True))


def gaussian_process(parts: Parts, seed: int) -> Normal:
    """A length scale per column and noise, by maximum marginal likelihood."""
    n_columns = parts.train.shape[1]
    kernel = ConstantKernel(1.0) * RBF(np.full(n_columns, np.sqrt(n_columns))) + WhiteKernel(0.3)
    model = GaussianProcessRegressor(
        kernel, normalize_y=True, n_restarts_optimizer=1, random_state=seed
    )
    model = make_pipeline(StandardScaler(), model).fit(parts.train, parts.y_train)
    return Normal(*model.predict(parts.test, return_std=True))


def boosting(parts: Parts, seed: int) -> Normal:
    """The mean, with the spread of cross-validation errors."""
    model = HistGradientBoostingRegressor(early_stopping=True, random_state=seed)
    held_out = cross_val_predict(model, parts.train, parts.y_train, cv=5)
    deviation = np.sqrt(np.mean((parts.y_train - held_out) ** 2))
    return Normal(model.fit(parts.train, parts.y_train).predict(parts.test), deviation)


def boosted_quantiles(parts: Parts, seed: int) -> Interpolated:
    """One model for each level; crossing quantiles are sorted."""
    found = []
    for level in BOOSTED_LEVELS:
        model = HistGradientBoostingRegressor(
            loss="quantile", quantile=level, early_stopping=True, random_state=seed
        )
        found.append(model.fit(parts.train, parts.y_train).predict(parts.test))
    ends = np.sort(np.stack(found, axis=1), axis=1)
    least = NARROWEST * np.std(parts.y_train) * np.arange(len(BOOSTED_LEVELS))
    ends = np.maximum.accumulate(ends - least, axis=1) + least
    return Interpolated(np.array(BOOSTED_LEVELS), ends)


def forest(parts: Parts, seed: int) -> Normal:
    """The mean, with the spread of out-of-bag errors."""
    model = RandomForestRegressor(300, oob_score=True, random_state=seed, n_jobs=-1)
    model.fit(parts.train, parts.y_train)
    deviation = np.sqrt(np.mean((parts.y_train - model.oob_prediction_) ** 2))
    return Normal(model.predict(parts.test), deviation)


RIVALS: dict[str, Fit] = {
    LINEAR: bayesian_ridge,
    "Gaussian process": gaussian_process,
    "gradient boosting": boosting,
    "boosted quantiles": boosted_quantiles,
    "random forest": forest,
}


def compare(parts: Parts, seed: int) -> dict[str, dict[str, Any]]:
    """Scores on the test rows, and seconds of fit and prediction, of every rival."""
    result = {}
    guess = float(parts.y_train.mean()), float(parts.y_train.std())
    rng = np.random.default_rng(seed)
    for name, fit in RIVALS.items():
        if fit is gaussian_process and len(parts.y_train) > MOST_GP:
            continue
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = fit(parts, seed)
        seconds = time.perf_counter() - began
        levels = rng.random((N_SAMPLES,))
        scores = score_quantity(
            parts.y_test,
            found.mean,
            found.log_density(parts.y_test),
            found.quantiles(np.array(levels_of(LEVELS))),
            found.quantiles(levels),
            guess,
        )
        result[name] = {**scores, "seconds": round(seconds, 2)}
    return result
