"""Why intervals are wide: coverage of single posterior draws, compared with that of predictions.

Predictions average over draws. If draws disagree, intervals of the average are wider than those of
each draw. If the noise is skewed, rows are missing in one tail of the predictions only.

``python -m wideangle_lab.bench.regression.widths ozone mcycle``
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.special import ndtr

from wideangle import MixtureOfExpertsRegressor
from wideangle.mixture_of_experts.predict import chosen_draws
from wideangle.mixture_of_experts.quantities import parts_of
from wideangle_lab.bench.regression.tables import QUANTITIES

LEVELS = np.array([0.5, 0.8, 0.95])
TAIL = 0.1


def levels(model: MixtureOfExpertsRegressor, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Distribution function of the target of each row in each draw, (S, n)."""
    weights, _ = chosen_draws(model.posterior_, model.chain_weights_)
    parts = parts_of(model._expert, weights, model._rows(X))
    targets = model._encoded(y, len(X)).astype(np.float64)
    return np.sum(parts.gate * ndtr((targets - parts.mean) / np.sqrt(parts.variance)), axis=1)


def coverage(level: np.ndarray) -> np.ndarray:
    """Share of levels inside each of the central intervals."""
    return np.mean(np.abs(level[..., None] - 0.5) < 0.5 * LEVELS, axis=tuple(range(level.ndim)))


def tails(level: np.ndarray) -> np.ndarray:
    """Shares of levels in the lowest and in the highest tenth."""
    return np.array([np.mean(level < TAIL), np.mean(level > 1.0 - TAIL)])


def measure(name: str) -> dict[str, np.ndarray]:
    """Coverage of single draws and of predictions, and tails, over all splits of a table."""
    found = []
    for seed in range(QUANTITIES[name].n_seeds):
        parts = QUANTITIES[name].load(seed)
        model = MixtureOfExpertsRegressor(random_state=seed, verbose=False)
        found.append(levels(model.fit(parts.train, parts.y_train), parts.test, parts.y_test))
    averages = [level.mean(axis=0) for level in found]
    return {
        "single draws": np.mean([coverage(level) for level in found], axis=0),
        "predictions": np.mean([coverage(level) for level in averages], axis=0),
        "lowest and highest tenth": np.mean([tails(level) for level in averages], axis=0),
    }


if __name__ == "__main__":
    for chosen in sys.argv[1:]:
        for words, shares in measure(chosen).items():
            print(f"{chosen}, {words}: {' '.join(f'{100 * share:.0f}' for share in shares)}")
