"""Runs made of small fitted models, as ``wideangle train`` would leave them."""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_wine

import fitted
from wideangle.frames.encoding import Encoding, Number, Target
from wideangle.report import page
from wideangle.runs.folder import Run
from wideangle.runs.scores import (
    look_at_experts,
    look_at_features,
    score_experts,
    score_features,
)

HOSTILE = (
    "<img src=x onerror=window.hacked=1>",
    "</script><script>window.hacked=2</script>{{ 7 * 7 }} $x$ %{z} &lt; \u2028",
)
SETTINGS = {
    "command": ["wideangle", "train", "moe", "a file.csv", "-o", "run"],
    "options": {},
    "seed": 0,
    "source": "a file.csv",
    "n_rows": 200,
    "began": "2026-01-01T00:00:00+00:00",
    "versions": {"wideangle": "0.1.0"},
}


def frame(columns, target=None):
    return Encoding(tuple(Number(name) for name in columns), target=target)


def usual(model, n_train, n_test):
    table = model.diagnostics_
    rhat = None if table is None else float(np.nanmax(table["rhat"]))
    return {
        "n_train": n_train, "n_test": n_test, "sample_held_out": True, "rhat": rhat,
        "warnings": [], "notes": ["a: 3 missing values"], "seconds": {"fit": 1.0},
    }  # fmt: skip


@pytest.fixture(scope="package")
def page_of(request):
    """Text of the page of a run by name, rendered once."""
    made = {}

    def text(name):
        if name not in made:
            made[name] = page.render(request.getfixturevalue(name))
        return made[name]

    return text


@pytest.fixture(scope="package")
def expert_run():
    model, (X, y) = fitted.experts(), fitted.plane(120, 7)
    number = (y == "yes").astype(int)
    metrics = usual(model, 150, 120) | score_experts(
        model.predict_proba(X), number, np.array([0.5, 0.5])
    )
    sample = look_at_experts(model, X, np.arange(120) + 31, number)
    target = Target("bought", ("no", "yes"))
    return Run("moe", model, frame(["age", "income"], target), SETTINGS, metrics, sample,
               "a log\n", Path("customers"))  # fmt: skip


@pytest.fixture(scope="package")
def hostile_run(expert_run):
    """The same with names that try to run something."""
    target = Target(HOSTILE[0], ("no", HOSTILE[1]))
    settings = SETTINGS | {"source": HOSTILE[1], "command": ["wideangle", *HOSTILE]}
    metrics = expert_run.metrics | {"warnings": [HOSTILE[1]], "notes": [HOSTILE[0]]}
    return replace(
        expert_run, frame=frame(HOSTILE, target), settings=settings, metrics=metrics,
        log=HOSTILE[1], path=Path(HOSTILE[0]),
    )  # fmt: skip


@pytest.fixture(scope="package")
def wine_run():
    """Three classes, thirteen columns, no chains, nothing held out."""
    data = load_wine()
    model = fitted.wine_experts()
    metrics = usual(model, 178, 0) | {"sample_held_out": False, "rhat": None}
    frames = load_wine(as_frame=True).data  # the model was fitted to named columns
    sample = look_at_experts(model, frames, np.arange(178) + 1, data.target)
    sample = replace(sample, X=data.data)
    target = Target("kind", ("barolo", "grignolino", "barbera"))
    return Run("moe", model, frame(data.feature_names, target), SETTINGS, metrics, sample, "",
               Path("wine"))  # fmt: skip


@pytest.fixture(scope="package")
def feature_run():
    model, X = fitted.features(), fitted.images(60, 8)
    metrics = usual(model, 80, 60) | score_features(model, X, fitted.images().mean(axis=0), 0)
    names = [f"pixel {i // 6 + 1},{i % 6 + 1}" for i in range(36)]
    sample = look_at_features(model, X, np.arange(60) + 81)
    return Run("features", model, frame(names), SETTINGS | {"image_shape": [6, 6]}, metrics,
               sample, "", Path("images"))  # fmt: skip


@pytest.fixture(scope="package")
def empty_run(feature_run):
    """A fit that found nothing."""
    model = copy.copy(feature_run.model)
    found = model.matched_
    model.matched_ = found._replace(
        components=found.components[:0], presence=found.presence[:0], index=found.index[:, :0],
        spread=found.spread[:0], prevalence=found.prevalence[:0], energy=found.energy[:0],
        by_chain=found.by_chain[:, :0],
    )  # fmt: skip
    model._name_components()
    values = feature_run.sample.values | {"activations": np.zeros((60, 0))}
    return replace(feature_run, model=model, sample=replace(feature_run.sample, values=values))
