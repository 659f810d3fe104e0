"""What every estimator of the library has in common, and gives to runs, plots, report and cli.

A presentation (:class:`Presented`) is all that the rest of the library uses of a model, together
with scikit-learn's own methods. :class:`Family` adds what the families of the library share.
"""

from __future__ import annotations

import html as escape
from types import ModuleType
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from wideangle.checks import check_not_forked, check_table
from wideangle.presentation.family import Presentation
from wideangle.settings import NamedChoices
from wideangle.sphere.geometry import Diversity, diversity
from wideangle.types import as_numpy, in_order


class Presented:
    """An estimator that names its presentation, and shows itself in terminals and notebooks."""

    presentation: ClassVar[type[Presentation]]
    """What runs, plots, report and the command line ask about a fitted model."""

    @property
    def diversity_(self) -> Diversity:
        """Angles between the components."""
        vectors = present(self).vectors()
        check_not_forked()
        return Diversity(*(float(value) for value in diversity(vectors)))

    def summary(self) -> str:
        """A short account of the fit in plain text."""
        return as_text(present(self).facts())

    def __getstate__(self) -> dict[str, Any]:
        """For pickles: arrays are NumPy's, and chains to go on with (``warm_start``) stay here."""
        state: Any = super().__getstate__()
        kept = {name: value for name, value in state.items() if name != "_last_chains"}
        return {name: as_numpy(value) for name, value in kept.items()}

    def _get_params_html(self, *args: Any, **kwargs: Any) -> Any:
        """What scikit-learn shows of a model, alone or in a pipeline: parameters, and the fit."""
        shown: Any = super()._get_params_html(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]
        return _WithFacts(self, shown)


class Family(Presented, NamedChoices):
    """An estimator with nested settings, for dense or CSR rows, and with files of its own."""

    _files: ClassVar[ModuleType]
    """The module of the family that writes and reads its files."""
    random_state: Any
    _allows_missing: ClassVar[bool] = True
    """Whether entries of dense rows may be NaN."""

    def _validate_params(self) -> None:
        check_not_forked()
        super()._validate_params()

    def _validated(self, X: Any, *y: Any, reset: bool = True, **more: Any) -> Any:
        """Rows (and targets) after the checks of scikit-learn and our own."""
        check_table(X)
        return validate_data(
            self,
            in_order(X),
            *y,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite="allow-nan" if self._allows_missing else True,
            **more,
        )

    def _draw_seed(self, random_state: Any = None) -> int:
        """A seed from a random state, by default that of the model."""
        chosen = self.random_state if random_state is None else random_state
        return int(check_random_state(chosen).randint(2**31 - 1))

    def _chains_of(self, mark: str) -> Any:
        """Chains of the last fit, if they are of these rows and settings."""
        known, chains = getattr(self, "_last_chains", None) or (None, None)
        return chains if known == mark else None

    def _take_columns(self, source: Any) -> None:
        """Remember the columns of rows on disk, as a fit to rows in memory does."""
        self.n_features_in_ = source.shape[1]
        if source.names is not None:
            self.feature_names_in_ = np.asarray(source.names, dtype=object)

    def save(self, path: Any) -> None:
        """Write the fitted model to one file (arrays and JSON; loading it runs no code)."""
        self._files.save(self, path)

    @classmethod
    def load(cls, path: Any) -> Self:
        """Read a model written by :meth:`save`; a damaged file raises a clear error."""
        return cls._files.load(cls, path)

    def __sklearn_tags__(self) -> Any:
        """Accepts sparse rows, and missing entries where the model knows them."""
        tags: Any = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self._allows_missing
        return tags


class _WithFacts:
    """A table of parameters in HTML, followed by the facts of the fit."""

    def __init__(self, model: Any, parameters: Any) -> None:
        self.model, self.parameters = model, parameters

    def _repr_html_inner(self) -> str:
        try:
            facts = _as_html(present(self.model).facts())
        except NotFittedError:
            facts = ""
        return self.parameters._repr_html_inner() + facts


def present(model: Any) -> Presentation:
    """How the family of a fitted model presents it."""
    found = getattr(model, "presentation", None)
    if found is None:
        raise TypeError(
            f"{type(model).__name__} has no attribute 'presentation': give an estimator of "
            "wideangle, or one with a presentation of its own."
        )
    return found(model)


def as_text(rows: list[tuple[str, str]]) -> str:
    """Facts as aligned lines."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _as_html(rows: list[tuple[str, str]]) -> str:
    """Facts as a table; everything that came from data is escaped."""
    cells = "".join(
        f"<tr><th style='text-align:left;padding-right:1em'>{escape.escape(name)}</th>"
        f"<td>{escape.escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table class='wideangle-summary'>{cells}</table>"
