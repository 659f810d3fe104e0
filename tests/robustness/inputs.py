"""Awkward data and settings as Hypothesis draws them: few shapes, so that few programs compile."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from wideangle import LatentFeatureModel, MixtureOfExpertsClassifier

Shapes = tuple[tuple[int, ...], tuple[int, ...]]
SHAPES: Shapes = ((1, 2, 12), (1, 3))
"""Numbers of rows and of columns."""
VALUES = (
    0.0, -0.0, 1.0, -1.0, 0.5, 3.0, 1e-8, 1e8, 1e16, 1e-300, 5e-324, -5e-324, 2.2e-308, 1e-45,
    1e38, 3.5e38, -1e100, 1e300, 1.7e308, -1.7e308, float(np.finfo(np.float32).max),
)  # fmt: skip
BAD = (np.nan, np.inf, -np.inf)
DTYPES = ("float64", "float32", ">f8", "int64", "bool", "object", "longdouble", "float16", "str")
WRONG_DTYPES = ("words", "complex128")
SPARSE_DTYPES = ("<f8", "<f4", "<i8", "|b1")
LAYOUTS = ("C", "F", "strided", "csr", "csc", "coo")


@dataclass
class Case:
    """Arguments of one fit; ``wrong`` tells what in them must be refused."""

    X: Any
    y: Any
    sample_weight: Any
    settings: dict[str, Any]
    wrong: set[str] = field(default_factory=set)


@st.composite
def matrices(draw: st.DrawFn, shapes: Shapes, *, gaps: bool) -> tuple[Any, set[str]]:
    """Rows, and what is wrong with them; missing entries are fine where there may be gaps."""
    shape = draw(st.sampled_from(shapes[0])), draw(st.sampled_from(shapes[1]))
    kind = draw(st.sampled_from(("plain", "plain", "scaled", "extreme", "constant", "duplicate")))
    seed = draw(st.integers(0, 2**16))
    X = np.random.default_rng(seed).normal(size=shape)
    if kind == "scaled":
        powers = st.lists(st.integers(-320, 307), min_size=shape[1], max_size=shape[1])
        X = np.clip(X, -9, 9) * [float(f"1e{power}") for power in draw(powers)]
    elif kind == "extreme":
        size = shape[0] * shape[1]
        values = draw(st.lists(st.sampled_from(VALUES), min_size=size, max_size=size))
        X = np.array(values).reshape(shape)
    elif kind == "constant":
        X[:] = draw(st.sampled_from(VALUES))
    elif kind == "duplicate":
        X[:] = X[0]
    wrong = set()
    if draw(st.integers(0, 9)) == 0:
        value = draw(st.sampled_from(BAD))
        X[draw(st.integers(0, shape[0] - 1)), draw(st.integers(0, shape[1] - 1))] = value
        if not (gaps and np.isnan(value)):
            wrong.add("not finite")
    if draw(st.integers(0, 3)) == 0:
        X = _as_type(draw, X, wrong)
    return _laid_out(draw(st.sampled_from(LAYOUTS)), X), wrong


def _as_type(draw: st.DrawFn, X: np.ndarray, wrong: set[str]) -> np.ndarray:
    name = draw(st.sampled_from(DTYPES + WRONG_DTYPES))
    whole = name in ("int64", "bool")
    with np.errstate(all="ignore"):
        X = np.nan_to_num(np.clip(X, -1e9, 1e9), nan=0.0) if whole else X
        X = np.full(X.shape, "cat") if name == "words" else X.astype(name)
    if name in ("float16", "float32") and np.isinf(X).any():
        wrong.add("not finite")
    if name in WRONG_DTYPES:
        wrong.add("dtype")
    if whole:
        wrong.discard("not finite")
    return X


def _laid_out(layout: str, X: np.ndarray) -> Any:
    if layout == "F":
        return np.asfortranarray(X)
    if layout == "strided":
        return np.repeat(X, 2, axis=0)[::2][:, ::-1]
    if layout in ("csr", "csc", "coo") and X.dtype.str in SPARSE_DTYPES:
        stored = sp.coo_array((X.ravel(), np.indices(X.shape).reshape(2, -1)), shape=X.shape)
        return stored.asformat(layout)
    return X


@st.composite
def labels(draw: st.DrawFn, n_rows: int) -> tuple[Any, set[str]]:
    """Classes of the rows: balanced, rare, alone, of any type, or none at all."""
    kind = draw(st.sampled_from(("coin", "coin", "rare", "one", "three", "words", "odd")))
    seed = draw(st.integers(0, 2**16))
    y: Any = np.random.default_rng(seed).integers(0, 3 if kind == "three" else 2, n_rows)
    if kind in ("rare", "one"):
        y[:] = 0
        y[-1] = kind == "rare"
    if kind == "words":
        y = np.array(["no", "a class", ""], dtype=draw(st.sampled_from(("U", "object"))))[y]
    if kind != "odd":
        return draw(st.sampled_from((y, y.tolist(), y.reshape(-1)))), set()
    y[0] = 0
    odd = {
        "continuous": y + 0.5,
        "NaN": np.where(y == 0, np.nan, 1.0),
        "infinite": np.where(y == 0, np.inf, 1.0),
        "another length": np.append(y, 0),
        "two columns": np.stack([y, y], 1),
        "nothing": None,
        "empty": np.empty(0),
    }
    name = draw(st.sampled_from(sorted(odd)))
    return odd[name], {f"labels: {name}"}


@st.composite
def row_weights(draw: st.DrawFn, n_rows: int) -> tuple[Any, set[str]]:
    """Weights of the rows."""
    kind = draw(st.sampled_from(("none", "none", "none", "some zero", "wide", "odd")))
    if kind == "none":
        return None, set()
    if kind == "some zero":
        weights = np.ones(n_rows)
        weights[: n_rows // 2] = 0.0
        return weights, set()
    if kind == "wide":
        sizes = st.sampled_from((1.0, 1e-3, 1e3, 1e-30, 1e-300, 5e-324, 1e30, 1e300))
        return np.array(draw(st.lists(sizes, min_size=n_rows, max_size=n_rows))), set()
    odd = {
        "all zero": np.zeros(n_rows),
        "negative": -np.ones(n_rows),
        "NaN": np.full(n_rows, np.nan),
        "infinite": np.full(n_rows, np.inf),
        "another length": np.ones(n_rows + 1),
        "words": np.full(n_rows, "heavy"),
    }
    name = draw(st.sampled_from(sorted(odd)))
    return odd[name], {f"weights: {name}"}


POSITIVE = st.sampled_from((1.0, 1.0, 0.1, 10.0, 1e-3, 1e3, 1e-10, 1e10, 1e-300, 1e300, np.nan))
EXPERTS: dict[str, dict[str, Any]] = {
    "map gaussian": {"inference": "map", "prior": "gaussian"},
    "map angular": {"inference": "map", "prior": "mutual-angular"},
    "map dpp": {"inference": "map", "prior": "dpp"},
    "vi diagonal": {"inference": "vi", "prior": "mutual-angular"},
    "vi vmf": {"inference": "vi", "prior": "mutual-angular", "inference__guide": "vmf"},
    "mcmc hmc": {"inference": "mcmc", "prior": "mutual-angular"},
    "mcmc geodesic": {"inference": "mcmc", "prior": "vmf", "inference__kernel": "geodesic"},
    "mcmc metropolis": {
        "inference": "mcmc", "prior": "gaussian", "inference__kernel": "metropolis",
    },
}  # fmt: skip
FEATURES: dict[str, dict[str, Any]] = {
    "gaussian": {"prior": "gaussian"},
    "angular": {"prior": "mutual-angular"},
    "vmf": {"prior": "vmf"},
    "pitman-yor": {"prior": "gaussian", "process": "pitman-yor", "process__discount": "learn"},
}
COMMON = {"verbose": False, "random_state": 0}
SHORT = {"inference__n_warmup": 2, "inference__n_draws": 2, "inference__n_chains": 1}
CLIMB = {"inference__n_passes": 2, "inference__n_starts": 1}


def expert_settings(name: str) -> dict[str, Any]:
    """Parameters of a quick fit of two experts."""
    chosen = EXPERTS[name]
    return COMMON | {"n_experts": 2} | (SHORT if chosen["inference"] == "mcmc" else CLIMB) | chosen


def feature_settings(name: str) -> dict[str, Any]:
    """Parameters of a quick fit of latent features."""
    search = {"inference__thin": 1, "inference__hops": 0, "inference__max_features": 4}
    return COMMON | SHORT | search | FEATURES[name]


def _some(
    odd: dict[str, st.SearchStrategy[Any]], model: Any, settings: dict[str, Any]
) -> st.SearchStrategy[dict[str, Any]]:
    """In one case of three, one or two settings out of the ordinary, of those that there are."""
    known = model.set_params(**settings).get_params()
    usable = {name: values for name, values in odd.items() if name in known}
    names = st.lists(st.sampled_from(sorted(usable)), min_size=1, max_size=2, unique=True)
    chosen = names.flatmap(
        lambda some: st.fixed_dictionaries({name: usable[name] for name in some})
    )
    return st.one_of(st.just({}), st.just({}), chosen)


@st.composite
def expert_cases(
    draw: st.DrawFn, names: tuple[str, ...] = tuple(EXPERTS), shapes: Shapes = SHAPES
) -> Case:
    """A fit of the classifier."""
    X, wrong = draw(matrices(shapes, gaps=True))
    if sp.issparse(X) and X.dtype.kind == "f" and np.isnan(X.data).any():
        wrong.add("not finite")  # only dense rows may have gaps
    y, more = draw(labels(X.shape[0]))
    weights, yet_more = draw(row_weights(X.shape[0]))
    settings = expert_settings(draw(st.sampled_from(names)))
    settings["standardise"] = draw(st.sampled_from((True, True, False)))
    odd = {
        "prior__scale": POSITIVE, "prior__magnitude_shape": POSITIVE,
        "prior__concentration": POSITIVE,
        "prior__cosine": st.sampled_from((0.0, 0.9, 0.999999, 1.0)),
        "inference__temperature": POSITIVE, "inference__gamma": POSITIVE,
        "inference__diversity": POSITIVE, "class_weight": st.just("balanced"),
    }  # fmt: skip
    settings |= draw(_some(odd, MixtureOfExpertsClassifier(), settings))
    return Case(X, y, weights, settings, wrong | more | yet_more)


@st.composite
def feature_cases(
    draw: st.DrawFn, names: tuple[str, ...] = tuple(FEATURES), shapes: Shapes = SHAPES
) -> Case:
    """A fit of the feature model."""
    X, wrong = draw(matrices(shapes, gaps=True))
    settings = feature_settings(draw(st.sampled_from(names)))
    settings["standardise"] = draw(st.booleans())
    odd = {
        "noise_scale": POSITIVE, "prior__magnitude_shape": POSITIVE, "prior__scale": POSITIVE,
        "prior__concentration": POSITIVE,
        "process__alpha": st.sampled_from((0.1, 1.0, 3.0, 1e-300, 1e300)),
    }  # fmt: skip
    settings |= draw(_some(odd, LatentFeatureModel(), settings))
    if X.shape[1] == 1 and settings["prior"] != "gaussian":
        wrong.add("one column")
    return Case(X, None, None, settings, wrong)
