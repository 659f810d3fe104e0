"""A fitted mixture of experts as one file: arrays and JSON, nothing that runs."""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np
from sklearn.exceptions import NotFittedError

from wideangle.mixture_of_experts import fit as moe_fit
from wideangle.mixture_of_experts.experts import experts_for
from wideangle.mixture_of_experts.likelihood import Weights
from wideangle.mixture_of_experts.scaling import Scaling
from wideangle.posterior import Draws
from wideangle.storage import save_bundle
from wideangle.storage.models import check_numbers, plain, read_model, restore_names

LONGEST_CLASS = 2**16
"""Most bytes of the name of a class."""
KIND = "mixture-of-experts-classifier"


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted model; see :meth:`MixtureOfExpertsClassifier.save`."""
    if not hasattr(model, "posterior_"):
        raise NotFittedError("save() needs a fitted model: call fit first.")
    if not isinstance(model.prior, str):
        raise ValueError(
            "prior: a model with a prior object cannot be saved, since the file holds no code; "
            "use one of the named priors."
        )
    weights = model.posterior_.values["weights"]
    arrays = {
        "gate": weights.gate,
        "experts": weights.experts,
        "best_gate": model._representative.gate,
        "best_experts": model._representative.experts,
        "shift": model.scaling_.shift,
        "scale": model.scaling_.scale,
        **{f"prior_{i}": leaf for i, leaf in enumerate(jax.tree.leaves(model.priors_))},
    }
    arrays |= {f"invariant_{name}": values for name, values in model.invariants_.items()}
    if "log_lik" in model.posterior_.values:
        arrays["log_lik"] = model.posterior_.values["log_lik"]
    names = getattr(model, "feature_names_in_", None)
    settings = model.get_params(deep=False)
    if isinstance(model.class_weight, dict):
        # As pairs: keys of JSON are strings, and classes may be numbers.
        settings["class_weight"] = list(model.class_weight.items())
    meta = {
        "settings": {k: plain(v) for k, v in settings.items()},
        "classes": {"dtype": model.classes_.dtype.str, "values": model.classes_.tolist()},
        "n_features": model.n_features_in_,
        "feature_names": None if names is None else [str(name) for name in names],
        "n_used": model.n_used_,
        "notes": plain(model.notes_),
    }
    save_bundle(path, {k: np.asarray(v) for k, v in arrays.items()}, meta, kind=KIND)


def load(cls: type, path: str | os.PathLike[str]) -> Any:
    """Read a model written by :func:`save`."""
    return read_model(cls, path, KIND, _restore)


def _restore(cls: type, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Any:
    settings = meta["settings"]
    if isinstance(settings["class_weight"], list):
        settings["class_weight"] = dict(settings["class_weight"])
    model = cls(**settings)
    model._validate_params()
    model.classes_ = _classes(meta["classes"])
    model.n_features_in_ = int(meta["n_features"])
    restore_names(model, meta["feature_names"])
    model.scaling_ = Scaling(arrays["shift"], arrays["scale"], model.fit_intercept)
    model._expert = experts_for(len(model.classes_))
    values: dict[str, Any] = {"weights": Weights(arrays["gate"], arrays["experts"])}
    if "log_lik" in arrays:
        values["log_lik"] = arrays["log_lik"]
    model.posterior_ = Draws(values)
    model._representative = Weights(arrays["best_gate"], arrays["best_experts"])
    prefix = "invariant_"
    model.invariants_ = {
        name.removeprefix(prefix): leaf for name, leaf in arrays.items() if name.startswith(prefix)
    }
    check_numbers(arrays)
    _check_sizes(model, arrays)
    priors = moe_fit.build_priors(model, arrays["gate"].shape[-1], model._expert)
    leaves, structure = jax.tree.flatten(priors)
    model.priors_ = jax.tree.unflatten(
        structure, [arrays[f"prior_{i}"] for i in range(len(leaves))]
    )
    model.n_used_ = float(meta["n_used"])
    model.notes_ = meta["notes"]
    model.n_iter_ = model.posterior_.n_chains * model.posterior_.n_draws
    mcmc = model.inference == "mcmc"
    model.diagnostics_ = Draws(model.invariants_).summary() if mcmc else None
    return model


def _classes(stored: dict[str, Any]) -> np.ndarray:
    dtype = np.dtype(stored["dtype"])
    if dtype.kind not in "biufUO" or dtype.itemsize > LONGEST_CLASS:
        raise ValueError(f"classes of type {dtype}")
    classes = np.array(stored["values"], dtype=dtype)
    if classes.ndim != 1 or len(classes) == 0:
        raise ValueError("its classes are no list")
    return classes


def _check_sizes(model: Any, arrays: dict[str, np.ndarray]) -> None:
    """Refuse arrays that do not belong together, before anything is made of them."""
    p, n_outputs = model.n_features_in_ + model.fit_intercept, model._expert.n_outputs
    gate, experts = (model.n_experts, p), (model.n_experts, n_outputs, p)
    draws = arrays["gate"].shape[:2]
    columns = (model.n_features_in_,)
    wanted = {
        "gate": draws + gate, "experts": draws + experts, "best_gate": gate, "log_lik": draws,
        "best_experts": experts, "shift": columns, "scale": columns,
    }  # fmt: skip
    for name, shape in wanted.items():
        if name in arrays and (arrays[name].shape != shape or arrays[name].dtype.kind not in "fiu"):
            raise ValueError(f"array {name!r} has shape {arrays[name].shape} instead of {shape}")
    apart = [values for values in model.invariants_.values() if values.shape[:2] != draws]
    if 0 in draws or apart or np.any(arrays["scale"] <= 0):
        raise ValueError("the sizes of its arrays do not fit together")
