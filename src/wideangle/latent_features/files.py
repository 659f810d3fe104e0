"""A fitted latent feature model as one file: arrays and JSON, nothing that runs."""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np
from sklearn.exceptions import NotFittedError

from wideangle.latent_features.match import Matched
from wideangle.latent_features.posterior import Gathered
from wideangle.latent_features.settings import Scaling
from wideangle.latent_features.store import pack_states, unpack_states
from wideangle.settings import as_plain, from_plain
from wideangle.storage import save_bundle
from wideangle.storage.models import check_numbers, plain, read_model, restore_names

LARGEST = 1e135
"""Size of units; a little more than that of entries, which they come from."""
KIND = "latent-feature-model"


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model; see :meth:`LatentFeatureModel.save`."""
    if not hasattr(model, "matched_"):
        raise NotFittedError("save() needs a fitted model: call fit first.")
    matched = model.matched_._asdict()
    n_disputed = matched.pop("n_disputed")
    arrays = {
        "shift": model.scaling_.shift,
        "start_objectives": model.start_objectives_,
        "chains": model.chains_.chains,
        **{f"kept_{name}": array for name, array in pack_states(model.chains_.states).items()},
        **{f"trace_{name}": array for name, array in model.chains_.trace.items()},
        **{f"matched_{name}": array for name, array in matched.items()},
    }
    names = getattr(model, "feature_names_in_", None)
    meta = {
        "settings": {k: plain(as_plain(v)) for k, v in model.get_params(deep=False).items()},
        "scale": model.scaling_.scale,
        "seed": model._seed,
        "n_disputed": int(n_disputed),
        "interrupted": model.interrupted_,
        "n_rows": model.n_rows_,
        "n_features": model.n_features_in_,
        "feature_names": None if names is None else [str(name) for name in names],
    }
    save_bundle(path, {k: np.asarray(v) for k, v in arrays.items()}, meta, kind=KIND)


def load(cls: type, path: str | os.PathLike[str]) -> Any:
    """Read a model written by :func:`save`."""
    return read_model(cls, path, KIND, _restore)


def _restore(cls: type, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Any:
    def part(prefix: str) -> dict[str, np.ndarray]:
        return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}

    model = cls(**{k: from_plain(v) for k, v in meta["settings"].items()})
    model._validate_params()
    model.n_features_in_ = int(meta["n_features"])
    restore_names(model, meta["feature_names"])
    check_numbers(arrays)
    model.scaling_ = Scaling(arrays["shift"], float(meta["scale"]))
    model.start_objectives_ = arrays["start_objectives"]
    model.interrupted_ = bool(meta["interrupted"])
    model.n_rows_ = int(meta["n_rows"])
    model._seed = int(meta["seed"])
    states = unpack_states(part("kept_"))
    model.chains_ = Gathered(states, arrays["chains"], part("trace_"))
    model.matched_ = Matched(**part("matched_"), n_disputed=int(meta["n_disputed"]))
    _check_sizes(model)
    model._name_components()
    model._summarise()
    return model


def _check_sizes(model: Any) -> None:
    """Refuse arrays that do not belong together, before anything is made of them."""
    states, found = model.chains_.states, model.matched_
    sizes = [len(state.weights) for state in states]
    trace = model.chains_.trace
    lengths = {values.shape for values in trace.values()}
    n_components = len(found.components)
    right = (
        len(states) > 0
        and [len(shape) for shape in lengths] == [2]
        and 0 not in min(lengths)
        and bool(np.all(trace["noise_variance"] >= 0))
        and model.chains_.chains.shape == (len(states),)
        and model.scaling_.shift.shape == (model.n_features_in_,)
        and found.components.shape == (n_components, model.n_features_in_)
        and found.index.shape == (len(states), n_components)
        and bool(np.all(found.index < np.array(sizes)[:, None]))
        and all(
            state.vectors.shape == (n, model.n_features_in_)
            for state, n in zip(states, sizes, strict=True)
        )
        and all(len(state.bits) == model.n_rows_ for state in states)
        and all(
            min(jax.tree.leaves(state.hyper)) >= 0 and state.hyper.noise > 0 for state in states
        )
        and model._seed >= 0
        and 1.0 / LARGEST <= model.scaling_.scale <= LARGEST
        and bool(np.all(np.abs(model.scaling_.shift) <= LARGEST))
    )
    if not right:
        raise ValueError("its arrays do not fit together")
