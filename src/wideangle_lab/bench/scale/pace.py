"""Core seconds per row of stochastic VI in many settings, to which the cost model is fitted.

They are summed over all cores: other programs on the machine affect them little.
"""

from __future__ import annotations

import time

import numpy as np

GRID = ((4, 1, 31), (8, 2, 31), (16, 2, 31), (8, 4, 31), (4, 1, 127), (8, 2, 127), (16, 4, 63))
"""Experts, starts, columns."""
ROWS, PASSES, REPEATS = 65_536, (1, 7), 2


def vi_pace(n_experts: int, n_starts: int, columns: int, seed: int) -> dict[str, float]:
    """Core seconds per row of a pass, per row of the first pass, and to start."""
    from wideangle.mixture_of_experts.classifier import MixtureOfExpertsClassifier
    from wideangle.mixture_of_experts.stream import SAMPLE_ROWS
    from wideangle.settings import Variational
    from wideangle.streaming import NpyRows
    from wideangle.streaming.survey import survey

    generator = np.random.default_rng(seed)
    X = generator.standard_normal((ROWS, columns), np.float32)
    y = (X[:, 0] * X[:, 1] + 0.5 * generator.standard_normal(ROWS) > 0).astype(np.int8)
    source = NpyRows(X, y)

    def fit(n_passes: int) -> float:
        model = MixtureOfExpertsClassifier(
            n_experts, inference=Variational(n_starts=n_starts, n_passes=n_passes),
            random_state=seed, verbose=False,
        )  # fmt: skip
        began = time.process_time()
        model.fit_stream(source)
        return time.process_time() - began

    first = fit(PASSES[0])  # compiles
    # Minimum over alternating runs: another program can only make a run longer.
    seconds = [[fit(n) for n in PASSES] for _ in range(REPEATS)]
    short, long = np.min(seconds, axis=0)
    row = (long - short) / (ROWS * (PASSES[1] - PASSES[0]))
    began = time.process_time()
    survey(source, 0, SAMPLE_ROWS[0], verbose=False)
    look = (time.process_time() - began) / ROWS
    return {"row": row, "look": look, "begin": first - PASSES[0] * ROWS * row - ROWS * look}
