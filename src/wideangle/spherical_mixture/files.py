"""A fitted mixture as one file: arrays and JSON, no code; and its draws for ArviZ."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError

from wideangle.posterior import Draws
from wideangle.settings import Sampling
from wideangle.spherical_mixture.sampling import NEEDED
from wideangle.spherical_mixture.task import Mixture
from wideangle.storage import save_bundle
from wideangle.storage.files import as_finite
from wideangle.storage.models import check_numbers, described, part_of, read_model, remade

KIND = "spherical-mixture"
_NUMBERS = ("alpha_", "tightness_", "strength_", "n_used_", "n_iter_")


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model; see :meth:`SphericalMixture.save`."""
    if not model.__sklearn_is_fitted__():
        raise NotFittedError("save() needs a fitted model: call fit first.")
    arrays = {f"mixture_{name}": leaf for name, leaf in model._mixture._asdict().items()}
    arrays |= {f"trace_{name}": values for name, values in model.trace_.values.items()}
    if model.posterior_ is not None:
        arrays |= {f"kept_{name}": leaf for name, leaf in model.posterior_._asdict().items()}
    if hasattr(model, "labels_"):
        arrays["labels"] = model.labels_
    meta = described(model) | {
        "numbers": {name: getattr(model, name) for name in _NUMBERS},
        "notes": as_finite(model.notes_),
    }
    save_bundle(path, {k: np.asarray(v) for k, v in arrays.items()}, meta, kind=KIND)


def load(cls: type, path: str | os.PathLike[str]) -> Any:
    """Read a model written by :func:`save`."""
    return read_model(cls, path, KIND, _restore)


def _restore(cls: type, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Any:
    meta["settings"].pop("checkpoint", None)  # once a parameter that could only be None
    model = remade(cls, meta)
    check_numbers(arrays)
    for name in _NUMBERS:
        setattr(model, name, float(meta["numbers"][name]))
    model.n_iter_ = int(model.n_iter_)
    model.notes_ = meta["notes"]
    mixture = _mixture(arrays, "mixture_", 0, model.n_features_in_)
    model.cluster_centers_, model.concentrations_, model.weights_ = mixture
    kept = "kept_weights" in arrays
    model.posterior_ = _mixture(arrays, "kept_", 2, model.n_features_in_) if kept else None
    sampled = isinstance(model.choice("inference"), Sampling)
    if sampled != kept:
        raise ValueError("it has no draws, or draws of another inference")
    model.trace_ = Draws(part_of(arrays, "trace_"), needed=NEEDED if sampled else None)
    model.diagnostics_ = model.trace_.summary() if sampled else None
    if "labels" in arrays:
        model.labels_ = arrays["labels"]
        if model.labels_.ndim != 1 or model.labels_.dtype.kind not in "iu":
            raise ValueError("its labels are no list of numbers")
    return model


def _mixture(arrays: dict[str, np.ndarray], prefix: str, n_axes: int, dim: int) -> Mixture:
    found = Mixture(*(arrays[prefix + name] for name in Mixture._fields))
    shape = found.weights.shape
    good = len(shape) == n_axes + 1 and 0 not in shape
    good = good and found.concentrations.shape == shape and found.directions.shape == (*shape, dim)
    if not good or any(leaf.dtype.kind != "f" for leaf in found):
        raise ValueError("the sizes of its arrays do not fit together")
    if np.any(found.weights < 0) or not np.allclose(found.weights.sum(axis=-1), 1.0, atol=1e-4):
        raise ValueError("its weights are not shares")
    if np.any(found.concentrations < 0):
        raise ValueError("a concentration is negative")
    return found


def to_arviz(model: Any) -> Any:
    """The container of ArviZ; see :meth:`SphericalMixture.to_arviz`."""
    from wideangle.arviz_adapter import to_arviz as convert

    if model.posterior_ is None:
        raise ValueError(
            f"to_arviz: a fit by inference={model.inference!r} has no draws; use 'mcmc' for some."
        )
    return convert(
        {"posterior": model.trace_.values, "posterior_raw": model.posterior_._asdict()},
        coords={"column": model.presentation(model).entry_names()},
        dims={
            "weights": ["cluster"],
            "concentrations": ["cluster"],
            "directions": ["cluster", "column"],
        },
    )
