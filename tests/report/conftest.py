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
from wideangle.runs.train import Rows, Stages, make_run

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


def run_of(kind, model, rows, name, **more):
    """A run of a fitted model, without warnings, with something in every place of the page."""
    settings = SETTINGS | more
    made = make_run(kind, model, rows, settings, [], Stages(), ["a log"])
    settings = made.settings | {"began": SETTINGS["began"], "versions": SETTINGS["versions"]}
    return replace(made, settings=settings, path=Path(name))


def rows_of(encoding, X, T, y=None, truth=None):
    """Rows X of the fit and T held out, or all of them of the fit."""
    return Rows(encoding, X, y, T, truth, np.arange(len(X)), np.arange(len(T)) + len(X),
                ["a: 3 missing values"])  # fmt: skip


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
    (X, y), (T, truth) = fitted.plane(), fitted.plane(120, 7)
    encoding = frame(["age", "income"], Target("bought", ("no", "yes")))
    numbers = ((labels == "yes").astype(int) for labels in (y, truth))
    return run_of("moe", fitted.experts(), rows_of(encoding, X, T, *numbers), "customers")


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
    data = load_wine(as_frame=True)
    target = Target("kind", ("barolo", "grignolino", "barbera"))
    rows = rows_of(frame(data.feature_names, target), data.data.to_numpy(), np.zeros((0, 13)),
                   data.target.to_numpy(), np.zeros(0, int))  # fmt: skip
    model = copy.copy(fitted.wine_experts())
    del model.feature_names_in_  # rows of a run have no names
    return run_of("moe", model, rows, "wine")


@pytest.fixture(scope="package")
def feature_run():
    names = [f"pixel {i // 6 + 1},{i % 6 + 1}" for i in range(36)]
    rows = rows_of(frame(names), fitted.images(), fitted.images(60, 8))
    return run_of("features", fitted.features(), rows, "images", image_shape=[6, 6])


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
    model.components_, model.n_components_ = model.components_[:0], 0
    model.presence_, model.prevalence_ = model.presence_[:0], model.prevalence_[:0]
    values = feature_run.sample.values | {"activations": np.zeros((60, 0))}
    return replace(feature_run, model=model, sample=replace(feature_run.sample, values=values))
