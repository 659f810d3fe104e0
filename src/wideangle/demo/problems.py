"""Two problems with a known truth, and a run of a model on each."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss

from wideangle.base import present
from wideangle.convergence import caution_of
from wideangle.datasets import block_images, mixture_data
from wideangle.frames.encoding import Encoding, Number, Target
from wideangle.latent_features.estimator import LatentFeatureModel
from wideangle.mixture_of_experts.classifier import MixtureOfExpertsClassifier
from wideangle.presentation.records import Run
from wideangle.runs.train import Rows, Stages, make_run
from wideangle.settings import MutualAngularPrior, Sampling

N_TRAIN, N_TEST = 500, 1000
N_IMAGES, SIDE = 300, 6
N_EXPERTS = 6
COSINE = 0.2
"""Strength of the repulsion of experts."""
MAX_TIME = 40
"""Seconds that a fit of a demo may take; chains stop earlier when predictions agree."""
_SAME = 0.3
"""Relative distance up to which a component is a true shape."""


class Row(NamedTuple):
    """One line of a table of results."""

    name: str
    cells: tuple[str, ...]


class Result(NamedTuple):
    """A run for its page, and its table."""

    run: Run
    title: str
    head: tuple[str, ...]
    """Titles of the columns after the first."""
    rows: list[Row]


def experts(seed: int) -> Result:
    """Four linear rules, hidden; six experts with and without repulsion, and one rule alone."""
    data = mixture_data(seed, N_TRAIN + N_TEST)
    numbers = np.asarray(data.y)
    y = np.array(["no", "yes"])[numbers]
    X, T = data.X[:N_TRAIN], data.X[N_TRAIN:]
    single = LogisticRegression().fit(X, y[:N_TRAIN])
    table = [Row("logistic regression", (*_scores(single, T, y[N_TRAIN:]), "", ""))]
    stages = Stages()
    for cosine in (0.0, COSINE):  # one program for both: only the strength differs
        model = MixtureOfExpertsClassifier(
            N_EXPERTS,
            prior=MutualAngularPrior(cosine=cosine),
            inference=Sampling(max_time=MAX_TIME),
            verbose=False,
            random_state=seed,
        )
        with stages.time("fit"):
            model = _fit(model, X, y[:N_TRAIN])
        name = "experts that repel" if cosine else "experts, no repulsion"
        table.append(Row(name, (*_scores(model, T, y[N_TRAIN:]), *experts_of(model))))
    columns = tuple(Number(f"x{i + 1}") for i in range(X.shape[1]))
    frame = Encoding(columns, target=Target("y", ("no", "yes")))
    rows = _rows(frame, X, T, numbers[:N_TRAIN], numbers[N_TRAIN:])
    return Result(
        _run("moe", model, rows, "mixture_data", seed, stages),
        "Which of four hidden rules holds where? 500 rows to learn from",
        ("accuracy", "log-loss", "mean angle", "experts in use"),
        table,
    )


def features(seed: int) -> Result:
    """Four shapes, hidden, their number too; PCA gets the number."""
    data, new = block_images(seed, N_IMAGES), block_images(seed + 1, N_IMAGES)
    pca = PCA(len(data.features)).fit(data.X)
    rebuilt = pca.inverse_transform(pca.transform(new.X))
    cells = _shapes(pca.components_, data.features), _rms(rebuilt - new.signal)
    table = [Row("PCA with 4 components", cells)]
    stages = Stages()
    model = LatentFeatureModel(
        inference=Sampling(max_time=MAX_TIME), verbose=False, random_state=seed
    )
    with stages.time("fit"):
        model = _fit(model, data.X)
    cells = _shapes(model.components_, data.features), _rms(model.reconstruct(new.X) - new.signal)
    table.append(Row(f"latent features: {model.n_components_}", cells))
    names = (f"pixel {i // SIDE + 1},{i % SIDE + 1}" for i in range(SIDE**2))
    rows = _rows(Encoding(tuple(Number(name) for name in names)), data.X, new.X)
    more = {"image_shape": [SIDE, SIDE]}
    return Result(
        _run("features", model, rows, "block_images", seed, stages, more),
        "Which shapes are 300 noisy images made of, and how many are there?",
        ("shapes found", "error of new images"),
        table,
    )


def experts_of(model: Any) -> tuple[str, str]:
    """Mean angle in degrees and number of experts in use, over all draws."""
    angle = float(np.degrees(np.mean(model.trace_.values["mean_angle"])))
    return f"{angle:.0f}°", f"{model.n_used_:.1f} of {model.n_experts}"


def _scores(model: Any, X: np.ndarray, y: np.ndarray) -> tuple[str, str]:
    proba = model.predict_proba(X)
    right = accuracy_score(y, model.classes_[np.argmax(proba, axis=1)])
    return f"{100 * right:.1f} %", f"{log_loss(y, proba):.3f}"


def _shapes(found: np.ndarray, truth: np.ndarray) -> str:
    """How many true shapes are among the components."""
    if len(found) == 0:
        return f"0 of {len(truth)}"
    gaps = np.linalg.norm(truth[:, None] - found[None], axis=2).min(axis=1)
    return f"{np.sum(gaps < _SAME * np.linalg.norm(truth, axis=1))} of {len(truth)}"


def _rms(gap: np.ndarray) -> str:
    return f"{np.sqrt(np.mean(gap**2)):.3f}"


def _fit(model: Any, *data: Any) -> Any:
    """A fit that Ctrl-C ends, where a user's own would keep the draws up to then."""
    model.fit(*data)
    if present(model).interrupted:
        raise KeyboardInterrupt
    return model


def _rows(
    frame: Encoding, X: np.ndarray, T: np.ndarray, y: np.ndarray | None = None, z: Any = None
) -> Rows:
    """Rows X to learn from, and T to check with, of classes ``y`` and ``z``."""
    note = f"The rows are simulated: {len(X):,} to learn from, {len(T):,} held out."
    return Rows(frame, X, y, T, z, np.arange(len(X)), np.arange(len(T)) + len(X), [note])


def _run(
    kind: str,
    model: Any,
    rows: Rows,
    generator: str,
    seed: int,
    stages: Stages,
    more: dict[str, Any] | None = None,
) -> Run:
    settings = {
        "command": ["wideangle", "demo", "--seed", str(seed)],
        "options": {},
        "source": f"wideangle.datasets.{generator}",
        "n_rows": len(rows.train) + len(rows.test),
        "seed": seed,
        **(more or {}),
    }
    found = caution_of(model)
    sentences = [] if found is None else [str(found)]
    return make_run(kind, model, rows, settings, sentences, stages)
