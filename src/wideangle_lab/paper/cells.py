"""A cell: one number of a table, with all its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

CLASSIFIERS, FEATURES = "classifiers", "features"


class Effort(NamedTuple):
    """Computational effort of a cell; part of every record."""

    n_warmup: int = 500
    n_draws: int = 1500
    n_chains: int = 4
    n_passes: int | None = None
    """Passes of MAP and VI; None is the default of the estimator."""
    n_folds: int = 5
    """Cross-validation of the baselines, as in the paper."""
    tune: bool = True
    """Whether to choose settings of the mixtures on the training rows; else use defaults."""
    max_rows: int | None = None
    """Maximum number of training and of test rows; None uses all."""
    mixture_folds: int = 1
    """Folds for tuning the mixtures; 1 sets a fifth of the rows aside once."""


DEFAULT = Effort()


@dataclass(frozen=True)
class Cell:
    """Data set, method, size and seed."""

    suite: str
    """``classifiers`` or ``features``."""
    data: str
    method: str
    n_experts: int = 0
    """K; 0 for methods without experts."""
    seed: int = 0
    """Number of the split, and seed of the fit."""
    effort: Effort = DEFAULT
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fixed settings of the estimator."""

    @property
    def path(self) -> Path:
        """Path of its record, relative to the folder of the cells."""
        parts = [self.method]
        parts += [f"K{self.n_experts}"] if self.n_experts else []
        name = ".".join([*parts, f"seed{self.seed}"])
        return Path(self.suite) / self.data / f"{name}.json"

    @property
    def label(self) -> str:
        """One short line."""
        return str(self.path.with_suffix(""))

    def as_json(self) -> dict[str, Any]:
        """Plain data; equal for equal cells."""
        return asdict(self) | {"effort": self.effort._asdict(), "settings": dict(self.settings)}


def from_json(data: Mapping[str, Any]) -> Cell:
    """The cell of :meth:`Cell.as_json`; missing fields have their defaults."""
    return Cell(**{**data, "effort": Effort(**data["effort"])})
