"""The rows of the paper's tables of latent features, the controls we add, and their cells.

The paper compares a Gaussian prior on the Indian buffet and on its Pitman-Yor extension with the
mutual-angular prior. The last differs from the first in two ways: features repel each other, and
their lengths have a Gamma distribution. The controls separate the two: ``polar`` has Gamma lengths
without repulsion; ``IMA-cosine`` has a repulsion of the same strength in every dimension.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from wideangle.checks import check_choice
from wideangle.latent_features.estimator import LatentFeatureModel
from wideangle.settings import Sampling
from wideangle_lab.paper.cells import FEATURES, Cell, Effort

PAPER: dict[str, dict[str, Any]] = {
    "IBP-LFM": {"prior": "gaussian"},
    "PYP-LFM": {"prior": "gaussian", "process": "pitman-yor"},
    "IMA-LFM": {"prior": "mutual-angular", "prior__concentration": 1.0},
}
CONTROLS: dict[str, dict[str, Any]] = {
    "polar": {"prior": "vmf"},
    "IMA-cosine-0.05": {"prior": "mutual-angular", "prior__cosine": 0.05},
    "IMA-cosine-0.1": {"prior": "mutual-angular", "prior__cosine": 0.1},
    "IMA-cosine-0.2": {"prior": "mutual-angular", "prior__cosine": 0.2},
}
FEATURE_ROWS: dict[str, dict[str, Any]] = {**PAPER, **CONTROLS}
UNREPULSED = "polar"
"""The row without repulsion."""
REPULSED = ("IMA-LFM", "IMA-cosine-0.05", "IMA-cosine-0.1", "IMA-cosine-0.2")

PROTOCOL: dict[str, Any] = {"standardise": True, "noise_scale": "paper", "process__alpha": 2.0}
"""As in the paper: columns centred, noise fixed by the spread of the data, alpha 2."""
MAX_FEATURES, FEW_FEATURES = 300, 12
"""Maximum number of features of the initial search: on all rows, and on a subset."""
N_KEPT = 25
"""States saved from each chain; the draws of an effort are sweeps."""
UNLABELLED = ("yale", "block_images", "ar", "eeg", "piano")
LABELLED = ("reuters", "tdt", "news20", "scenes15", "caltech101")
"""In the order of the paper."""


def feature_cells(
    data: tuple[str, ...], methods: tuple[str, ...], seeds: tuple[int, ...], effort: Effort
) -> list[Cell]:
    """Every row on every data set; a seed decides the split and the chains, seeds first."""
    for method in methods:
        check_choice("method", method, FEATURE_ROWS)
    most = MAX_FEATURES if effort.max_rows is None else FEW_FEATURES
    groups = product(seeds, methods or tuple(FEATURE_ROWS), data)
    return [
        Cell(
            FEATURES,
            name,
            method,
            seed=seed,
            effort=effort,
            settings={**PROTOCOL, **FEATURE_ROWS[method], "inference__max_features": most},
        )
        for seed, method, name in groups
    ]


def feature_model(cell: Cell, n_jobs: int) -> LatentFeatureModel:
    """The estimator of a cell."""
    effort = cell.effort
    thin = max(effort.n_draws // N_KEPT, 1)
    chains = Sampling(
        n_warmup=effort.n_warmup,
        n_draws=effort.n_draws // thin,
        n_chains=effort.n_chains,
        thin=thin,
    )
    model = LatentFeatureModel(
        inference=chains, n_jobs=n_jobs, verbose=False, random_state=cell.seed
    )
    return model.set_params(**cell.settings)
