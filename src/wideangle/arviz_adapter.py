"""Hand draws to ArviZ, whichever of its two generations is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from wideangle.checks import not_installed

_NOT_SAMPLED = {"observed_data", "constant_data", "predictions_constant_data"}
_OURS = {"posterior_raw"}
"""Groups that ArviZ 0.x does not know and would leave out."""


def to_arviz(
    groups: Mapping[str, Mapping[str, ArrayLike]],
    coords: Mapping[str, Sequence[Any]] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
) -> Any:
    """The container of ArviZ: a ``DataTree`` with 1.x, an ``InferenceData`` with 0.x.

    Parameters
    ----------
    groups
        Arrays by group and name, such as ``{"posterior": {"directions": draws}}``. The arrays of a
        group have shape ``(chain, draw, ...)``, except in the groups of data.
    coords
        Labels along each named dimension.
    dims
        Names of the dimensions after ``(chain, draw)``, by variable.
    """
    tables = {
        group: {name: np.asarray(values) for name, values in variables.items()}
        for group, variables in groups.items()
    }
    for group in tables.keys() - _NOT_SAMPLED:
        _check_draws(group, tables[group])
    labels = {
        "coords": {name: list(values) for name, values in (coords or {}).items()},
        "dims": {name: list(names) for name, names in (dims or {}).items()},
    }
    try:
        import arviz
    except ModuleNotFoundError as error:
        raise ImportError(f"to_arviz: {not_installed('arviz')}") from error
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict(tables, **labels)
    result = arviz.from_dict(**{k: v for k, v in tables.items() if k not in _OURS}, **labels)
    for group in tables.keys() & _OURS:
        table = arviz.from_dict(posterior=tables[group], **labels)["posterior"]
        result.add_groups({group: table}, warn_on_custom_groups=False)
    return result


def _check_draws(group: str, table: Mapping[str, np.ndarray]) -> None:
    # ArviZ would fill unequal numbers of draws up with NaN, without a word.
    leading = {name: values.shape[:2] for name, values in table.items()}
    if len(set(leading.values())) > 1 or any(len(shape) < 2 for shape in leading.values()):  # noqa: PLR2004
        raise ValueError(
            f"the arrays of group {group!r} must all start with the same (chain, draw) axes, "
            f"but they start with {leading}"
        )
