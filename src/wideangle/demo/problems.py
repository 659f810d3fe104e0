"""Two problems with a known truth, and a run of a model on each."""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss

from wideangle.datasets import block_images, mixture_data
from wideangle.frames.encoding import Encoding, Number, Target
from wideangle.latent_features.estimator import LatentFeatureModel
from wideangle.latent_features.posterior import disagreements
from wideangle.mixture_of_experts.estimator import MixtureOfExpertsClassifier
from wideangle.posterior import Draws
from wideangle.runs.folder import Kind, Run
from wideangle.runs.sample import Sample
from wideangle.runs.scores import (
    look_at_experts,
    look_at_features,
    score_experts,
    score_features,
)
from wideangle.runs.train import as_finite, versions

N_TRAIN, N_TEST = 500, 1000
N_IMAGES, SIDE = 300, 6
N_EXPERTS = 6
COSINE = 0.2
"""Strength of the repulsion of experts."""
SAME = 0.3
"""Relative distance up to which a component is a true shape."""


class Row(NamedTuple):
    """One line of a table of results."""

    name: str
    cells: tuple[str, ...]


class Result(NamedTuple):
    """A run for its page, and the lines of its table."""

    run: Run
    rows: list[Row]


class Lengths(NamedTuple):
    """Of the chains: warm-up and draws."""

    experts: tuple[int, int] = (150, 100)
    features: tuple[int, int] = (30, 60)


def experts(seed: int, lengths: Lengths) -> Result:
    """Four linear rules, hidden; six experts with and without repulsion, and one rule alone."""
    data = mixture_data(seed, N_TRAIN + N_TEST)
    numbers = np.asarray(data.y)
    y = np.array(["no", "yes"])[numbers]
    X, T = data.X[:N_TRAIN], data.X[N_TRAIN:]
    single = LogisticRegression().fit(X, y[:N_TRAIN])
    rows = [Row("logistic regression", (*_scores(single, T, y[N_TRAIN:]), "", ""))]
    began = time.perf_counter()
    n_warmup, n_draws = lengths.experts
    fitted = {}
    for cosine in (0.0, COSINE):  # one program for both: only the strength differs
        model = MixtureOfExpertsClassifier(
            N_EXPERTS, cosine=cosine, n_warmup=n_warmup, n_draws=n_draws, n_chains=2,
            progress=False, random_state=seed,
        )  # fmt: skip
        fitted[cosine] = model = _fit(model, X, y[:N_TRAIN])
        name = "experts that repel" if cosine else "experts, no repulsion"
        rows.append(Row(name, (*_scores(model, T, y[N_TRAIN:]), *angles(model))))
    frame = Encoding(
        tuple(Number(f"x{i + 1}") for i in range(X.shape[1])), target=Target("y", ("no", "yes"))
    )
    model, truth = fitted[COSINE], numbers[N_TRAIN:]
    shares = np.bincount(numbers[:N_TRAIN]) / N_TRAIN
    scores = score_experts(model.predict_proba(T), truth, shares)
    sample = look_at_experts(model, T, np.arange(N_TEST) + N_TRAIN + 1, truth)
    said = Draws(model.invariants_, model.posterior_.stats).warnings(model.diagnostics_)
    how = {"source": "wideangle.datasets.mixture_data", "n_rows": N_TRAIN + N_TEST, "seed": seed}
    return Result(_run("moe", model, frame, how, scores, sample, said, began), rows)


def features(seed: int, lengths: Lengths) -> Result:
    """Four shapes, hidden, their number too; PCA is told the number."""
    data, new = block_images(seed, N_IMAGES), block_images(seed + 1, N_IMAGES)
    pca = PCA(len(data.features)).fit(data.X)
    rebuilt = pca.inverse_transform(pca.transform(new.X))
    rows = [Row("PCA, told that there are 4", (_shapes(pca.components_, data.features),
                                               _rms(rebuilt - new.signal)))]  # fmt: skip
    began = time.perf_counter()
    n_warmup, n_draws = lengths.features
    model = LatentFeatureModel(
        n_warmup=n_warmup, n_draws=n_draws, n_chains=2, progress=False, random_state=seed
    )
    model = _fit(model, data.X)
    gap = model.reconstruct(new.X) - new.signal
    rows.append(Row(f"latent features: {model.n_components_}",
                    (_shapes(model.components_, data.features), _rms(gap))))  # fmt: skip
    names = (f"pixel {i // SIDE + 1},{i % SIDE + 1}" for i in range(SIDE**2))
    scores = score_features(model, new.X, data.X.mean(axis=0), seed)
    sample = look_at_features(model, new.X, np.arange(N_IMAGES) + N_IMAGES + 1)
    said = [*model.trace_.warnings(model.diagnostics_), *disagreements(model)]
    how = {"source": "wideangle.datasets.block_images", "n_rows": 2 * N_IMAGES, "seed": seed,
           "image_shape": [SIDE, SIDE]}  # fmt: skip
    frame = Encoding(tuple(Number(name) for name in names))
    return Result(_run("features", model, frame, how, scores, sample, said, began), rows)


def angles(model: Any) -> tuple[str, str]:
    """Mean over draws, and smallest of the representative draw, in degrees."""
    mean = float(np.degrees(np.mean(model.invariants_["mean_angle"])))
    return f"{mean:.0f}°", f"{np.degrees(model.diversity_.min_angle):.0f}°"


def _scores(model: Any, X: np.ndarray, y: np.ndarray) -> tuple[str, str]:
    proba = model.predict_proba(X)
    right = accuracy_score(y, model.classes_[np.argmax(proba, axis=1)])
    return f"{100 * right:.1f} %", f"{log_loss(y, proba):.3f}"


def _shapes(found: np.ndarray, truth: np.ndarray) -> str:
    """How many true shapes are among the components."""
    if len(found) == 0:
        return f"0 of {len(truth)}"
    gaps = np.linalg.norm(truth[:, None] - found[None], axis=2).min(axis=1)
    return f"{np.sum(gaps < SAME * np.linalg.norm(truth, axis=1))} of {len(truth)}"


def _rms(gap: np.ndarray) -> str:
    return f"{np.sqrt(np.mean(gap**2)):.3f}"


def _fit(model: Any, *data: Any) -> Any:
    """A fit that Ctrl-C ends, where a user's own would keep the draws up to then."""
    model.fit(*data)
    notes = getattr(model, "notes_", {})
    if notes.get("interrupted") or getattr(model, "interrupted_", False):
        raise KeyboardInterrupt
    return model


def _run(
    kind: Kind,
    model: Any,
    frame: Encoding,
    how: dict[str, Any],
    scores: dict[str, Any],
    sample: Sample,
    said: list[str],
    began: float,
) -> Run:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    rhat = model.diagnostics_["rhat"]
    n_held = len(sample)
    metrics = {
        "n_train": how["n_rows"] - n_held,
        "n_test": n_held,
        "sample_held_out": True,
        **scores,
        "rhat": float(np.nanmax(rhat)) if np.isfinite(rhat).any() else None,
        "warnings": said,
        "notes": ["The rows were drawn, half of them or more for the checks on this page."],
        "facts": [list(pair) for pair in model._facts()],
        "seconds": {"fit": round(time.perf_counter() - began, 1)},
    }
    settings = {
        "command": ["wideangle", "demo", "--seed", str(how["seed"])],
        "options": {},
        "began": now,
        "versions": versions(),
        **how,
    }
    return Run(kind, model, frame, settings, as_finite(metrics), sample, path=Path(f"demo: {kind}"))
