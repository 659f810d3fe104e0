"""A fitted mixture of experts as one file: arrays and JSON, no code."""

from __future__ import annotations

import inspect
import os
from typing import Any

import jax
import numpy as np
from sklearn.exceptions import NotFittedError

from wideangle.mixture_of_experts.classes import experts_for
from wideangle.mixture_of_experts.likelihood import Pair
from wideangle.mixture_of_experts.modes import with_scales
from wideangle.mixture_of_experts.prepare import LARGEST, Filling, Scaling
from wideangle.posterior import Draws
from wideangle.priors.components import GaussianComponents, PolarComponents
from wideangle.priors.dpp import DeterminantalComponents
from wideangle.priors.mutual_angular import MutualAngular
from wideangle.settings import Maximise, Sampling, Settings
from wideangle.storage import save_bundle
from wideangle.storage.files import as_finite
from wideangle.storage.models import (
    check_numbers,
    described,
    part_of,
    read_model,
    refuse_class,
    remade,
)

MOST_CLASS_BYTES = 2**26
"""Largest size of all class names: in an array each takes as much space as the longest."""
MOST_WEIGHT = 1e15
"""Largest weights: squares and products with prepared rows stay finite in single precision."""
BESIDE_WEIGHTS = ("log_lik", "common")
"""What the draws of some samplers have besides weights and scales."""
PRIOR_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (GaussianComponents, PolarComponents, DeterminantalComponents, MutualAngular)
}
"""Priors that a file can hold."""


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model; see :meth:`MixtureOfExperts.save`."""
    if not hasattr(model, "posterior_"):
        raise NotFittedError("save() needs a fitted model: call fit first.")
    draws = model.posterior_.values
    weights = draws["weights"]
    arrays = {
        "gate": weights.gate,
        "experts": weights.experts,
        "best_gate": model._representative.gate,
        "best_experts": model._representative.experts,
        "shift": model.scaling_.shift,
        "scale": model.scaling_.scale,
        "chain_weights": model.chain_weights_,
        **{f"prior_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(model.priors_))},
    }
    arrays |= {f"trace_{name}": values for name, values in model.trace_.values.items()}
    arrays |= {name: draws[name] for name in BESIDE_WEIGHTS if name in draws}
    arrays |= {f"scales_{name}": values for name, values in draws.get("scales", {}).items()}
    if model.filling_ is not None:
        arrays |= {"medians": model.filling_.medians, "flagged": model.filling_.flagged}
    meta = described(model, _special(model)) | {
        **model._target_meta(),
        "n_used": model.n_used_,
        "limit": model.scaling_.limit,
        "notes": as_finite(model.notes_),
    }
    save_bundle(path, {k: np.asarray(v) for k, v in arrays.items()}, meta, kind=model.file_kind)


def _special(model: Any) -> dict[str, Any]:
    """Settings that are not names, numbers or settings objects, as JSON can hold them."""
    special = {"prior": _each(model.prior, _saved_prior)}
    if isinstance(by_class := getattr(model, "class_weight", None), dict):
        # As pairs: JSON keys are strings, but classes may be numbers.
        special["class_weight"] = list(by_class.items())
    return special


def _each(prior: Any, change: Any) -> Any:
    """Apply a function to a prior, or to both of a pair."""
    pair = isinstance(prior, tuple | list)
    return type(prior)(change(one) for one in prior) if pair else change(prior)


def _saved_prior(prior: Any) -> Any:
    if isinstance(prior, str | Settings):
        return prior
    plain_prior = prior_to_plain(prior)
    return refuse_class("prior", prior) if plain_prior is None else plain_prior


def prior_to_plain(prior: Any) -> dict[str, Any] | None:
    """Class and parameters of a distribution; None if any part is not from this library."""
    kind = type(prior)
    if kind not in PRIOR_KINDS.values():
        return None
    plain: dict[str, Any] = {}
    for name in inspect.signature(kind).parameters:
        if name == "validate_args":
            continue
        value = getattr(prior, name)
        plain[name] = value if isinstance(value, str | int | None) else _plain_value(value)
        if plain[name] is None and value is not None:
            return None
    return {"prior": kind.__name__, "params": plain}


def _plain_value(value: Any) -> Any:
    return np.asarray(value).tolist() if hasattr(value, "__array__") else prior_to_plain(value)


def prior_from_plain(plain: Any) -> Any:
    """The prior of :func:`prior_to_plain`; anything else is returned as it is."""
    if not isinstance(plain, dict) or "prior" not in plain:
        return plain
    params = plain["params"].items()
    return PRIOR_KINDS[plain["prior"]](**{name: prior_from_plain(value) for name, value in params})


def load(cls: Any, path: str | os.PathLike[str]) -> Any:
    """Read a model written by :func:`save`."""
    return read_model(cls, path, cls.file_kind, _restore)


def _restore(cls: type, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Any:
    settings = meta["settings"]
    settings["prior"] = _each(settings["prior"], prior_from_plain)
    pairs = settings.get("class_weight")
    model = remade(cls, meta, {"class_weight": dict(pairs)} if isinstance(pairs, list) else {})
    model._restore_targets(meta, arrays["experts"].shape[-2])
    limit = float(meta.get("limit", LARGEST))  # older files have none
    if not 0.0 < limit <= LARGEST:
        raise ValueError(f"it clips entries at {limit}")
    model.scaling_ = Scaling(arrays["shift"], arrays["scale"], limit)
    if "medians" in arrays:
        model.filling_ = Filling(arrays["medians"], arrays["flagged"])
    model._expert = model._experts()
    values: dict[str, Any] = {"weights": Pair(arrays["gate"], arrays["experts"])}
    values |= {name: arrays[name] for name in BESIDE_WEIGHTS if name in arrays}
    if scales := part_of(arrays, "scales_"):
        values["scales"] = scales
    model.posterior_ = Draws(values)
    model._representative = Pair(arrays["best_gate"], arrays["best_experts"])
    model.trace_ = Draws(part_of(arrays, "trace_"), needed=model._expert.needed)
    check_numbers(arrays)
    _check_sizes(model, arrays)
    task = model._task(arrays["gate"].shape[-1])
    priors = task.priors
    if isinstance(task.inference, Maximise):
        priors = with_scales(priors, {"gate": 1.0, "experts": 1.0})
    leaves, structure = jax.tree.flatten(priors)
    model.priors_ = jax.tree.unflatten(
        structure, [arrays[f"prior_{i}"] for i in range(len(leaves))]
    )
    model.n_used_ = float(meta["n_used"])
    model.chain_weights_ = arrays["chain_weights"]
    model.notes_ = meta["notes"]
    model.n_iter_ = model.posterior_.n_chains * model.posterior_.n_draws
    sampled = isinstance(task.inference, Sampling)
    model.diagnostics_ = model.trace_.summary() if sampled else None
    return model


def classes_from(stored: dict[str, Any], n_outputs: int) -> np.ndarray:
    """Classes of a model whose experts have this many outputs."""
    values, dtype = stored["values"], np.dtype(stored["dtype"])
    if not isinstance(values, list) or not all(
        isinstance(one, str | int | float) for one in values
    ):
        raise ValueError("its classes are not words or numbers")
    if not values or experts_for(len(values)).n_outputs != n_outputs:
        raise ValueError(f"its experts have {n_outputs} outputs for {len(values)} classes")
    if dtype.kind not in "biufUO" or len(values) * dtype.itemsize > MOST_CLASS_BYTES:
        raise ValueError(f"{len(values)} classes of type {dtype}")
    classes = np.array(values, dtype=dtype)
    if not np.array_equal(np.unique(classes), classes):
        raise ValueError("its classes are not in order")
    return classes


def _check_sizes(model: Any, arrays: dict[str, np.ndarray]) -> None:
    """Reject arrays that do not fit together, before they are used."""
    flagged = arrays.get("flagged", np.zeros(0, np.int64))
    n_columns, n_outputs = model.n_features_in_ + len(flagged), model._expert.n_outputs
    p = n_columns + 1
    gate, experts = (model.n_experts, p), (model.n_experts, n_outputs, p)
    draws = arrays["gate"].shape[:2]
    columns = (n_columns,)
    wanted = {
        "gate": draws + gate, "experts": draws + experts, "best_gate": gate, "log_lik": draws,
        "best_experts": experts, "shift": columns, "scale": columns, "chain_weights": draws[:1],
        "common": (*draws, n_outputs * p), "medians": (model.n_features_in_,),
        **{name: draws for name in arrays if name.startswith("scales_")},
    }  # fmt: skip
    for name, shape in wanted.items():
        if name in arrays and (arrays[name].shape != shape or arrays[name].dtype.kind not in "fiu"):
            raise ValueError(f"array {name!r} has shape {arrays[name].shape} instead of {shape}")
    wrong = [v for v in model.trace_.values.values() if v.shape[:2] != draws]
    shares = arrays["chain_weights"]
    unequal = np.any(shares < 0) or not np.isclose(shares.sum(), 1.0)
    for name in ("gate", "experts", "best_gate", "best_experts"):
        if np.max(np.abs(arrays[name]), initial=0.0) > MOST_WEIGHT:
            raise ValueError(f"array {name!r} holds weights of more than {MOST_WEIGHT:g}")
    if flagged.ndim != 1 or not np.isin(flagged, np.arange(model.n_features_in_)).all():
        raise ValueError("it marks missing entries of columns that there are not")
    if 0 in draws or wrong or unequal or np.any(arrays["scale"] <= 0):
        raise ValueError("the sizes of its arrays do not fit together")
