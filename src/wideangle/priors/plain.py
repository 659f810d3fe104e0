"""Priors of the library as plain JSON, for files."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from wideangle.priors.components import GaussianComponents, PolarComponents
from wideangle.priors.dpp import DeterminantalComponents
from wideangle.priors.mutual_angular import MutualAngular

KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (GaussianComponents, PolarComponents, DeterminantalComponents, MutualAngular)
}


def prior_to_plain(prior: Any) -> dict[str, Any] | None:
    """Class and parameters of a distribution; None where it, or one in it, is not the library's."""
    kind = type(prior)
    if kind not in KINDS.values():
        return None
    plain: dict[str, Any] = {}
    for name in inspect.signature(kind).parameters:
        if name == "validate_args":
            continue
        value = getattr(prior, name)
        plain[name] = value if isinstance(value, str | int | None) else _plain(value)
        if plain[name] is None and value is not None:
            return None
    return {"prior": kind.__name__, "params": plain}


def _plain(value: Any) -> Any:
    return np.asarray(value).tolist() if hasattr(value, "__array__") else prior_to_plain(value)


def prior_from_plain(plain: Any) -> Any:
    """The prior of :func:`prior_to_plain`; anything else is returned as it is."""
    if not isinstance(plain, dict) or "prior" not in plain:
        return plain
    params = plain["params"].items()
    return KINDS[plain["prior"]](**{name: prior_from_plain(value) for name, value in params})
