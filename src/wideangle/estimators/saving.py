"""A fitted mixture of experts as one file: arrays and JSON, nothing that runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from sklearn.exceptions import NotFittedError

from wideangle.estimators import moe_fit
from wideangle.estimators.preparation import Scaling
from wideangle.models.experts import experts_for
from wideangle.models.mixture_of_experts import Weights
from wideangle.posterior import Draws
from wideangle.storage import StorageError, load_bundle, save_bundle

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


def read_model(
    cls: type,
    path: str | os.PathLike[str],
    kind: str,
    restore: Callable[[type, dict[str, np.ndarray], dict[str, Any]], Any],
) -> Any:
    """A model of one kind from its file; whatever does not fit together is a clear error."""
    arrays, meta = load_bundle(path, kind)
    try:
        return restore(cls, arrays, meta)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise StorageError(
            f"{os.fspath(path)} is not a model this version can read ({error}): save it again."
        ) from error


def _restore(cls: type, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> Any:
    settings = meta["settings"]
    if isinstance(settings["class_weight"], list):
        settings["class_weight"] = dict(settings["class_weight"])
    model = cls(**settings)
    model._validate_params()
    model.classes_ = np.array(meta["classes"]["values"], dtype=meta["classes"]["dtype"])
    model.n_features_in_ = int(meta["n_features"])
    if meta["feature_names"] is not None:
        model.feature_names_in_ = np.array(meta["feature_names"], dtype=object)
    model.scaling_ = Scaling(arrays["shift"], arrays["scale"], model.fit_intercept)
    model._expert = experts_for(len(model.classes_))
    values: dict[str, Any] = {"weights": Weights(arrays["gate"], arrays["experts"])}
    if "log_lik" in arrays:
        values["log_lik"] = arrays["log_lik"]
    model.posterior_ = Draws(values)
    model._representative = Weights(arrays["best_gate"], arrays["best_experts"])
    priors = moe_fit.build_priors(model, arrays["gate"].shape[-1], model._expert)
    leaves, structure = jax.tree.flatten(priors)
    model.priors_ = jax.tree.unflatten(
        structure, [arrays[f"prior_{i}"] for i in range(len(leaves))]
    )
    prefix = "invariant_"
    model.invariants_ = {
        name.removeprefix(prefix): leaf for name, leaf in arrays.items() if name.startswith(prefix)
    }
    model.n_used_ = float(meta["n_used"])
    model.notes_ = meta["notes"]
    model.n_iter_ = model.posterior_.n_chains * model.posterior_.n_draws
    mcmc = model.inference == "mcmc"
    model.diagnostics_ = Draws(model.invariants_).summary() if mcmc else None
    return model


def plain(value: Any) -> Any:
    """As JSON can hold it; generators of random numbers and paths are left out."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (np.integer, np.floating, np.bool_)):
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else None
